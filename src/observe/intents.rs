//! The announcement that a StatefulSet is to be deleted, or to lose members: the annotation
//! `quorumgate.io/intent`.
//!
//! An announcement counts for 24 h, like an override, so that a forgotten one does not let an
//! accident pass. Its age is the age of the `managedFields` entry that holds the annotation, which
//! the API server writes. Without such an entry the age is unknown, and the announcement does not
//! count. Any later write of the same field manager renews that entry, so an announcement that is
//! kept in Git would never end. Therefore the budget records since when it is there.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use strum::VariantNames as _;

use crate::api::names::{INTENT, OVERRIDE_UNTIL};
use crate::api::{AnnouncementStatus, QuorumDisruptionBudget, QuorumDisruptionBudgetStatus};
use crate::ledger::Announced;
use crate::quorum::Intent;

/// How long an announcement counts.
const LIFE: SignedDuration = SignedDuration::from_hours(24);

/// The annotations of a StatefulSet that decide about a change of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Intents {
    /// The value of the announcement, and the time at which it was written.
    announced: Option<Announced>,
    /// The override's annotation alone, where there is one.
    overrides: Option<BTreeMap<String, String>>,
}

impl Intents {
    /// Reads the annotations. `written` is the time at which the announcement was last written.
    pub fn new(annotations: Option<&BTreeMap<String, String>>, written: Option<Timestamp>) -> Self {
        let annotation = |key| annotations?.get(key).cloned();
        let until = annotation(OVERRIDE_UNTIL);
        Self {
            announced: annotation(INTENT).map(|value| (value, written)),
            overrides: until.map(|until| BTreeMap::from([(OVERRIDE_UNTIL.to_owned(), until)])),
        }
    }

    /// Reads the annotations of a stored object, and their age from its managed fields.
    pub fn of_stored(metadata: &ObjectMeta) -> Self {
        let managers = metadata.managed_fields.iter().flatten();
        let written = managers
            .filter(|entry| entry.fields_v1.as_ref().is_some_and(|f| holds(&f.0)))
            .filter_map(|entry| Some(entry.time.as_ref()?.0))
            .max();
        Self::new(metadata.annotations.as_ref(), written)
    }

    /// Reads the annotations of a StatefulSet. Its announcement is as old as the budget says.
    pub fn of_set(set: &StatefulSet, status: Option<&QuorumDisruptionBudgetStatus>) -> Self {
        Self::of_stored(&set.metadata).as_recorded(set, status)
    }

    /// The same, with an announcement that is as old as the budget says. The record of a
    /// StatefulSet with another UID, or of another announcement, says nothing about this one.
    #[must_use]
    pub fn as_recorded(
        self,
        set: &StatefulSet,
        status: Option<&QuorumDisruptionBudgetStatus>,
    ) -> Self {
        let recorded = status.and_then(|status| status.stateful_set.as_ref());
        let recorded = recorded.filter(|known| set.metadata.uid.as_ref() == Some(&known.uid));
        self.since(recorded.and_then(|known| known.announcement.as_deref()))
    }

    /// Reads the annotations of a budget. Its announcement is as old as the budget says.
    pub fn of_budget(budget: &QuorumDisruptionBudget) -> Self {
        let status = budget.status.as_ref();
        let recorded = status.and_then(|status| status.announcement.as_deref());
        Self::of_stored(&budget.metadata).since(recorded)
    }

    fn since(mut self, recorded: Option<&AnnouncementStatus>) -> Self {
        if let (Some((value, Some(written))), Some(known)) = (&mut self.announced, recorded)
            && known.value == *value
            && let Ok(since) = known.since.parse::<Timestamp>()
        {
            *written = since.min(*written);
        }
        self
    }

    /// The announcement as it is, for the record.
    pub fn into_announced(self) -> Option<Announced> {
        self.announced
    }

    /// The override's annotation alone, for [`crate::api::standing`].
    pub fn overrides(&self) -> Option<&BTreeMap<String, String>> {
        self.overrides.as_ref()
    }

    /// The announcement that counts at `now`.
    pub fn announced(&self, now: Timestamp) -> Option<Intent> {
        let (value, written) = self.announced.as_ref()?;
        let age = now.duration_since((*written)?);
        (age <= LIFE).then(|| value.trim().parse().ok()).flatten()
    }

    /// The reason why an announcement that exists does not count at `now`, for the refusal.
    pub fn ignored(&self, now: Timestamp) -> Option<String> {
        let (value, written) = self.announced.as_ref()?;
        if value.trim().parse::<Intent>().is_err() {
            let known = Intent::VARIANTS.join(", ");
            return Some(format!("{INTENT}: {value:?} is none of {known}"));
        }
        match written {
            None => Some(format!(
                "{INTENT} does not count, because metadata.managedFields does not say when it was set"
            )),
            Some(at) if now.duration_since(*at) > LIFE => Some(format!(
                "{INTENT} was set at {at} and counted for 24 h; remove it, and set it again after ten seconds"
            )),
            Some(_) => None,
        }
    }
}

/// Whether these managed fields hold the announcement.
fn holds(fields: &Value) -> bool {
    let path = ["f:metadata", "f:annotations", "f:quorumgate.io/intent"];
    path.iter().try_fold(fields, |f, key| f.get(key)).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn intents(value: &str, owner: &Value) -> Intents {
        let metadata = json!({"annotations": {INTENT: value}, "managedFields": [owner]});
        Intents::of_stored(&serde_json::from_value(metadata).unwrap())
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

    /// Tools write an annotation that is kept in Git again and again, as the same field manager.
    #[test]
    fn an_announcement_is_as_old_as_the_budget_says() {
        let set = |uid: &str, value: &str| {
            let metadata = json!({
                "uid": uid,
                "annotations": {INTENT: value},
                "managedFields": [owner_at("2026-11-21T10:00:00Z")],
            });
            serde_json::from_value::<StatefulSet>(json!({"metadata": metadata})).unwrap()
        };
        let now = at("2026-11-21T10:00:05Z");
        let counts = |set: &StatefulSet, recorded: &Value| {
            let status = json!({"statefulSet": {"uid": "set-1", "announcement": recorded}});
            let status = serde_json::from_value(status).unwrap();
            Intents::of_set(set, Some(&status)).announced(now).is_some()
        };
        let said = set("set-1", "delete");
        let old = json!({"value": "delete", "since": "2026-11-20T10:00:00Z"});
        assert!(!counts(&said, &old), "its entry was renewed");
        assert!(counts(&said, &Value::Null), "it is not on record yet");
        let recent = json!({"value": "delete", "since": "2026-11-20T10:00:06Z"});
        assert!(counts(&said, &recent));
        let unreadable = json!({"value": "delete", "since": "yesterday"});
        assert!(counts(&said, &unreadable));
        assert!(counts(&set("set-2", "delete"), &old), "another StatefulSet");
        assert!(
            counts(&set("set-1", "scale-in"), &old),
            "another announcement"
        );
    }

    #[test]
    fn an_announcement_on_a_budget_is_as_old_as_the_budget_says() {
        let budget = |since: &str| {
            let metadata = json!({
                "name": "etcd",
                "annotations": {INTENT: "bootstrap"},
                "managedFields": [owner_at("2026-11-21T10:00:00Z")],
            });
            let status = json!({"announcement": {"value": "bootstrap", "since": since}});
            let budget = json!({
                "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
                "metadata": metadata, "spec": {"statefulSetName": "etcd"}, "status": status,
            });
            Intents::of_budget(&serde_json::from_value(budget).unwrap())
        };
        let now = at("2026-11-21T10:00:05Z");
        assert_eq!(budget("2026-11-20T10:00:00Z").announced(now), None);
        let recent = budget("2026-11-20T10:00:06Z").announced(now);
        assert_eq!(recent, Some(Intent::Bootstrap));
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
        assert!(
            unknown
                .ignored(now)
                .unwrap()
                .contains("delete, hibernate, scale-in, bootstrap")
        );
    }
}
