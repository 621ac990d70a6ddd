//! StatefulSets that are gone and that no budget remembers. Only pods name them, as their owners.
//!
//! Anybody who may change a pod can have it name any owner, any number of times. So the number of
//! remembered StatefulSets is bounded, in each namespace by itself.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The time after which a StatefulSet is forgotten: long after the garbage collector has finished
/// with its pods.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The number of StatefulSets that are remembered of one namespace: more than it has clusters.
const KEPT: usize = 512;

/// The length of the longest UID that is taken for one. UIDs by API servers have 36 characters.
const LONGEST_UID: usize = 64;

/// The moments since which StatefulSets have been known to be gone, by namespace and UID.
#[derive(Debug, Default)]
pub(super) struct SetsGone {
    namespaces: HashMap<String, HashMap<String, Instant>>,
}

impl SetsGone {
    /// How long a StatefulSet has been known to be gone.
    pub(super) fn gone_for(&mut self, namespace: &str, uid: &str, now: Instant) -> Duration {
        if uid.len() > LONGEST_UID {
            return Duration::ZERO;
        }
        if !self.namespaces.contains_key(namespace) {
            // Namespaces go too.
            self.namespaces
                .retain(|_, sets| sets.values().any(|since| is_fresh(*since, now)));
        }
        let sets = self.namespaces.entry(namespace.to_owned()).or_default();
        if let Some(since) = sets.get(uid) {
            return now.saturating_duration_since(*since);
        }
        sets.retain(|_, since| is_fresh(*since, now));
        if sets.len() >= KEPT {
            let oldest = sets.iter().min_by_key(|(_, since)| **since);
            let oldest = oldest.map(|(uid, _)| uid.clone()).unwrap_or_default();
            sets.remove(&oldest);
        }
        sets.insert(uid.to_owned(), now);
        Duration::ZERO
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.namespaces.values().map(HashMap::len).sum()
    }
}

fn is_fresh(since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(since) < FORGET_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn owners_that_pods_make_up_without_a_budget_are_remembered_up_to_a_bound() {
        let (mut sets, now) = (SetsGone::default(), Instant::now());
        assert_eq!(sets.gone_for("other", "real", now), Duration::ZERO);
        for made_up in 0..3 * KEPT {
            let age = sets.gone_for("db", &made_up.to_string(), now);
            assert_eq!(age, Duration::ZERO);
        }
        let long = "u".repeat(LONGEST_UID + 1);
        for at in [now, now + MINUTE] {
            assert_eq!(sets.gone_for("db", &long, at), Duration::ZERO);
        }
        assert_eq!(sets.len(), KEPT + 1);
        let elsewhere = sets.gone_for("other", "real", now + MINUTE);
        assert_eq!(
            elsewhere, MINUTE,
            "a crowd takes no other namespace's place"
        );
    }

    #[test]
    fn a_set_is_forgotten_after_a_day_and_its_namespace_with_it() {
        let (mut sets, now) = (SetsGone::default(), Instant::now());
        sets.gone_for("db", "real", now);
        assert_eq!(sets.gone_for("db", "real", now + MINUTE), MINUTE);
        sets.gone_for("other", "real", now + FORGET_AFTER);
        assert_eq!(sets.len(), 1);
    }
}
