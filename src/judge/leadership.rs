//! Leadership is moved before its holder goes: an election in the middle of a disruption costs writers a second or more, a
//! transfer some milliseconds.

use std::time::Duration;

use tokio::time::Instant;

use super::Bench;
use crate::etcd::AdminError;
use crate::observe::World;
use crate::quorum::evidence::Target;
use crate::quorum::{MemberId, PodUid};

/// The longest a transfer may take.
const LONGEST: Duration = Duration::from_secs(1);

/// What became of leadership.
pub(super) enum Transfer {
    /// It moved, or it may have: everything has to be looked at again.
    LookAgain(Option<String>),
    /// It stays where it is, for the reason given.
    Stays(String),
}

/// Moves leadership from the pod `from` to the member `to`.
pub(super) async fn transfer(
    bench: &Bench,
    world: &World,
    from: &PodUid,
    to: MemberId,
    latest: Instant,
) -> Transfer {
    let leader = Target::Pod(from.clone());
    let Some(endpoint) = world
        .endpoints()
        .iter()
        .find(|endpoint| endpoint.target == leader)
    else {
        return Transfer::Stays("the leader's endpoint is not known".into());
    };
    let deadline = latest.min(bench.clock.instant() + LONGEST);
    match bench.admin.move_leader(endpoint, to, deadline).await {
        Ok(()) | Err(AdminError::NotLeader) => Transfer::LookAgain(None),
        Err(error @ (AdminError::PermissionDenied(_) | AdminError::BadTransferee(_))) => {
            Transfer::Stays(sentence(&error))
        }
        Err(error @ (AdminError::Refused(_) | AdminError::Unanswered(_))) => {
            Transfer::LookAgain(Some(sentence(&error)))
        }
    }
}

fn sentence(error: &AdminError) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
