//! The move of leadership before a leader goes. An election in the middle of a disruption costs
//! writers a second or more, a transfer some milliseconds.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument as _;

use super::deps::JudgeDeps;
use crate::causes::causes;
use crate::etcd::AdminError;
use crate::observe::ClusterView;
use crate::quorum::evidence::Target;
use crate::quorum::{MemberId, PodUid};
use crate::telemetry::traces::step;

/// The longest a transfer may take.
const LONGEST: Duration = Duration::from_secs(1);

/// The result of a transfer.
pub(super) enum Transfer {
    /// Leadership moved, or may have moved (with the failure): the facts have to be gathered again.
    LookAgain(Option<String>),
    /// Leadership stays where it is, for this reason.
    Stays(String),
}

/// Moves leadership from the pod `from` to the member `to`.
pub(super) async fn transfer(
    deps: &JudgeDeps,
    view: &ClusterView,
    from: &PodUid,
    to: MemberId,
    latest: Instant,
) -> Transfer {
    let leader = Target::Pod(from.clone());
    let Some(endpoint) = view
        .endpoints()
        .iter()
        .find(|endpoint| endpoint.target == leader)
    else {
        return Transfer::Stays("the leader's endpoint is not known".into());
    };
    let deadline = latest.min(deps.clock.instant() + LONGEST);
    let moved = deps.admin.move_leader(endpoint, to, deadline);
    match moved.instrument(step!("move of leadership")).await {
        Ok(()) | Err(AdminError::NotLeader) => Transfer::LookAgain(None),
        Err(error @ (AdminError::PermissionDenied(_) | AdminError::BadTransferee(_))) => {
            Transfer::Stays(causes(&error))
        }
        Err(error @ (AdminError::Refused(_) | AdminError::Unanswered(_))) => {
            Transfer::LookAgain(Some(causes(&error)))
        }
    }
}
