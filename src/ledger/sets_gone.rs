//! StatefulSets that are gone, where no budget remembers them: all that is known of them is what pods say.
//!
//! Whoever may change a pod may have it name any owner, as often as they like. So what is remembered is bounded, for each namespace by itself.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// Long after any garbage collector has finished with the pods of a StatefulSet that is gone.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 3600);

/// How many of one namespace are remembered: more than there are clusters in one.
const KEPT: usize = 512;

/// API servers give UIDs of 36 characters. No StatefulSet ever had one that is longer than this.
const LONGEST_UID: usize = 64;

/// Since when each has been known to be gone, by namespace and UID.
#[derive(Debug, Default)]
pub(super) struct SetsGone {
    namespaces: HashMap<String, HashMap<String, Instant>>,
}

impl SetsGone {
    /// For how long this one has been known to be gone.
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
