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
    heirs(snapshot, grants, disruption).into_iter().next()
}

/// Everybody who could take leadership over from the target, the best first.
pub(super) fn heirs(
    snapshot: &Snapshot,
    grants: &Grants,
    disruption: &Disruption,
) -> Vec<MemberId> {
    let target = &disruption.target.name;
    if !snapshot.member(target).is_some_and(|member| member.leader) {
        return Vec::new();
    }
    let updated = |member: &Member| {
        disruption.kind.is_rollout_step()
            && snapshot.update_revision.is_some()
            && member.pod.as_ref().and_then(|pod| pod.revision.as_ref())
                == snapshot.update_revision.as_ref()
    };
    let mut able: Vec<&Member> = snapshot
        .members
        .iter()
        .filter(|member| member.serves_quorum() && !member.leader)
        .filter(|member| match member.pod_name() {
            Some(name) => name != target && !grants.holds(name) && !is_terminating(member),
            None => true,
        })
        .collect();
    able.sort_by_key(|member| {
        (
            Reverse(updated(member)),
            member.pod.is_none(),
            member.lag.unwrap_or(u64::MAX),
            member.name.clone(),
        )
    });
    able.into_iter().filter_map(|member| member.id).collect()
}

fn is_terminating(member: &Member) -> bool {
    member.pod.as_ref().is_some_and(|pod| pod.terminating)
}
