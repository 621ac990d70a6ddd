//! The rollouts of all clusters, of which only so many go on at one time (`--max-rollouts`).
//!
//! The leader alone rolls out, so it alone counts. A new leader knows from the budgets which
//! rollouts have begun.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::{QuorumDisruptionBudget, RolloutStatus};
use crate::plan::{WaitingOn, next_cluster};
use crate::quorum::ClusterRef;

/// The pause between two questions of a cluster that waits for its turn.
pub(super) const ASK_AGAIN: Duration = Duration::from_secs(10);
/// The time without a question after which a cluster has lost its place.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// The rollouts that are under way, and those that wait.
#[derive(Debug)]
pub(super) struct Fleet {
    most: Option<NonZeroUsize>,
    turns: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    under_way: BTreeSet<ClusterRef>,
    /// In the order in which they came, each with the time of its last question.
    waiting: Vec<(ClusterRef, Instant)>,
}

impl Fleet {
    /// No rollouts yet, and at most so many at one time.
    pub(super) fn new(most: Option<NonZeroUsize>) -> Self {
        let turns = Mutex::default();
        Self { most, turns }
    }

    /// Asks for the turn of a cluster, whose rollout is to take members that serve. Returns the
    /// reason if it has to wait. `begun` says which rollouts have begun, by the budgets.
    pub(super) fn ask(
        &self,
        cluster: &ClusterRef,
        now: Instant,
        begun: impl FnOnce() -> Vec<ClusterRef>,
    ) -> Option<WaitingOn> {
        let most = self.most?.get();
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if turns.under_way.contains(cluster) {
            return None;
        }
        turns.note(cluster, now);
        if turns.under_way.len() < most {
            // Whatever another leader began goes on first.
            turns.under_way.extend(begun());
            if turns.is_next(cluster, most) {
                turns.under_way.insert(cluster.clone());
                turns.waiting.retain(|(other, _)| other != cluster);
                return None;
            }
        }
        Some(WaitingOn::RolloutLimit {
            under_way: turns.under_way.len(),
            most,
            waiting: turns.waiting.len(),
        })
    }

    /// Takes back the turn of a cluster that has nothing to roll out, or waits for something else.
    pub(super) fn leave(&self, cluster: &ClusterRef) {
        if self.most.is_some() {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.under_way.remove(cluster);
            turns.waiting.retain(|(other, _)| other != cluster);
        }
    }
}

impl Turns {
    /// Notes a question, and forgets those that have asked no more.
    fn note(&mut self, cluster: &ClusterRef, now: Instant) {
        match self.waiting.iter_mut().find(|(other, _)| other == cluster) {
            Some((_, asked)) => *asked = now,
            None => self.waiting.push((cluster.clone(), now)),
        }
        self.waiting
            .retain(|(_, asked)| now.saturating_duration_since(*asked) < FORGOTTEN);
    }

    fn is_next(&self, cluster: &ClusterRef, most: usize) -> bool {
        let waiting = self.waiting.iter().map(|(waits, _)| waits.clone());
        let waiting: Vec<ClusterRef> = waiting.collect();
        self.under_way.contains(cluster)
            || self.under_way.len() < most
                && next_cluster(&self.under_way, &waiting) == Some(cluster)
    }
}

/// Whether a rollout has begun, by its budget, and is not waiting for what gives way to others.
pub(super) fn has_begun(budget: &QuorumDisruptionBudget) -> bool {
    let rollout = budget
        .status
        .as_ref()
        .and_then(|status| status.rollout.as_deref());
    rollout.is_some_and(|rollout: &RolloutStatus| {
        let stepped = rollout
            .last_step
            .as_ref()
            .and_then(|step| step.time.as_ref());
        let began = rollout.start_time.as_ref();
        let waiting = rollout.waiting_on.as_ref();
        rollout.completion_time.is_none()
            && began
                .zip(stepped)
                .is_some_and(|(began, stepped)| stepped.0 >= began.0)
            && !waiting.is_some_and(|waiting| WaitingOn::gives_way(&waiting.reason))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    fn of(namespace: &str, name: &str) -> ClusterRef {
        ClusterRef::new(namespace, name)
    }

    fn limited(most: usize) -> Fleet {
        Fleet::new(NonZeroUsize::new(most))
    }

    #[test]
    fn so_many_rollouts_go_on_at_one_time_and_the_next_begins_when_one_ends() {
        let (fleet, now) = (limited(2), Instant::now());
        let ask = |name: &str| fleet.ask(&of("db", name), now, Vec::new);
        assert_eq!((ask("a"), ask("b")), (None, None));
        let full = WaitingOn::RolloutLimit {
            under_way: 2,
            most: 2,
            waiting: 1,
        };
        assert_eq!(ask("c"), Some(full));
        assert_eq!((ask("a"), ask("b")), (None, None), "they go on");
        assert!(ask("d").is_some());
        fleet.leave(&of("db", "a"));
        assert!(ask("d").is_some(), "c came before");
        assert_eq!((ask("c"), ask("d").is_some()), (None, true));
    }

    #[test]
    fn without_a_limit_every_rollout_goes_on() {
        let fleet = Fleet::new(None);
        for n in 0..1000 {
            let begun = || unreachable!("nobody counts");
            assert_eq!(
                fleet.ask(&of("db", &n.to_string()), Instant::now(), begun),
                None
            );
        }
    }

    #[test]
    fn a_cluster_that_asks_no_more_loses_its_place() {
        let (fleet, start) = (limited(1), Instant::now());
        let ask = |name: &str, after: Duration| fleet.ask(&of("db", name), start + after, Vec::new);
        assert_eq!(ask("a", Duration::ZERO), None);
        assert!(ask("b", Duration::ZERO).is_some());
        assert!(ask("c", ASK_AGAIN).is_some());
        fleet.leave(&of("db", "a"));
        assert!(ask("c", ASK_AGAIN * 2).is_some(), "it is the turn of b");
        assert_eq!(ask("c", FORGOTTEN + ASK_AGAIN), None);
    }

    /// The order in which 500 clusters of 5 namespaces begin that change at once, most of them of
    /// one namespace.
    #[test]
    fn of_many_clusters_none_starves_and_no_namespace_keeps_another_waiting() {
        let (fleet, now) = (limited(5), Instant::now());
        let namespace = |n: usize| {
            if n < 460 {
                "big".to_owned()
            } else {
                format!("small-{}", n % 4)
            }
        };
        let mut left: Vec<ClusterRef> = (0..500)
            .map(|n| of(&namespace(n), &n.to_string()))
            .collect();
        let (mut under_way, mut begun) = (VecDeque::new(), Vec::new());
        while begun.len() < 500 {
            // Whoever asked before its turn came asks again.
            for _ in 0..2 {
                left.retain(|cluster| {
                    let waits = fleet.ask(cluster, now, Vec::new).is_some();
                    if !waits {
                        under_way.push_back(cluster.clone());
                    }
                    waits
                });
            }
            assert!(under_way.len() <= 5, "{under_way:?}");
            let ended: ClusterRef = under_way.pop_front().expect("nobody's turn");
            fleet.leave(&ended);
            begun.push(ended);
        }
        let last_small = begun.iter().rposition(|c| c.namespace != "big").unwrap();
        assert!(
            last_small < 100,
            "the last of a small namespace was number {last_small}"
        );
    }

    #[test]
    fn a_new_leader_goes_on_with_what_had_begun_before_anything_else() {
        let (fleet, now) = (limited(1), Instant::now());
        let begun = || vec![of("db", "b")];
        assert!(fleet.ask(&of("db", "a"), now, begun).is_some());
        assert_eq!(fleet.ask(&of("db", "b"), now, begun), None);
        fleet.leave(&of("db", "b"));
        assert_eq!(fleet.ask(&of("db", "a"), now, Vec::new), None);
    }

    #[test]
    fn a_rollout_has_begun_with_its_first_step_unless_it_gives_way() {
        let budget = |waits: Option<&str>, stepped: &str, ended: Option<&str>| {
            let rollout = serde_json::json!({
                "target": "new", "updated": 1, "targets": 3,
                "startTime": "2026-01-01T00:01:00Z", "completionTime": ended,
                "waitingOn": waits.map(|reason| serde_json::json!({"reason": reason, "message": ""})),
                "lastStep": {"pod": "etcd-2", "action": "Delete", "because": "", "time": stepped},
            });
            let budget = serde_json::json!({
                "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
                "metadata": {"name": "etcd"}, "spec": {}, "status": {"rollout": rollout},
            });
            has_begun(&serde_json::from_value(budget).unwrap())
        };
        let (before, after) = ("2026-01-01T00:00:00Z", "2026-01-01T00:02:00Z");
        assert!(budget(None, after, None) && budget(Some("UpdatedMembers"), after, None));
        assert!(
            !budget(None, before, None),
            "that step was of an earlier rollout"
        );
        assert!(!budget(None, after, Some(after)));
        assert!(!budget(Some("Paused"), after, None));
    }
}
