//! Learners, and when they may vote.

use std::collections::BTreeSet;

use crate::quorum::pod::Pod;
use crate::quorum::{Condition, Member, PodUid, Snapshot};

/// Whether the member is in a pod that stays.
pub(super) fn runs_here(member: &Member) -> bool {
    member.pod.as_ref().is_some_and(|pod| !pod.terminating)
}

/// Whether the member is a learner that follows the leader as closely as a voter has to.
pub(super) fn has_caught_up(member: &Member, snapshot: &Snapshot) -> bool {
    let is_close = |lag| lag <= snapshot.policy.lag_bound;
    member.condition == Condition::Learning && member.lag.is_some_and(is_close)
}

/// Whether etcd in the pod of a member that has never started does not join: it has ended over and
/// over, or has run for the progress deadline.
pub(super) fn does_not_join(pod: &Pod, snapshot: &Snapshot, failing: &BTreeSet<PodUid>) -> bool {
    let deadline = snapshot.policy.progress_deadline;
    let idles = pod.up_for.is_some_and(|up_for| up_for >= deadline);
    idles || failing.contains(&pod.uid)
}
