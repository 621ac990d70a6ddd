//! When a grant ends: by what is seen, never by a request that failed.
//!
//! The request that a grant was given for may still be on its way long after whoever asked has given up. So a permission to
//! delete ends only when its pod is gone, or when it is still there after no such request can be alive any more.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Page, Seen};
use crate::quorum::{Cause, Permitted, PodName, PodUid};

/// What an uncached read showed of a pod, after the page was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// There is no pod of that name.
    Gone,
    /// There is one.
    Here {
        /// Which incarnation.
        uid: PodUid,
        /// Whether it is terminating.
        terminating: bool,
    },
}

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
            has_ended(cause, looks.get(member), watched, settle_time)
        })
        .map(|(member, cause)| Due {
            member: member.clone(),
            seq: cause.seq,
        })
        .collect()
}

fn has_ended(cause: &Cause, look: Option<&Look>, watched: Duration, settle_time: Duration) -> bool {
    match &cause.what {
        Permitted::Delete { uid, .. } => match look {
            Some(Look::Gone) => true,
            Some(Look::Here { uid: now, .. }) if now != uid => true,
            // Still there, and no request from back then can be alive: the delete never happened.
            Some(Look::Here {
                terminating: false, ..
            }) => watched >= settle_time,
            // However long it takes to terminate, it counts as going; and so does one that nobody looked at.
            Some(Look::Here {
                terminating: true, ..
            })
            | None => false,
        },
        // Its holder renews it right before the call. One that has not been renewed for so long has no holder any more.
        Permitted::Defragment {
            timeout_seconds, ..
        } => watched >= settle_time.saturating_add(Duration::from_secs(*timeout_seconds)),
        // Ends when the new voter serves or the step was undone: whoever replaces the member says so.
        Permitted::Replace => false,
    }
}
