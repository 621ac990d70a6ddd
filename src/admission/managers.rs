//! The age of a StatefulSet's announcement (`quorumgate.io/intent`), from the managed fields in a
//! review.
//!
//! A review may bring many managers, so only the time of the newest that holds the annotation is
//! kept.

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::checked;

/// The managed fields of an object, reduced to the time at which the announcement was written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Managers(Option<Timestamp>);

impl Managers {
    /// The time at which the announcement was last written.
    pub(super) fn intent_written(self) -> Option<Timestamp> {
        self.0
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
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

impl Entry {
    fn holds_intent(&self) -> bool {
        let fields = self.fields_v1.as_ref();
        let metadata = fields.and_then(|all| all.metadata.as_ref());
        let annotations = metadata.and_then(|all| all.annotations.as_ref());
        annotations.is_some_and(|all| all.intent.is_some())
    }
}

impl<'de> Deserialize<'de> for Managers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let entries = checked::kept(from, Entry::holds_intent)?;
        let times = entries.into_iter().flatten().filter_map(|entry| entry.time);
        Ok(Self(times.max()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_newest_manager_that_holds_the_annotation_tells_when_it_was_written() {
        let written = |managers: Value| {
            let managers: Managers = serde_json::from_value(managers).unwrap();
            managers.intent_written().map(|time| time.to_string())
        };
        let at = |time: &str, annotation: &str| json!({"time": time, "fieldsV1": {"f:metadata": {"f:annotations": {annotation: {}}}}});
        let intent = "f:quorumgate.io/intent";
        let (old, new) = ("2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z");
        assert_eq!(
            written(json!([at(new, intent), at(old, intent)])),
            Some(new.to_owned())
        );
        assert_eq!(
            written(json!([at(old, intent), at(new, "f:other"), {"fieldsV1": null}])),
            Some(old.to_owned())
        );
        let elsewhere = json!([{"time": new, "fieldsV1": {"f:spec": {}}}]);
        assert_eq!(written(elsewhere), None);
    }
}
