//! Step 1, and what makes a step thinkable at all: whether there is a rollout.

use super::board::Board;
use super::targets::MOST_REPLICAS;
use super::waiting::WaitingOn;
use crate::quorum::Scope;

impl Board<'_> {
    /// Why nothing can be said about a rollout yet, or any more.
    pub(super) fn not_begun(&self) -> Option<WaitingOn> {
        let circumstances = &self.snapshot.circumstances;
        if circumstances.scope != Scope::Enrolled {
            return Some(WaitingOn::Enrolment);
        }
        // Without replicas there is nothing left to do, which is no wait.
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

    /// Step 1: every pod above the partition exists, stays, and carries the update revision.
    pub(super) fn is_done(&self) -> bool {
        let progress = self.progress();
        progress.updated == progress.targets
    }

    /// Why no new step may begin although there is something to do.
    pub(super) fn suspended(&self) -> Option<WaitingOn> {
        self.desired.paused.then(|| {
            let progress = self.progress();
            WaitingOn::Paused(progress)
        })
    }
}
