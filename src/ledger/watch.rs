//! What this replica has seen, and since when, by its own monotonic clock.
//!
//! No two clocks are ever compared: "for a settle time" always means "one replica watched it for that long". Whatever makes an
//! instant later than it might be (a restart, an old event after a newer one) only makes somebody wait longer.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::page::{BudgetUid, Page};
use super::sets_gone::SetsGone;
use super::webhooks::{Lineage, are_the_same};
use super::wire;
use crate::api::QuorumDisruptionBudget;
use crate::clock::Clock;
use crate::quorum::{ClusterRef, LeaderMove, MemberId, OpenMove, Snapshot};

/// When this replica first saw each ledger, and in it each open permission, each scale-out and each move of leadership.
pub struct Seen {
    clock: Clock,
    clusters: Mutex<BTreeMap<ClusterRef, SeenCluster>>,
    without_budget: Mutex<SetsGone>,
    webhooks: OnceLock<Webhooks>,
    lineage: Mutex<Lineage>,
}

/// Tells by which webhook configurations the API server asks the gate, as a watch last showed them: their UIDs and generations, or nothing where
/// one is missing or lets something pass unasked.
pub(super) type Webhooks = Box<dyn Fn() -> Option<String> + Send + Sync>;

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seen")
            .field("clusters", &self.clusters)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct SeenCluster {
    uid: BudgetUid,
    epoch: i64,
    since: Instant,
    causes: HashMap<i64, Instant>,
    scale_out: Option<(i32, Instant)>,
    leader_move: Option<(LeaderMove, Instant)>,
    leads: Option<(Leads, Instant)>,
    lapsed: Option<Instant>,
    set_gone: Option<(String, Instant)>,
    /// Whether its namespace has been out of force since then.
    ungated: bool,
}

/// Who leads, and in which raft term.
type Leads = (MemberId, Option<u64>);

impl Seen {
    /// Nothing seen yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            clusters: Mutex::default(),
            without_budget: Mutex::default(),
            webhooks: OnceLock::new(),
            lineage: Mutex::default(),
        }
    }

    /// Has somebody tell by which webhook configurations the API server asks. Only the first is heard.
    pub fn hear_of_webhooks(&self, webhooks: Box<dyn Fn() -> Option<String> + Send + Sync>) {
        let _ = self.webhooks.set(webhooks);
    }

    /// Takes note of the webhook configurations as the watch has just shown them: no later look tells which generations there were.
    pub fn note_webhooks(&self) {
        self.with_lineage(|_| ());
    }

    /// Whether the API server asks by other webhook configurations than these, or by none, as the watch showed them last. Where nobody watches
    /// them, nobody can tell.
    pub(super) fn are_others_than(&self, webhooks: &str) -> bool {
        self.webhooks.get().is_some() && !self.with_lineage(|lineage| lineage.holds(webhooks))
    }

    /// Whether the gate may have been out of force between these webhook configurations and those, unseen.
    pub(super) fn may_have_lapsed_between(&self, then: &str, now: &str) -> bool {
        let seen = |lineage: &Lineage| lineage.holds(then) && lineage.holds(now);
        !are_the_same(then, now) && !self.with_lineage(seen)
    }

    /// What is in force is asked for under the lock, so that nobody takes an older state for a newer one.
    fn with_lineage<T>(&self, with: impl FnOnce(&Lineage) -> T) -> T {
        let mut lineage = self.lineage.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tell) = self.webhooks.get() {
            lineage.see(tell());
        }
        with(&lineage)
    }

    /// Takes note that the gate was out of force at this moment, for every ledger of a namespace, or for all of them. Budgets that nobody has seen
    /// yet are new, and cold anyway.
    pub fn note_lapse(&self, namespace: Option<&str>) {
        let now = self.clock.instant();
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        match namespace {
            None => clusters
                .values_mut()
                .for_each(|seen| seen.lapsed = Some(now)),
            Some(namespace) => of_namespace(&mut clusters, namespace).for_each(|seen| {
                seen.lapsed = Some(now);
                seen.ungated = true;
            }),
        }
    }

    /// Takes note that the gate is in force in this namespace. Where it was not, that ends at this moment.
    pub fn note_end_of_lapse(&self, namespace: &str) {
        let now = self.clock.instant();
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        for seen in of_namespace(&mut clusters, namespace) {
            if std::mem::take(&mut seen.ungated) {
                seen.lapsed = Some(now);
            }
        }
    }

    /// Takes note that a disruption passed at this moment that the ledger of this cluster does not hold.
    pub fn note_ungranted(&self, cluster: &ClusterRef) {
        let now = self.clock.instant();
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = clusters.get_mut(cluster) {
            seen.lapsed = Some(now);
        }
    }

    /// Whether this replica saw the gate out of force, or let something pass without a grant, less than so long ago, for this ledger.
    pub(super) fn has_lapsed_within(
        &self,
        cluster: &ClusterRef,
        uid: &BudgetUid,
        time: Duration,
    ) -> bool {
        let now = self.clock.instant();
        let clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let lapsed = clusters
            .get(cluster)
            .filter(|seen| seen.uid == *uid)
            .and_then(|seen| seen.lapsed);
        lapsed.is_some_and(|at| now.saturating_duration_since(at) < time)
    }

    /// Takes note of a budget that was just read, or that a watch just told of.
    pub fn note(&self, budget: &QuorumDisruptionBudget) {
        let now = self.clock.instant();
        let uid = BudgetUid::of(budget);
        let status = budget.status.as_ref();
        let epoch = status.map_or(0, |s| s.ledger.epoch);
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let before = clusters.remove(&budget.cluster());
        let before = before.filter(|seen| seen.uid == uid);
        let first_seen = |seq| {
            let known = before.as_ref().and_then(|b| b.causes.get(&seq).copied());
            (seq, known.unwrap_or(now))
        };
        let open = status.map(|s| s.grants.as_slice()).unwrap_or_default();
        let causes = open.iter().flat_map(|g| &g.causes);
        let scale_out = status.and_then(|s| s.scale_out.as_ref()).map(|grown| {
            let known = before.as_ref().and_then(|b| b.scale_out);
            known
                .filter(|(to, _)| *to == grown.to)
                .unwrap_or((grown.to, now))
        });
        let leader_move = status.and_then(wire::read_leader_move).map(|begun| {
            let known = before.as_ref().and_then(|b| b.leader_move);
            known
                .filter(|(was, _)| *was == begun)
                .unwrap_or((begun, now))
        });
        let seen = SeenCluster {
            leader_move,
            leads: before.as_ref().and_then(|seen| seen.leads),
            lapsed: before.as_ref().and_then(|seen| seen.lapsed),
            set_gone: before.as_ref().and_then(|seen| seen.set_gone.clone()),
            ungated: before.as_ref().is_some_and(|seen| seen.ungated),
            epoch,
            since: before
                .as_ref()
                .filter(|seen| seen.epoch == epoch)
                .map_or(now, |seen| seen.since),
            causes: causes.map(|cause| first_seen(cause.seq)).collect(),
            scale_out,
            uid,
        };
        clusters.insert(budget.cluster(), seen);
    }

    /// Forgets a cluster whose budget is gone.
    pub fn forget(&self, cluster: &ClusterRef) {
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters.remove(cluster);
    }

    /// For how long this replica has seen the ledger since it last turned cold.
    pub fn ledger_for(&self, cluster: &ClusterRef, uid: &BudgetUid, epoch: i64) -> Duration {
        self.elapsed(cluster, uid, |seen| {
            (seen.epoch == epoch).then_some(seen.since)
        })
    }

    /// For how long it has seen a cause with this sequence number.
    pub fn cause_for(&self, cluster: &ClusterRef, uid: &BudgetUid, seq: u64) -> Duration {
        self.elapsed(cluster, uid, |seen| {
            seen.causes.get(&i64::try_from(seq).ok()?).copied()
        })
    }

    /// For how long it has seen that the StatefulSet grew to so many replicas.
    pub fn scale_out_for(&self, cluster: &ClusterRef, uid: &BudgetUid, to: i32) -> Duration {
        self.elapsed(cluster, uid, |seen| {
            let (grown_to, since) = seen.scale_out?;
            (grown_to == to).then_some(since)
        })
    }

    /// Takes note of who leads, as members have just agreed.
    pub fn note_leader(&self, cluster: &ClusterRef, snapshot: &Snapshot) {
        let now = self.clock.instant();
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(seen), Some(leader)) = (clusters.get_mut(cluster), snapshot.leader) {
            let leads = (leader, snapshot.term);
            let known = seen.leads.filter(|(known, _)| *known == leads);
            seen.leads = known.or(Some((leads, now)));
        }
    }

    /// The move of leadership on the page, and for how long it has been seen, and the leader of this snapshot.
    pub fn open_move(&self, page: &Page, snapshot: &Snapshot) -> Option<OpenMove> {
        let begun = page.leader_move()?;
        let of = |since: &dyn Fn(&SeenCluster) -> Option<Instant>| {
            self.elapsed(&page.cluster, &page.uid, since)
        };
        let leads = snapshot.leader.map(|leader| (leader, snapshot.term));
        Some(OpenMove {
            begun,
            recorded_for: of(&|seen| {
                let (known, since) = seen.leader_move?;
                (known == begun).then_some(since)
            }),
            leads_for: of(&|seen| {
                let (known, since) = seen.leads?;
                (Some(known) == leads).then_some(since)
            }),
        })
    }

    /// For how long it has known that the StatefulSet of this UID is gone, which is the one that the budget last saw; to be asked only when it
    /// was just found gone. A UID never comes back.
    pub fn set_gone_for(
        &self,
        cluster: &ClusterRef,
        uid: &BudgetUid,
        stateful_set_uid: &str,
    ) -> Duration {
        let now = self.clock.instant();
        let mut clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = clusters.get_mut(cluster).filter(|seen| seen.uid == *uid);
        let Some(seen) = seen else {
            return Duration::ZERO;
        };
        let known = seen.set_gone.as_ref();
        let known = known.filter(|(known, _)| known == stateful_set_uid);
        let since = known.map_or(now, |(_, since)| *since);
        if since == now {
            seen.set_gone = Some((stateful_set_uid.to_owned(), now));
        }
        now.saturating_duration_since(since)
    }

    /// The same of a StatefulSet that only a pod of this namespace speaks of, because there is no budget.
    pub fn set_without_budget_gone_for(&self, namespace: &str, stateful_set_uid: &str) -> Duration {
        let now = self.clock.instant();
        let sets = &self.without_budget;
        let mut sets = sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.gone_for(namespace, stateful_set_uid, now)
    }

    /// How many StatefulSets without a budget it remembers.
    #[cfg(test)]
    pub fn sets_without_budget(&self) -> usize {
        let sets = &self.without_budget;
        let sets = sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.len()
    }

    fn elapsed(
        &self,
        cluster: &ClusterRef,
        uid: &BudgetUid,
        since: impl FnOnce(&SeenCluster) -> Option<Instant>,
    ) -> Duration {
        let clusters = self.clusters.lock().unwrap_or_else(PoisonError::into_inner);
        clusters
            .get(cluster)
            .filter(|seen| seen.uid == *uid)
            .and_then(since)
            .map_or(Duration::ZERO, |since| {
                self.clock.instant().saturating_duration_since(since)
            })
    }
}

fn of_namespace<'s>(
    clusters: &'s mut BTreeMap<ClusterRef, SeenCluster>,
    namespace: &'s str,
) -> impl Iterator<Item = &'s mut SeenCluster> {
    clusters
        .range_mut(ClusterRef::new(namespace, "")..)
        .take_while(move |(cluster, _)| cluster.namespace == namespace)
        .map(|(_, seen)| seen)
}
