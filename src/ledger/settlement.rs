//! The end of grants, by what is seen, and never by a request that failed.
//!
//! The request of a grant may still be on its way long after its asker has given up. So a
//! permission to delete ends only when its pod is gone, or when its pod is still there after no
//! such request can be alive any more.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Page, Seen};
use crate::quorum::{
    Cause, CauseState, Defragmentation, Incarnation, Permitted, PodName, PodRead, Replacement,
    Settlement, settlement,
};

/// A cause of a grant, which has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The member.
    pub member: PodName,
    /// The sequence number of the cause.
    pub seq: u64,
}

/// The causes on this page that have ended. A member without a look keeps its grant.
pub fn due(
    page: &Page,
    looks: &BTreeMap<PodName, PodRead>,
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

/// The defragmentation of `member` on this page, if it has ended by what `seen` says of it.
pub(super) fn defragmented(
    page: &Page,
    member: &PodName,
    look: Defragmentation,
    seen: &Seen,
    settle_time: Duration,
) -> Option<Due> {
    let is_ours = |cause: &&Cause| matches!(cause.what, Permitted::Defragment { .. });
    let cause = page.grants.of(member)?.causes.iter().find(is_ours)?;
    let watched = seen.cause_for(&page.cluster, &page.uid, cause.seq);
    let state = CauseState::Defragmentation(look);
    (settlement(cause, state, watched, settle_time) != Settlement::Keep).then(|| Due {
        member: member.clone(),
        seq: cause.seq,
    })
}

/// The observation of a replica that looks at pods alone; `None` if the pod was not read. A pod
/// does not say how far a defragmentation is: see [`defragmented`].
fn seen_of(cause: &Cause, look: Option<&PodRead>) -> Option<CauseState> {
    match &cause.what {
        Permitted::Delete { uid, .. } => Some(CauseState::Incarnation(Incarnation::of(uid, look?))),
        Permitted::Defragment { .. } => None,
        Permitted::Replace => Some(CauseState::Replacement(Replacement::Underway)),
    }
}
