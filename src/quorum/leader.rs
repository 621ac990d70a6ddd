//! Whom leadership moves to before a leader goes.

use std::cmp::Reverse;

use super::disruption::Disruption;
use super::grants::Grants;
use super::id::MemberId;
use super::snapshot::{Member, Snapshot};

/// The member to move leadership to before the target of an allowed disruption goes: the most caught-up serving follower without a grant
/// or a `deletionTimestamp`; in a rollout one of the update revision rather than another. `None` where the target does not lead, or
/// nobody qualifies.
pub fn leader_to_move(
    snapshot: &Snapshot,
    grants: &Grants,
    disruption: &Disruption,
) -> Option<MemberId> {
    let target = &disruption.target.name;
    if !snapshot.member(target)?.leader {
        return None;
    }
    let updated = |member: &Member| {
        disruption.kind.is_rollout_step()
            && snapshot.update_revision.is_some()
            && member.pod.as_ref().and_then(|pod| pod.revision.as_ref())
                == snapshot.update_revision.as_ref()
    };
    snapshot
        .members
        .iter()
        .filter(|member| member.serves_quorum() && !member.leader)
        .filter(|member| match member.pod_name() {
            Some(name) => name != target && !grants.holds(name) && !is_terminating(member),
            None => true,
        })
        .filter(|member| member.id.is_some())
        .min_by_key(|member| {
            (
                Reverse(updated(member)),
                member.pod.is_none(),
                member.lag.unwrap_or(u64::MAX),
                member.name.clone(),
            )
        })
        .and_then(|member| member.id)
}

fn is_terminating(member: &Member) -> bool {
    member.pod.as_ref().is_some_and(|pod| pod.terminating)
}
