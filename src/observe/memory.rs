//! The memory of each cluster from one look to the next, which this replica alone has.
//!
//! - A *hint* says which objects the last reading needed, so that the next one can request all of
//!   them at once. No decision is based on a hint.
//! - A *time limit* says how quickly the members answered, and so how long the next round waits for
//!   them.
//! - A *stopwatch* says for how long quorum has been lost without a gap, and for how long each
//!   learner has made no progress. Rule 11 and rule 13 of the decision need these times. They come
//!   from the looks of the reconcile loop, never from admission.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::find::Find;
use super::view::Ages;
use super::ways::credentials::Credentials;
use crate::api::OwnerStatus;
use crate::etcd::{Endpoint, TimeLimit};
use crate::quorum::evidence::Round;
use crate::quorum::{ClusterRef, Condition, MemberId, PodName, PodUid, Role, Snapshot};

/// The time after which a lost quorum is believed. It is longer than an election takes with any
/// usual election timeout.
const CONFIRMED_AFTER: Duration = Duration::from_secs(7);

/// The longest time between two looks of which the first still says something about the time after
/// it.
const GAP: Duration = Duration::from_secs(10);

/// The memory of every cluster that was looked at.
#[derive(Default)]
pub(super) struct Memory(Mutex<HashMap<ClusterRef, Remembered>>);

/// The memory of one cluster.
#[derive(Default)]
struct Remembered {
    hint: Arc<Hint>,
    /// Whether each member of etcd had a pod of the cluster at the last look.
    all_here: bool,
    /// The time limit, and what it began with.
    limit: Option<(Duration, Arc<TimeLimit>)>,
    stopwatch: Option<Stopwatch>,
}

/// The objects that the next reading will probably need.
#[derive(Debug, Default)]
pub(super) struct Hint {
    pub(super) selector: Option<String>,
    /// The names of the claims that each pod uses, each once. Lists, since maps of so few names
    /// take three times the memory.
    pub(super) claims: Vec<(PodName, Box<[String]>)>,
    pub(super) owners: Vec<OwnerStatus>,
    pub(super) tls: Option<Credentials>,
    pub(super) endpoints: Vec<Endpoint>,
}

impl Hint {
    /// The names of the claims that a pod uses.
    pub(super) fn claims_of(&self, pod: &PodName) -> &[String] {
        let claims = self.claims.iter().find(|(name, _)| name == pod);
        claims.map(|(_, claims)| &**claims).unwrap_or_default()
    }
}

/// The times of one cluster.
#[derive(Debug)]
struct Stopwatch {
    /// The beginning of the last look.
    looked: Instant,
    lost_since: Option<Instant>,
    /// Since when these pods have been mute, all members of the cluster.
    mute_since: Option<(Instant, BTreeSet<PodUid>)>,
    learners: HashMap<MemberId, Progress>,
}

/// The applied index of a learner, and since when it has not grown.
#[derive(Debug, Clone, Copy)]
struct Progress {
    applied: Option<u64>,
    since: Instant,
}

impl Memory {
    /// The hint for the next reading of a cluster; an empty one before the first.
    pub(super) fn hint(&self, cluster: &ClusterRef) -> Arc<Hint> {
        let remembered = self.lock();
        let known = remembered.get(cluster).map(|of| Arc::clone(&of.hint));
        known.unwrap_or_default()
    }

    pub(super) fn keep_hint(&self, cluster: &ClusterRef, hint: Hint) {
        self.lock().entry(cluster.clone()).or_default().hint = Arc::new(hint);
    }

    /// How the pods of a cluster are best found: by their names, unless some member had no pod at
    /// the last look. Then a list is needed in the end.
    pub(super) fn find(&self, cluster: &ClusterRef) -> Find {
        match self.lock().get(cluster) {
            Some(of) if of.all_here => Find::Named,
            Some(_) | None => Find::Listed,
        }
    }

    pub(super) fn keep_all_here(&self, cluster: &ClusterRef, all_here: bool) {
        self.lock().entry(cluster.clone()).or_default().all_here = all_here;
    }

    /// The time limit of a cluster whose rounds take at least `base`.
    pub(super) fn time_limit(&self, cluster: &ClusterRef, base: Duration) -> Arc<TimeLimit> {
        let mut remembered = self.lock();
        let known = &mut remembered.entry(cluster.clone()).or_default().limit;
        let (_, limit) = match known.take() {
            Some(known) if known.0 == base => known,
            _ => (base, Arc::new(TimeLimit::new(base))),
        };
        *known = Some((base, Arc::clone(&limit)));
        limit
    }

    /// The times until now. A stopwatch that nobody looked at for [`GAP`] says nothing.
    pub(super) fn ages(&self, cluster: &ClusterRef, now: Instant) -> Ages {
        let remembered = self.lock();
        let stopwatch = remembered.get(cluster).and_then(|of| of.stopwatch.as_ref());
        let fresh = stopwatch.filter(|watch| !watch.is_stale(now));
        fresh.map(Stopwatch::ages).unwrap_or_default()
    }

    /// Takes in a look of the reconcile loop. `asked` is when its round began: the round shows what
    /// was true no earlier than that.
    pub(super) fn note(&self, snapshot: &Snapshot, round: &Round, asked: Instant) {
        let mut remembered = self.lock();
        let stopwatch = &mut remembered
            .entry(snapshot.cluster.clone())
            .or_default()
            .stopwatch;
        let before = stopwatch.take().filter(|watch| !watch.is_stale(asked));
        *stopwatch = Some(Stopwatch::after(before.as_ref(), snapshot, round, asked));
    }

    /// Forgets everything about a cluster that is no longer guarded.
    pub(super) fn forget(&self, cluster: &ClusterRef) {
        self.lock().remove(cluster);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClusterRef, Remembered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stopwatch {
    fn after(before: Option<&Self>, snapshot: &Snapshot, round: &Round, asked: Instant) -> Self {
        let is_lost = snapshot.quorum_lost && !snapshot.proves_quorum();
        let lost_before = before.and_then(|watch| watch.lost_since);
        let pods: BTreeSet<PodUid> = snapshot.pods.iter().map(|pod| pod.uid.clone()).collect();
        let mute_before = before.and_then(|watch| watch.mute_since.as_ref());
        let mute_since = mute_before.filter(|(_, mute)| *mute == pods);
        let mute_since = mute_since.map_or(asked, |(since, _)| *since);
        let learners = snapshot
            .members
            .iter()
            .filter(|member| member.role == Role::Learner)
            .filter_map(|member| {
                let id = member.id?;
                let caught_up = member.condition == Condition::Learning && member.lag == Some(0);
                let applied = applied(round, id);
                let known = before.and_then(|watch| watch.learners.get(&id));
                let stands = |known: &&Progress| !caught_up && applied <= known.applied;
                let progress = known.filter(stands).copied().unwrap_or(Progress {
                    applied,
                    since: asked,
                });
                Some((id, progress))
            })
            .collect();
        Self {
            looked: asked,
            lost_since: is_lost.then_some(lost_before.unwrap_or(asked)),
            mute_since: snapshot.is_mute.then_some((mute_since, pods)),
            learners,
        }
    }

    /// Whether nobody has looked for so long that what was seen before proves nothing.
    fn is_stale(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.looked) >= GAP
    }

    fn ages(&self) -> Ages {
        let until_looked = |since: Instant| self.looked.saturating_duration_since(since);
        let lost_for = self.lost_since.map(until_looked);
        let learners = self.learners.iter();
        Ages {
            quorum_lost_for: lost_for.filter(|lost| *lost >= CONFIRMED_AFTER),
            mute_for: self
                .mute_since
                .as_ref()
                .map(|(since, _)| until_looked(*since)),
            learners_stuck_for: learners
                .map(|(id, progress)| (*id, until_looked(progress.since)))
                .collect(),
        }
    }
}

/// The applied index that a member answered with.
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
