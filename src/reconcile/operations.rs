//! The operations of one cluster, in order.

use tokio::time::Instant;

use super::defragmentation::Defragmentation;
use super::operation::{Driven, Driver, OperationContext, Report};
use super::recovery::Recovery;
use super::replacement::Replacement;
use super::rollout::Rollout;
use super::run::Run;
use super::scale::Scale;
use crate::etcd::Prober;
use crate::ledger::Page;
use crate::quorum::ClusterRef;

/// The operations of one cluster.
#[derive(Default)]
pub(super) struct Operations {
    recovery: Driven<Recovery>,
    replacement: Driven<Replacement>,
    rollout: Driven<Rollout>,
    scale: Driven<Scale>,
    defragmentation: Driven<Defragmentation>,
}

impl Operations {
    /// The operations in the order in which they may take the next step. What restores a member
    /// comes first, what takes a healthy one away comes last.
    fn in_order(&mut self) -> [&mut dyn Driver; 5] {
        [
            &mut self.recovery,
            &mut self.replacement,
            &mut self.rollout,
            &mut self.scale,
            &mut self.defragmentation,
        ]
    }

    /// When the operations need a look, if they need one.
    pub(super) fn look_at(
        &mut self,
        run: &Run,
        cluster: &ClusterRef,
        leads: bool,
        now: Instant,
    ) -> Option<Instant> {
        let times = self.in_order().into_iter();
        times
            .filter_map(|one| one.look_at(run, cluster, leads, now))
            .min()
    }

    /// Takes note of what has to be known before the members are asked.
    pub(super) fn before_members(&mut self, run: &Run, page: &Page) {
        for one in self.in_order() {
            one.before_members(run, page);
        }
    }

    /// Lets each operation take its turn, in order, until one has changed something. Returns
    /// whether one has, and the reports.
    pub(super) async fn take_turns(
        &mut self,
        context: &OperationContext<'_>,
    ) -> (bool, Vec<Report>) {
        let mut reports = Vec::new();
        for one in self.in_order() {
            let (changed, report) = one.take_turn(context).await;
            reports.extend(report);
            if changed {
                return (true, reports);
            }
        }
        (false, reports)
    }

    /// Returns when a member that did not serve answers differently, if an operation waits for
    /// that.
    pub(super) async fn until_otherwise(&mut self, prober: &Prober) {
        let waits = self.in_order().map(|one| one.until_otherwise(prober));
        futures::future::select_all(waits).await;
    }
}
