//! The rollouts of all clusters, of which only so many go on at one time (`--max-rollouts`).
//!
//! The leader alone rolls out, so it alone counts. A new leader knows from the budgets which
//! rollouts have begun.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::api::{QuorumDisruptionBudget, RolloutStatus};
use crate::plan::{WaitingOn, next_cluster};
use crate::quorum::ClusterRef;

/// The pause between two questions of a cluster that is among the next.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// By how much that of any other is longer, for each that waits: their looks are many.
const LONGER: Duration = Duration::from_millis(100);
/// The time without a question after which a cluster has lost its place.
const FORGOTTEN: Duration = Duration::from_secs(1800);

/// The rollouts that are under way, and those that wait.
#[derive(Debug)]
pub(super) struct Fleet {
    most: Option<NonZeroUsize>,
    turns: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    /// Whether the rollouts that another leader began are among these.
    counted: bool,
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
        let mut turns = self.lock();
        if !turns.counted {
            turns.counted = true;
            turns.under_way.extend(begun());
        }
        if turns.under_way.contains(cluster) {
            return None;
        }
        turns.note(cluster, now);
        if turns.under_way.len() < most && turns.next() == Some(cluster) {
            turns.under_way.insert(cluster.clone());
            turns.waiting.retain(|(other, _)| other != cluster);
            return None;
        }
        let before = turns
            .waiting
            .iter()
            .take_while(|(other, _)| other != cluster);
        let is_near = before.count() < most || turns.next() == Some(cluster);
        let waiting = u32::try_from(turns.waiting.len()).unwrap_or(u32::MAX);
        let longer = LONGER.saturating_mul(if is_near { 0 } else { waiting });
        Some(WaitingOn::RolloutLimit {
            most,
            again: ASK_AGAIN + longer,
        })
    }

    /// Takes back the turn of a cluster that has nothing to roll out, or waits for something else.
    pub(super) fn leave(&self, cluster: &ClusterRef) {
        if self.most.is_some() {
            let mut turns = self.lock();
            turns.under_way.remove(cluster);
            turns.waiting.retain(|(other, _)| other != cluster);
        }
    }

    /// Forgets all, since another replica leads.
    pub(super) fn stand_down(&self) {
        if self.most.is_some() {
            *self.lock() = Turns::default();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn next(&self) -> Option<&ClusterRef> {
        next_cluster(&self.under_way, self.waiting.iter().map(|(waits, _)| waits))
    }
}

/// Whether a rollout of this budget is under way and has taken a member that served, or is about to
/// take one, and does not wait for what gives way to others.
pub(super) fn has_begun(budget: &QuorumDisruptionBudget) -> bool {
    let Some(status) = &budget.status else {
        return false;
    };
    // The judge records the step before the pod goes, and the report comes after.
    let mut causes = status.grants.iter().flat_map(|grant| &grant.causes);
    let is_taking = causes.any(|cause| cause.rollout == Some(true));
    let rollout = status.rollout.as_deref();
    is_taking || rollout.is_some_and(|rollout| is_under_way(rollout) && rollout.took_serving)
}

/// Whether a rollout is not complete, and does not wait for what gives way to others.
pub(super) fn is_under_way(rollout: &RolloutStatus) -> bool {
    let waiting = rollout.waiting_on.as_ref();
    let gives_way = waiting.is_some_and(|waits| WaitingOn::gives_way(&waits.reason));
    rollout.completion_time.is_none() && !gives_way
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use serde_json::{Value, json};

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
            most: 2,
            again: ASK_AGAIN,
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

    /// A loop asks at least once in the pause that it was given.
    #[test]
    fn of_many_that_wait_the_next_ask_often_and_the_others_seldom() {
        let (fleet, now) = (limited(1), Instant::now());
        let again = |n: usize| match fleet.ask(&of("db", &n.to_string()), now, Vec::new) {
            Some(WaitingOn::RolloutLimit { again, .. }) => again,
            other => panic!("{other:?}"),
        };
        assert_eq!(fleet.ask(&of("db", "first"), now, Vec::new), None);
        let all: Vec<Duration> = (0..10_000).map(again).collect();
        assert_eq!(all.first(), Some(&ASK_AGAIN));
        let longest = all.iter().max().copied().unwrap_or_default();
        assert!(
            longest > 900 * Duration::from_secs(1) && longest < FORGOTTEN,
            "{longest:?}"
        );
    }

    #[test]
    fn a_rollout_has_begun_with_the_first_member_that_served_unless_it_gives_way() {
        let budget = |waits: Option<&str>, took: bool, ended: Option<&str>, grants: &Value| {
            let waits = waits.map(|reason| json!({"reason": reason, "message": ""}));
            let rollout = json!({
                "target": "new", "updated": 1, "targets": 3, "completionTime": ended,
                "waitingOn": waits, "tookServing": took,
            });
            let budget = json!({
                "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
                "metadata": {"name": "etcd"}, "spec": {},
                "status": {"rollout": rollout, "grants": grants},
            });
            has_begun(&serde_json::from_value(budget).unwrap())
        };
        let none = json!([]);
        assert!(
            budget(None, true, None, &none) && budget(Some("UpdatedMembers"), true, None, &none)
        );
        assert!(
            !budget(None, false, None, &none),
            "only a broken member went"
        );
        assert!(!budget(None, true, Some("2026-01-01T00:02:00Z"), &none));
        assert!(!budget(Some("Paused"), true, None, &none));
    }
}
