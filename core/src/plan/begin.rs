//! Step 1: whether there is anything to roll out. Also the reasons why nothing can be planned at
//! all.

use super::board::Board;
use super::targets::MOST_REPLICAS;
use super::waiting::WaitingOn;
use crate::quorum::Scope;

impl Board<'_> {
    /// The reason why no step can be planned yet, or can be planned any more.
    pub(super) fn not_begun(&self) -> Option<WaitingOn> {
        let circumstances = &self.snapshot.circumstances;
        if circumstances.scope != Scope::Enrolled {
            return Some(WaitingOn::Enrolment);
        }
        // With 0 replicas the rollout is done, so there is nothing to wait for.
        if let Some(teardown) = circumstances.teardown
            && self.snapshot.replicas > 0
        {
            return Some(WaitingOn::Teardown(teardown));
        }
        let replicas = self.snapshot.replicas;
        if replicas > MOST_REPLICAS {
            let most = MOST_REPLICAS;
            return Some(WaitingOn::TooManyReplicas { replicas, most });
        }
        if !self.desired.generation.is_observed() {
            return Some(WaitingOn::Observation(self.desired.generation));
        }
        self.snapshot
            .update_revision
            .is_none()
            .then_some(WaitingOn::Revision)
    }

    /// Step 1: whether every pod above the partition exists, is not terminating, and has the update
    /// revision.
    pub(super) fn is_done(&self) -> bool {
        let progress = self.progress();
        progress.updated == progress.targets
    }

    /// The reason why no new step may begin although there is something to do.
    pub(super) fn suspended(&self) -> Option<WaitingOn> {
        self.desired.paused.then(|| {
            let progress = self.progress();
            WaitingOn::Paused(progress)
        })
    }
}
