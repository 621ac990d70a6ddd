//! What a judgement saw of the cluster, to be kept in the same write as its grant.

use std::collections::BTreeSet;

use super::Page;
use super::wire;
use crate::api::{QuorumDisruptionBudgetStatus, ScaleOutStatus, StatefulSetStatus};
use crate::quorum::{ClusterId, Latch, LeaderMove, Temperature, Tolerance};

/// What was seen besides the verdict. What is `None` was not seen, and what the budget holds of it stays.
#[derive(Debug, Clone, Default)]
pub struct Witness {
    /// The latch with the voters seen now.
    pub latch: Option<Latch>,
    /// The etcd cluster id that the members agree on.
    pub cluster_id: Option<ClusterId>,
    /// Whether there is word that the cluster ever worked. Nothing takes that back.
    pub formed: bool,
    /// The StatefulSet, and whose it is.
    pub stateful_set: Option<StatefulSetStatus>,
    /// The StatefulSets whose recorded deletes may still take pods along. All others are done with, and forgotten.
    pub unfinished_deletes: Option<BTreeSet<String>>,
    /// The label selector of the members' pods.
    pub selector: Option<String>,
    /// The temperature of the ledger: warm is written down, cold changes nothing.
    pub temperature: Option<Temperature>,
    /// Whether the grace of the recorded scale-out has passed.
    pub scale_out_settled: bool,
    /// What the cluster can still lose with the grants that are being written.
    pub tolerance: Option<Tolerance>,
    /// The move of leadership that begins once this is written.
    pub leader_move: Option<LeaderMove>,
}

impl Witness {
    /// Writes down what was seen.
    pub(super) fn testify(self, page: &Page, status: &mut QuorumDisruptionBudgetStatus) {
        let Self {
            latch,
            cluster_id,
            formed,
            stateful_set,
            unfinished_deletes,
            selector,
            temperature,
            scale_out_settled,
            tolerance,
            leader_move,
        } = self;
        if let Some(begun) = leader_move {
            wire::write_leader_move(begun, status);
        }
        if let Some(tolerance) = tolerance {
            write_tolerance(&tolerance, status);
        }
        if let Some(seen) = latch {
            note_scale_out(page.latch, seen, status);
            wire::write_latch(seen, status);
        }
        if let (true, Some(grown)) = (scale_out_settled, &mut status.scale_out) {
            grown.settled = true;
        }
        if let Some(id) = cluster_id {
            status.cluster_id = Some(id.to_string());
        }
        status.formed |= formed;
        if stateful_set.is_some() {
            status.stateful_set = stateful_set;
        }
        if let Some(unfinished) = unfinished_deletes {
            let recorded = &mut status.recorded_deletes.stateful_sets;
            recorded.retain(|set| unfinished.contains(&set.uid));
        }
        if selector.is_some() {
            status.selector = selector;
        }
        if temperature == Some(Temperature::Warm) {
            warm(page, status);
        }
    }
}

/// Says that the ledger on this page is warm, unless its gate is not in force, or refuses nothing.
pub(super) fn warm(page: &Page, status: &mut QuorumDisruptionBudgetStatus) {
    if status.ledger.suspended || page.budget().only_warns() {
        return;
    }
    status.ledger.warm = true;
    status.ledger.budget_uid = Some(page.uid.to_string());
    status.ledger.cold_because = None;
}

/// Puts the numbers that people and planners read.
pub fn write_tolerance(tolerance: &Tolerance, status: &mut QuorumDisruptionBudgetStatus) {
    let number = |count: u32| Some(i32::try_from(count).unwrap_or(i32::MAX));
    status.voters = number(tolerance.voters);
    status.current_healthy = number(tolerance.serving);
    status.desired_healthy = number(tolerance.majority);
    status.disruptions_allowed = number(tolerance.disruptions_allowed());
}

/// A first look at a StatefulSet is no scale-out, and a scale-in ends one.
fn note_scale_out(before: Latch, now: Latch, status: &mut QuorumDisruptionBudgetStatus) {
    if before.replicas == 0 || now.replicas < before.replicas {
        status.scale_out = None;
    } else if now.replicas > before.replicas {
        status.scale_out = Some(ScaleOutStatus {
            to: i32::try_from(now.replicas).unwrap_or(i32::MAX),
            settled: false,
        });
    }
}
