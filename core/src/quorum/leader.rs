//! The choice of the member that takes leadership over before the leader goes.

use std::cmp::Reverse;

use super::disruption::Disruption;
use super::grants::Grants;
use super::id::MemberId;
use super::snapshot::{Member, Snapshot};

/// The member that leadership moves to before the target of an allowed disruption goes. `None` if
/// the target does not lead, or if no member can take over.
///
/// Candidates are serving followers without a grant; a member whose pod has a `deletionTimestamp`
/// does not serve. In a rollout, members of the update revision come first. Then members with a pod
/// come before those without, and the most caught-up member before the others.
pub fn leader_to_move(
    snapshot: &Snapshot,
    grants: &Grants,
    disruption: &Disruption,
) -> Option<MemberId> {
    heirs(snapshot, grants, disruption).into_iter().next()
}

/// Every candidate to take leadership over from the target, the best one first.
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
            Some(name) => name != target && !grants.holds(name),
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
