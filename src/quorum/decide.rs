//! The decision: rules 1 to 17, in order; the first that applies answers.

use super::circumstances::{Circumstances, Scope};
use super::disruption::Disruption;
use super::grants::Grants;
use super::pod::Pod;
use super::snapshot::Snapshot;
use super::verdict::{Permission, Reason, Verdict, Waiver};

/// The smallest number of voters that is more than half of `voters`.
pub fn majority(voters: u32) -> u32 {
    voters / 2 + 1
}

/// Rules 1 to 4, which need no look at any member: `None` where a member has to be looked at.
/// `target` is the pod as it was read; `None` when the pod is not one of the set's.
pub fn decide_early(
    circumstances: &Circumstances,
    target: Option<&Pod>,
    disruption: &Disruption,
) -> Option<Verdict> {
    let _ = (target, disruption);
    match circumstances.scope {
        Scope::Foreign => Some(Verdict::Allow(Permission::Waived(Waiver::Foreign))),
        _ => None,
    }
}

/// The verdict on one disruption of a cluster in which the given grants are open.
pub fn decide(snapshot: &Snapshot, grants: &Grants, disruption: &Disruption) -> Verdict {
    let _ = (snapshot, grants, disruption);
    Verdict::Wait(Reason::NoEvidence { because: vec![] })
}
