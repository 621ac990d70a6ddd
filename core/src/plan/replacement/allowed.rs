//! The conditions under which a member may be replaced. They are checked before the grant and once
//! more before the first change.

use super::super::hindrance::Hindrance;
use super::super::version::Defect;
use super::input::{Mode, ReplacementInput};
use super::membership_by::MembershipBy;
use super::refusal::Refusal;
use crate::quorum::{
    Actor, Comparison, Grants, Member, MemberId, PodName, Role, Snapshot,
    decide_with_terminating_claim, majority, replacement_of,
};

/// The fewest voters of a cluster that can spare one while another joins.
const FEWEST_VOTERS: u32 = 3;

/// The reason why the member in the pod `target` may not be replaced now, apart from its own grant.
pub(super) fn refusal(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    target: &PodName,
) -> Option<Refusal> {
    if input.membership == MembershipBy::Owner {
        return Some(Refusal::Owner);
    }
    if let Some(hindrance) = Hindrance::of_evidence(snapshot) {
        return Some(hindrance.into());
    }
    if input.list.is_none() {
        return Some(Refusal::NoList);
    }
    quiet(snapshot, grants, input, target)
        .or_else(|| data(snapshot, input, target))
        .or_else(|| others(snapshot, grants, input, target))
        .or_else(|| versions(input))
        .or_else(|| trace(input, target))
        .or_else(|| {
            let disruption = replacement_of(snapshot, target, Actor::Gate);
            let verdict = decide_with_terminating_claim(snapshot, grants, &disruption);
            Hindrance::of_verdict(verdict).map(Refusal::from)
        })
}

/// Nothing else is under way. A rollout waits for a member that does not serve, so it holds up the
/// replacement of one that does and of no other: otherwise each would wait for the other.
fn quiet(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    target: &PodName,
) -> Option<Refusal> {
    let pods = snapshot.pods.iter().filter(|pod| pod.name != *target);
    let serves = snapshot.member(target).is_some_and(Member::serves_quorum);
    let rolling_out = input.rolling_out && serves;
    if let Some(hindrance) = Hindrance::of_others(grants, target, pods, rolling_out) {
        return Some(hindrance.into());
    }
    let mut others = snapshot
        .members
        .iter()
        .filter(|member| member.pod_name() != Some(target));
    others.find_map(|member| {
        let name = member.name.clone();
        (member.role == Role::Learner).then_some(Refusal::Learner { member: name })
    })
}

/// While a CORRUPT alarm stands, the new member must not be filled from one whose data is wrong. So
/// the others have to be those whose data is right. A person who names the only member against
/// which the alarm stands knows that by other means.
fn data(snapshot: &Snapshot, input: &ReplacementInput, target: &PodName) -> Option<Refusal> {
    if snapshot.accused.is_empty() {
        return None;
    }
    let own = snapshot.member_for(target).and_then(|member| member.id);
    let mut members = snapshot.members.iter();
    let mut other = |is: &dyn Fn(MemberId) -> bool| {
        let is_meant = |id: MemberId| Some(id) != own && is(id);
        let found = members.find(|member| member.id.is_some_and(is_meant));
        found.map(|member| member.name.clone())
    };
    if let Comparison::Differs(differs) = input.data {
        if Some(differs) != own {
            let member = other(&|id| id == differs).unwrap_or_else(|| differs.to_string());
            return Some(Refusal::OtherDiffers { member });
        }
        return other(&|id| snapshot.accused.contains(&id))
            .map(|member| Refusal::Mistaken { member });
    }
    if let Some(member) = other(&|id| snapshot.accused.contains(&id)) {
        return Some(Refusal::Corrupt { member });
    }
    let alone = snapshot.accused.iter().map(|id| Some(*id)).eq([own]);
    let insisted = input.request.as_ref() == Some(target) && alone;
    let data = input.data;
    (!insisted).then_some(Refusal::NotShown { data })
}

/// All other voters serve, and they make the majority with and without the voter that leaves. Where
/// etcd does not list the target any more, or lists it as a learner, no voter leaves: a learner
/// joins those that are there.
fn others(
    snapshot: &Snapshot,
    grants: &Grants,
    input: &ReplacementInput,
    target: &PodName,
) -> Option<Refusal> {
    let voters = snapshot.voters(grants, Some(target));
    // A pod that nobody makes leaves its voter in etcd's list.
    let member = snapshot.member_for(target);
    let others = if member.is_some_and(|member| member.role != Role::Learner) {
        if voters < FEWEST_VOTERS {
            return Some(Refusal::TooFewVoters { voters });
        }
        voters.saturating_sub(1)
    } else {
        let members = snapshot.members.iter();
        let listed = members.filter(|member| member.role == Role::Voter).count();
        let listed = u32::try_from(listed).unwrap_or(u32::MAX);
        let replicas = snapshot.replicas;
        if listed.saturating_add(1) < replicas && input.mode != Mode::Rejoining {
            return Some(Refusal::SeveralRemoved { listed, replicas });
        }
        voters.min(listed)
    };
    let serving = snapshot.serving(grants, Some(target));
    let needed = others.max(majority(voters)).max(majority(others));
    (serving < needed).then_some(Refusal::NotAllServing { others, serving })
}

fn versions(input: &ReplacementInput) -> Option<Refusal> {
    let defect = Defect::PROMOTION_NOT_PERSISTED;
    if input.versions.is_empty() {
        return Some(Refusal::VersionUnknown);
    }
    let affected = input.versions.iter().find(|v| defect.affects(**v));
    affected.map(|version| {
        let version = *version;
        Hindrance::Defect { version, defect }.into()
    })
}

/// Whether etcd-druid's sidecar will know that it was a member of a running cluster. Where etcd
/// cannot be asked, only the member's Lease or a backup tells.
fn trace(input: &ReplacementInput, target: &PodName) -> Option<Refusal> {
    let by_sidecar = input.membership == MembershipBy::Sidecar;
    let traced = input.leases_held.contains(target) || input.has_backup;
    (by_sidecar && !traced).then_some(Refusal::NoTrace)
}
