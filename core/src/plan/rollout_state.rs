//! The planner's view of a rollout: every target ordinal, and what is counted over them.

use super::desired::{Desired, Sidecars};
use super::max_unavailable::Unavailability;
use super::ordinal_state::{Granted, OrdinalState, Revision, targets};
use super::state::{Absent, State};
use crate::quorum::{Grants, PodName, Snapshot};

/// The data from which the next step is chosen.
pub(super) struct RolloutState<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) grants: &'a Grants,
    pub(super) desired: &'a Desired,
    /// The target ordinals, the lowest first.
    pub(super) slots: Vec<OrdinalState<'a>>,
}

/// The progress of a rollout, in pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The number of pods above the partition that have the update revision and are not
    /// terminating.
    pub updated: u32,
    /// The number of pods that there should be above the partition.
    pub targets: u32,
}

/// The progress of a rollout. `None` if there is no update revision.
pub fn progress(snapshot: &Snapshot, desired: &Desired) -> Option<Progress> {
    snapshot.update_revision.as_ref()?;
    let grants = Grants::default();
    Some(RolloutState::new(snapshot, &grants, desired).progress())
}

impl<'a> RolloutState<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, grants: &'a Grants, desired: &'a Desired) -> Self {
        let slots = targets(snapshot, desired.first_ordinal)
            .map(|target| OrdinalState::new(target, snapshot, grants, desired))
            .collect();
        Self {
            snapshot,
            grants,
            desired,
            slots,
        }
    }

    pub(super) fn progress(&self) -> Progress {
        let partition = self.desired.partition;
        let updated = self
            .slots
            .iter()
            .filter(|ordinal_state| {
                ordinal_state.revision == Revision::Updated
                    && ordinal_state.state != State::Terminating
            })
            .filter(|ordinal_state| ordinal_state.is_above(self.desired));
        Progress {
            updated: count(updated.count()),
            targets: self.snapshot.replicas.saturating_sub(partition),
        }
    }

    /// The number of unavailable members and its limit. `aside`, the next one to go, is not
    /// counted. Pods beyond the target ordinals are counted if they have a grant, unless they are
    /// those of members that have left: nobody waits for them.
    pub(super) fn out(&self, aside: Option<&PodName>) -> Unavailability {
        let here = self
            .slots
            .iter()
            .filter(|ordinal_state| Some(&ordinal_state.name) != aside && ordinal_state.is_out());
        let elsewhere = self
            .grants
            .iter()
            .filter(|(pod, _)| {
                self.slots
                    .iter()
                    .all(|ordinal_state| ordinal_state.name != **pod)
            })
            .filter(|(pod, _)| !self.snapshot.has_left(pod));
        let limit = self
            .desired
            .max_unavailable
            .limit(self.snapshot.replicas, self.desired.partition);
        Unavailability {
            out: count(here.count() + elsewhere.count()),
            limit,
        }
    }

    /// The updated members that serve and whose pods are not Ready, so that clients that use a
    /// Service do not reach them. Pods that a sidecar alone holds count only where the owner says
    /// so: an exporter or a backup that fails would hold the repair of etcd.
    pub(super) fn unready(&self) -> Vec<&OrdinalState<'a>> {
        self.slots
            .iter()
            .filter(|ordinal_state| {
                ordinal_state.revision == Revision::Updated && ordinal_state.grant == Granted::No
            })
            .filter(|ordinal_state| {
                ordinal_state.state == State::Serving && !ordinal_state.is_ready()
            })
            .filter(|ordinal_state| {
                self.desired.sidecars == Sidecars::Hold || !ordinal_state.is_held_by_sidecar()
            })
            .collect()
    }

    /// The target ordinals that satisfy `wanted`.
    pub(super) fn in_state(&self, wanted: impl Fn(&OrdinalState<'a>) -> bool) -> Vec<Absent> {
        self.slots
            .iter()
            .filter(|ordinal_state| wanted(ordinal_state))
            .map(OrdinalState::absent)
            .collect()
    }
}

pub(super) fn count(members: usize) -> u32 {
    u32::try_from(members).unwrap_or(u32::MAX)
}
