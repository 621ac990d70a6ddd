//! When a grant ends: by what is seen, never by a request that failed.
//!
//! The request that a grant was given for may still be on its way long after whoever asked has given up. So a permission to
//! delete ends only when its pod is gone, or when it is still there after no such request can be alive any more.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Page, Seen};
use crate::quorum::{
    self, Cause, Defragmentation, Incarnation, Look, Permitted, PodName, Replacement, Settlement,
    settlement,
};

/// A cause of a grant that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The member.
    pub member: PodName,
    /// The sequence number of the cause.
    pub seq: u64,
}

/// The causes on this page that have ended. A member that was not looked at keeps its grant.
pub fn due(
    page: &Page,
    looks: &BTreeMap<PodName, Look>,
    seen: &Seen,
    settle_time: Duration,
) -> Vec<Due> {
    let causes = page
        .grants
        .iter()
        .flat_map(|(member, grant)| grant.causes.iter().map(move |cause| (member, cause)));
    causes
        .filter(|(member, cause)| {
            let watched = seen.cause_for(&page.cluster, &page.uid, cause.seq);
            seen_of(cause, looks.get(member)).is_some_and(|seen| {
                settlement(cause, seen, watched, settle_time) != Settlement::Keep
            })
        })
        .map(|(member, cause)| Due {
            member: member.clone(),
            seq: cause.seq,
        })
        .collect()
}

/// What somebody sees of a cause who neither holds it nor works at it. `None`: nobody looked.
fn seen_of(cause: &Cause, look: Option<&Look>) -> Option<quorum::Seen> {
    Some(match &cause.what {
        Permitted::Delete { uid, .. } => quorum::Seen::Incarnation(Incarnation::of(uid, look?)),
        Permitted::Defragment { .. } => quorum::Seen::Defragmentation(Defragmentation::NotMine),
        Permitted::Replace => quorum::Seen::Replacement(Replacement::Underway),
    })
}
