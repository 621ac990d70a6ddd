//! A person's announcement that a StatefulSet is to go, or to lose members: `quorumgate.io/intent: delete | scale-in`.
//!
//! An announcement counts for 24 h, like an override, so that a forgotten one does not let an accident pass. Its age is that
//! of the `managedFields` entry that holds the annotation, which the API server writes. Where there is none the age is not known and
//! the announcement does not count.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::super::checked;
use super::super::review::Metadata;
use crate::api::names::{INTENT, OVERRIDE_UNTIL};

/// How long an announcement counts.
const LIFE: SignedDuration = SignedDuration::from_hours(24);

/// What is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Intent {
    /// The cluster is to be deleted.
    Delete,
    /// Members are to be removed by lowering `spec.replicas`.
    ScaleIn,
}

/// When the announcement was last written, by the owners of the fields of an object in a review.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Managers(Option<Timestamp>);

/// One owner of fields, as far as it matters here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FieldsOwner {
    time: Option<Timestamp>,
    fields_v1: Option<Fields>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Fields {
    #[serde(rename = "f:metadata")]
    metadata: Option<InMetadata>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct InMetadata {
    #[serde(rename = "f:annotations")]
    annotations: Option<InAnnotations>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct InAnnotations {
    #[serde(rename = "f:quorumgate.io/intent")]
    intent: Option<IgnoredAny>,
}

impl FieldsOwner {
    fn holds(&self) -> bool {
        let metadata = self
            .fields_v1
            .as_ref()
            .and_then(|all| all.metadata.as_ref());
        let annotations = metadata.and_then(|all| all.annotations.as_ref());
        annotations.is_some_and(|all| all.intent.is_some())
    }
}

impl<'de> Deserialize<'de> for Managers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let owners = checked::kept(from, FieldsOwner::holds)?;
        let times = owners.into_iter().flatten().filter_map(|owner| owner.time);
        Ok(Self(times.max()))
    }
}

/// What a StatefulSet says about its own future.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intents {
    /// The value of the annotation and when it was written.
    announced: Option<(String, Option<Timestamp>)>,
    /// The value of the override's annotation.
    pub override_until: Option<String>,
}

impl Intents {
    /// Reads the annotations of an object, and their age from the owners of its fields.
    pub(super) fn of(metadata: &Metadata<Managers>) -> Self {
        let annotation = |key| metadata.annotations.as_ref()?.get(key).cloned();
        let written = metadata.managed_fields.unwrap_or_default();
        Self {
            announced: annotation(INTENT).map(|value| (value, written.0)),
            override_until: annotation(OVERRIDE_UNTIL),
        }
    }

    /// The same of an object as it was read.
    pub fn of_stored(metadata: &ObjectMeta) -> Self {
        let annotation = |key| metadata.annotations.as_ref()?.get(key).cloned();
        let owners = metadata.managed_fields.iter().flatten();
        let owners = owners.filter_map(|entry| {
            let fields = &entry.fields_v1.as_ref()?.0;
            Some((entry.time.as_ref().map(|time| time.0), fields))
        });
        Self {
            announced: annotation(INTENT).map(|value| (value, written(owners))),
            override_until: annotation(OVERRIDE_UNTIL),
        }
    }

    /// The announcement, where it is one and counts at `now`.
    pub fn announced(&self, now: Timestamp) -> Option<Intent> {
        let (value, written) = self.announced.as_ref()?;
        let age = now.duration_since((*written)?);
        (age <= LIFE).then(|| value.trim().parse().ok()).flatten()
    }

    /// Why an announcement that is there does not count, for the refusal.
    pub fn ignored(&self, now: Timestamp) -> Option<String> {
        let (value, written) = self.announced.as_ref()?;
        if value.trim().parse::<Intent>().is_err() {
            return Some(format!(
                "{INTENT}: {value:?} is neither delete nor scale-in"
            ));
        }
        match written {
            None => Some(format!(
                "{INTENT} does not count, because metadata.managedFields does not say when it was set"
            )),
            Some(at) if now.duration_since(*at) > LIFE => Some(format!(
                "{INTENT} was set at {at} and counted for 24 h; remove it and set it again"
            )),
            Some(_) => None,
        }
    }
}

/// When the annotation was last written: the newest of the owners that hold it.
fn written<'a>(owners: impl Iterator<Item = (Option<Timestamp>, &'a Value)>) -> Option<Timestamp> {
    let path = ["f:metadata", "f:annotations", "f:quorumgate.io/intent"];
    let holds = |fields: &'a Value| path.iter().try_fold(fields, |f, key| f.get(key)).is_some();
    owners
        .filter(|(_, fields)| holds(fields))
        .filter_map(|(time, _)| time)
        .max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn intents(value: &str, owner: &Value) -> Intents {
        let metadata = json!({"annotations": {INTENT: value}, "managedFields": [owner]});
        Intents::of(&serde_json::from_value(metadata).unwrap())
    }

    fn owner_at(time: &str) -> Value {
        json!({"time": time, "fieldsV1": {"f:metadata": {"f:annotations": {"f:quorumgate.io/intent": {}}}}})
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn an_announcement_counts_for_24_hours_from_when_it_was_written() {
        let said = intents("scale-in", &owner_at("2026-11-21T10:00:00Z"));
        assert_eq!(
            said.announced(at("2026-11-21T10:00:05Z")),
            Some(Intent::ScaleIn)
        );
        assert_eq!(
            said.announced(at("2026-11-22T10:00:00Z")),
            Some(Intent::ScaleIn)
        );
        assert_eq!(said.announced(at("2026-11-22T10:00:01Z")), None);
        let why = said.ignored(at("2026-11-22T10:00:01Z")).unwrap();
        assert!(why.contains("set it again"), "{why}");
        // The API server's clock may be ahead of ours.
        assert_eq!(
            said.announced(at("2026-11-21T09:59:30Z")),
            Some(Intent::ScaleIn)
        );
    }

    #[test]
    fn an_announcement_of_unknown_age_or_meaning_does_not_count() {
        let now = at("2026-11-21T10:00:00Z");
        let elsewhere = json!({"time": "2026-11-21T10:00:00Z", "fieldsV1": {"f:spec": {}}});
        let ageless = intents("delete", &elsewhere);
        assert_eq!(ageless.announced(now), None);
        assert!(ageless.ignored(now).unwrap().contains("managedFields"));
        let unknown = intents("yes", &owner_at("2026-11-21T10:00:00Z"));
        assert_eq!(unknown.announced(now), None);
        assert!(unknown.ignored(now).unwrap().contains("neither"));
    }
}
