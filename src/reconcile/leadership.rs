//! The move of leadership before a member that leads is replaced or defragmented.

use std::time::Duration;

use super::look::ReconcileError;
use super::operation::OperationContext;
use crate::etcd::AdminError;
use crate::ledger::StatusUpdate;
use crate::quorum::{LeaderMove, MemberId, PodName};

/// The time limit of the call.
const MOVE: Duration = Duration::from_secs(1);

/// Moves leadership from the member in `pod` to the member `to`. It is put on record first, so that
/// no other replica begins a move meanwhile. `None` where nobody leads or the pod has no address.
pub(super) async fn move_leader(
    context: &OperationContext<'_>,
    pod: &PodName,
    to: MemberId,
) -> Result<Option<Result<(), AdminError>>, ReconcileError> {
    let (run, look) = (context.run, context.look);
    let endpoint = look.view.endpoint_of(pod);
    let (Some(endpoint), Some(from)) = (endpoint, look.snapshot.leader) else {
        return Ok(None);
    };
    let begun = LeaderMove {
        from,
        to,
        term: look.snapshot.term.unwrap_or_default(),
    };
    let update = StatusUpdate {
        leader_move: Some(begun),
        ..StatusUpdate::default()
    };
    run.ledger().update(&look.page, update).await?;
    let deadline = run.clock.instant() + MOVE;
    let moved = run.judge.admin().move_leader(endpoint, to, deadline).await;
    Ok(Some(moved))
}
