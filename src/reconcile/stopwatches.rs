//! Facts about time that rules need, each replica by its own clock: for how long quorum has been lost without a gap, and for
//! how long each learner has made no progress. They come from the observers' rounds, never from admission.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::observe::Ages;
use crate::quorum::evidence::Round;
use crate::quorum::{ClusterRef, Condition, MemberId, Role, Snapshot};

/// A lost quorum is believed once it was seen for so long: longer than an election takes with any usual election timeout.
const CONFIRMED_AFTER: Duration = Duration::from_secs(7);

/// Nobody looked for longer than this: whatever was seen before proves nothing about the time in between, nor about now.
const GAP: Duration = Duration::from_secs(10);

/// The stopwatches of every cluster.
#[derive(Debug, Default)]
pub struct Stopwatches(Mutex<HashMap<ClusterRef, Watch>>);

#[derive(Debug)]
struct Watch {
    looked: Instant,
    lost_since: Option<Instant>,
    learners: HashMap<MemberId, Progress>,
}

/// How far a learner had come, and since when.
#[derive(Debug, Clone, Copy)]
struct Progress {
    applied: Option<u64>,
    since: Instant,
}

impl Stopwatches {
    /// What has been watched of a cluster until now.
    pub fn ages(&self, cluster: &ClusterRef, now: Instant) -> Ages {
        let watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |watch: &&Watch| now.saturating_duration_since(watch.looked) < GAP;
        let Some(watch) = watches.get(cluster).filter(fresh) else {
            return Ages::default();
        };
        let until_looked = |since: Instant| watch.looked.saturating_duration_since(since);
        let lost_for = watch.lost_since.map(until_looked);
        let stuck = watch.learners.iter();
        Ages {
            quorum_lost_for: lost_for.filter(|lost| *lost >= CONFIRMED_AFTER),
            learners_stuck_for: stuck
                .map(|(id, progress)| (*id, until_looked(progress.since)))
                .collect(),
        }
    }

    /// Takes in what a round showed. `asked` is when it began: what it found was true no later than that.
    pub(super) fn note(&self, snapshot: &Snapshot, round: &Round, asked: Instant) {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = watches.remove(&snapshot.cluster);
        let without_gap = |watch: &Watch| asked.saturating_duration_since(watch.looked) < GAP;
        let before = before.filter(without_gap);
        let is_lost = snapshot.quorum_lost && !snapshot.proves_quorum();
        let lost_before = before.as_ref().and_then(|watch| watch.lost_since);
        let learners = snapshot
            .members
            .iter()
            .filter(|member| member.role == Role::Learner)
            .filter_map(|member| {
                let id = member.id?;
                let caught_up = member.condition == Condition::Learning && member.lag == Some(0);
                let applied = applied(round, id);
                let known = before.as_ref().and_then(|watch| watch.learners.get(&id));
                let stands = |known: &&Progress| !caught_up && applied <= known.applied;
                let progress = known.filter(stands).copied().unwrap_or(Progress {
                    applied,
                    since: asked,
                });
                Some((id, progress))
            })
            .collect();
        let watch = Watch {
            looked: asked,
            lost_since: is_lost.then_some(lost_before.unwrap_or(asked)),
            learners,
        };
        watches.insert(snapshot.cluster.clone(), watch);
    }

    /// Forgets a cluster that is no longer guarded.
    pub(super) fn forget(&self, cluster: &ClusterRef) {
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watches.remove(cluster);
    }
}

fn applied(round: &Round, id: MemberId) -> Option<u64> {
    let answered = round
        .probes
        .iter()
        .filter_map(|probe| probe.status.as_ref().ok());
    let mut own = answered.filter(|status| status.member_id == id);
    own.next().map(|status| status.applied_index)
}

#[cfg(test)]
mod tests;
