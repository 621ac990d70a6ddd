//! The end of grants, by what is seen, and never by a request that failed.
//!
//! The request of a grant may still be on its way long after its asker has given up. So a
//! permission to delete ends only when its pod is gone, or when its pod is still there after no
//! such request can be alive any more.

use std::collections::BTreeMap;
use std::time::Duration;

use super::page::Page;
use super::seen::Seen;
use crate::quorum::{
    Cause, CauseState, GrantKind, Incarnation, PodName, PodRead, Settlement, settlement,
};

/// A cause of a grant, which has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The member.
    pub member: PodName,
    /// The sequence number of the cause.
    pub seq: u64,
    /// Whether the permitted disruption never happened.
    pub unused: bool,
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
    let due = causes.filter_map(|(member, cause)| {
        let state = seen_of(cause, looks.get(member))?;
        due_by(page, member, cause, state, seen, settle_time)
    });
    due.collect()
}

/// The cause, if it has ended by `state`.
fn due_by(
    page: &Page,
    member: &PodName,
    cause: &Cause,
    state: CauseState,
    seen: &Seen,
    settle_time: Duration,
) -> Option<Due> {
    let watched = seen.cause_for(&page.cluster, &page.uid, cause.seq);
    let unused = match settlement(cause, state, watched, settle_time) {
        Settlement::Keep => return None,
        Settlement::Done => false,
        Settlement::NeverHappened => true,
    };
    Some(Due {
        member: member.clone(),
        seq: cause.seq,
        unused,
    })
}

/// The cause of `member` on this page that has ended by `state`.
pub(super) fn ended(
    page: &Page,
    member: &PodName,
    state: CauseState,
    seen: &Seen,
    settle_time: Duration,
) -> Option<Due> {
    let mut causes = page.grants.get(member)?.causes.iter();
    causes.find_map(|cause| due_by(page, member, cause, state, seen, settle_time))
}

/// The observation of a replica that looks at pods alone; `None` if the pod was not read. A pod
/// does not say how far a defragmentation or a replacement is: see [`ended`].
fn seen_of(cause: &Cause, look: Option<&PodRead>) -> Option<CauseState> {
    match &cause.what {
        GrantKind::Delete { uid, .. } => {
            Some(CauseState::Incarnation(Incarnation::read(uid, look?)))
        }
        GrantKind::Defragment { .. } | GrantKind::Replace => None,
    }
}
