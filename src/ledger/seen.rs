//! The things that this replica has seen, and since when, by its own monotonic clock.
//!
//! Clocks of two replicas are never compared: "for a settle time" always means that one replica
//! watched for that long. A restart, or an old event after a newer one, only makes a moment later,
//! so that somebody waits longer.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::page::{BudgetUid, Page};
use super::sets_gone::SetsGone;
use super::wire;
use crate::api::QuorumDisruptionBudget;
use crate::clock::Clock;
use crate::quorum::{
    ClusterRef, LeaderMove, MemberId, OpenMove, Snapshot, Trust, TrustWatch, WebhookHistory,
};

/// The moments at which this replica first saw each ledger, and in it each open grant, each
/// scale-out and each move of leadership.
pub struct Seen {
    clock: Clock,
    start: Instant,
    clusters: Mutex<Clusters>,
    without_budget: Mutex<SetsGone>,
    webhooks: OnceLock<WebhookSource>,
    webhook_history: Mutex<WebhookHistory>,
}

/// Returns the identity of the webhook configurations by which the API server asks the gate, as a
/// watch last showed them: their UIDs and generations. `None` where one is missing or lets
/// something pass unasked.
type WebhookSource = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// A moment, as the time since this replica started.
type Moment = Duration;

type Clusters = BTreeMap<ClusterRef, SeenCluster>;

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
    trust: TrustWatch,
    causes: HashMap<i64, Moment>,
    scale_out: Option<(i32, Moment)>,
    leader_move: Option<(LeaderMove, Moment)>,
    leads: Option<(Leads, Moment)>,
    set_gone: Option<(String, Moment)>,
}

/// The leader, and its raft term.
type Leads = (MemberId, Option<u64>);

impl Seen {
    /// The record of a replica that has seen nothing yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            start: clock.instant(),
            clock,
            clusters: Mutex::default(),
            without_budget: Mutex::default(),
            webhooks: OnceLock::new(),
            webhook_history: Mutex::default(),
        }
    }

    fn now(&self) -> Moment {
        self.clock.instant().saturating_duration_since(self.start)
    }

    fn clusters(&self) -> MutexGuard<'_, Clusters> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets where the webhook configurations in force are read from. Only the first call counts.
    pub fn watch_webhooks(&self, source: Box<dyn Fn() -> Option<String> + Send + Sync>) {
        let _ = self.webhooks.set(source);
    }

    /// Notes the webhook configurations as the watch has just shown them. A later look does not
    /// tell which generations there were.
    pub fn note_webhooks(&self) {
        drop(self.history());
    }

    /// The webhook configurations that this replica has seen in force.
    pub fn webhook_history(&self) -> WebhookHistory {
        self.history().clone()
    }

    /// The history with the present configurations. They are read under the lock, so that an older
    /// state is never taken for a newer one.
    fn history(&self) -> MutexGuard<'_, WebhookHistory> {
        let history = self.webhook_history.lock();
        let mut history = history.unwrap_or_else(PoisonError::into_inner);
        if let Some(webhooks) = self.webhooks.get() {
            history.note(webhooks());
        }
        history
    }

    /// Whether the ledger on this page is trusted, by what is recorded and by what this replica has
    /// seen.
    pub(super) fn trust(&self, page: &Page, settle_time: Duration) -> Trust {
        let (record, now) = (page.trust_record(), self.now());
        let clusters = self.clusters();
        let seen = clusters
            .get(&page.cluster)
            .filter(|seen| seen.uid == page.uid);
        let watch = seen.map_or(TrustWatch::new(record.epoch, now), |seen| seen.trust);
        drop(clusters);
        record.trust(&watch, &self.history(), now, settle_time)
    }

    /// Notes that the API server asks the gate about no namespace at this moment. Budgets that
    /// this replica has not seen yet are new to it, and so not trusted anyway.
    pub fn note_outage(&self) {
        let now = self.now();
        for seen in self.clusters().values_mut() {
            seen.trust.note_ungranted(now);
        }
    }

    /// Notes whether a namespace is under the gate at this moment.
    pub fn note_namespace(&self, namespace: &str, gated: bool) {
        let now = self.now();
        for (_, seen) in self
            .clusters()
            .range_mut(ClusterRef::new(namespace, "")..)
            .take_while(|(cluster, _)| cluster.namespace == namespace)
        {
            seen.trust.note_namespace(gated, now);
        }
    }

    /// Notes that a disruption passed at this moment that the ledger of this cluster does not hold.
    pub fn note_ungranted(&self, cluster: &ClusterRef) {
        let now = self.now();
        if let Some(seen) = self.clusters().get_mut(cluster) {
            seen.trust.note_ungranted(now);
        }
    }

    /// Notes a budget that was just read, or that a watch just showed.
    pub fn note(&self, budget: &QuorumDisruptionBudget) {
        let now = self.now();
        let uid = BudgetUid::from_budget(budget);
        let status = budget.status.as_ref();
        let epoch = status.map_or(0, |s| s.ledger.epoch);
        let mut clusters = self.clusters();
        let before = clusters.remove(&budget.cluster());
        let before = before.filter(|seen| seen.uid == uid);
        let first_seen = |seq| {
            let known = before.as_ref().and_then(|b| b.causes.get(&seq).copied());
            (seq, known.unwrap_or(now))
        };
        let open = status.map(|s| s.grants.as_slice()).unwrap_or_default();
        let causes = open.iter().flat_map(|g| &g.causes);
        let causes = causes.map(|cause| first_seen(cause.seq)).collect();
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
        let known = before.as_ref().map(|seen| seen.trust);
        let mut trust = known.unwrap_or_else(|| TrustWatch::new(epoch, now));
        trust.note_epoch(epoch, now);
        let seen = SeenCluster {
            uid,
            trust,
            causes,
            scale_out,
            leader_move,
            leads: before.as_ref().and_then(|seen| seen.leads),
            set_gone: before.and_then(|seen| seen.set_gone),
        };
        clusters.insert(budget.cluster(), seen);
    }

    /// Forgets a cluster whose budget is gone.
    pub fn forget(&self, cluster: &ClusterRef) {
        self.clusters().remove(cluster);
    }

    /// How long this replica has seen a cause with this sequence number.
    pub fn cause_for(&self, cluster: &ClusterRef, uid: &BudgetUid, seq: u64) -> Duration {
        self.elapsed(cluster, uid, |seen| {
            seen.causes.get(&i64::try_from(seq).ok()?).copied()
        })
    }

    /// How long this replica has seen that the StatefulSet grew to so many replicas.
    pub fn scale_out_for(&self, cluster: &ClusterRef, uid: &BudgetUid, to: i32) -> Duration {
        self.elapsed(cluster, uid, |seen| {
            let (grown_to, since) = seen.scale_out?;
            (grown_to == to).then_some(since)
        })
    }

    /// Notes the leader on which members have just agreed.
    pub fn note_leader(&self, cluster: &ClusterRef, snapshot: &Snapshot) {
        let now = self.now();
        let mut clusters = self.clusters();
        if let (Some(seen), Some(leader)) = (clusters.get_mut(cluster), snapshot.leader) {
            let leads = (leader, snapshot.term);
            let known = seen.leads.filter(|(known, _)| *known == leads);
            seen.leads = known.or(Some((leads, now)));
        }
    }

    /// The move of leadership on the page, how long this replica has seen it, and how long the
    /// leader of this snapshot.
    pub fn open_move(&self, page: &Page, snapshot: &Snapshot) -> Option<OpenMove> {
        let begun = page.leader_move()?;
        let of = |since: &dyn Fn(&SeenCluster) -> Option<Moment>| {
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

    /// How long this replica has known that the StatefulSet of this UID is gone. The StatefulSet
    /// has to be the one that the budget last saw, and was just found gone. A UID never comes back.
    pub fn set_gone_for(
        &self,
        cluster: &ClusterRef,
        uid: &BudgetUid,
        stateful_set_uid: &str,
    ) -> Duration {
        let now = self.now();
        let mut clusters = self.clusters();
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
        now.saturating_sub(since)
    }

    /// As [`Seen::set_gone_for`], for a StatefulSet that only a pod of this namespace names,
    /// because there is no budget.
    pub fn set_without_budget_gone_for(&self, namespace: &str, stateful_set_uid: &str) -> Duration {
        let now = self.clock.instant();
        let sets = &self.without_budget;
        let mut sets = sets.lock().unwrap_or_else(PoisonError::into_inner);
        sets.gone_for(namespace, stateful_set_uid, now)
    }

    /// The number of StatefulSets without a budget that are remembered.
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
        since: impl FnOnce(&SeenCluster) -> Option<Moment>,
    ) -> Duration {
        let now = self.now();
        let clusters = self.clusters();
        let seen = clusters.get(cluster).filter(|seen| seen.uid == *uid);
        let since = seen.and_then(since);
        since.map_or(Duration::ZERO, |since| now.saturating_sub(since))
    }
}
