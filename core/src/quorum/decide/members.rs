//! Rules 11 to 17, which depend on the members' conditions and on how many of them serve.

use std::time::Duration;

use super::case::Case;
use crate::quorum::condition::Condition;
use crate::quorum::disruption::Kind;
use crate::quorum::evidence::Unanswered;
use crate::quorum::expected_voters::majority;
use crate::quorum::membership::Membership;
use crate::quorum::policy::{EvidenceMode, SmallCluster};
use crate::quorum::process::ProcessState;
use crate::quorum::snapshot::{Member, Role};
use crate::quorum::tolerance::in_flight;
use crate::quorum::verdict::{Allowance, Basis, Reason, Verdict};
use crate::quorum::why::Why;

/// The fewest members of which the others keep a quorum without one.
const FEWEST_TO_SPARE_ONE: usize = 3;

/// A member is removed from etcd for good.
///
/// etcd carries the removal out by a majority of those that are there before, and counts one voter
/// less afterwards. So all others serve, nothing else is permitted, and of two voters both serve.
/// That leaves a cluster in which every voter serves, whatever its size. A learner takes no vote
/// with it, so a majority is enough.
pub(super) fn removal(case: &Case<'_>) -> Option<Verdict> {
    if case.disruption.kind != Kind::Remove {
        return None;
    }
    let serves = case.member.is_some_and(Member::serves_quorum);
    let (needed, allowed) = match case.role() {
        Role::Learner => (case.majority(), true),
        Role::Voter => {
            let others = case.voters.saturating_sub(1).max(1);
            let alone = in_flight(case.grants, Some(case.target())).is_empty();
            let commits = serves || case.others >= case.majority();
            (others, alone && commits)
        }
    };
    if allowed && case.others >= needed {
        return Some(granted(Basis::Removal));
    }
    Some(Verdict::Wait(Reason::NoHeadroom(case.count(needed))))
}

/// Rule 11: a learner.
///
/// The learner may become a voter while its delete is on the way. So it goes only if the others
/// make the majority of one voter more. A dead learner goes always. A rollout step also takes a
/// learner that fails or makes no progress. Where the gate replaces the learner, it gives up what
/// the removed member has left behind, and promotes nobody before that is gone.
pub(super) fn rule_11_learner(case: &Case<'_>) -> Option<Verdict> {
    if case.role() != Role::Learner {
        return None;
    }
    let needed = majority(case.voters.saturating_add(1));
    let dead = matches!(
        case.process(),
        ProcessState::Dead | ProcessState::DeadForGood
    );
    let failing = case
        .member
        .is_some_and(|member| matches!(member.condition, Condition::Failing(_)));
    let stuck = case
        .member
        .is_some_and(|member| case.snapshot.is_stuck(member));
    let replaced = case.is_own_step() && case.grants.permit_replacement(case.target());
    let is_step = case.is_rollout_step() && (failing || stuck);
    if case.others >= needed || dead || replaced || is_step {
        return Some(granted(Basis::Learner));
    }
    Some(Verdict::Wait(Reason::Learner(case.count(needed))))
}

/// Rule 12: a member that does not run costs nothing, if the others make no majority without it
/// anyway.
///
/// But a delete may reach the API server after the member has come back. So the member stays in two
/// cases:
///
/// 1. The member may be the one that completes a majority. The others that may help it: those that
///    serve, those that run and know no leader, those that could not be asked, and those that may
///    listen a moment later. A cluster that never formed has no majority to complete.
/// 2. All members that are down may come back at once, since one cause may have stopped them all,
///    and this grant would make more of them leave than the cluster could spare then.
///
/// In both cases two kinds of members go all the same. One is dead for good. The other is taken by
/// a step of the gate, whose delete carries the judged resourceVersion and so fails if the pod has
/// changed.
///
/// The precondition does not help where etcd's container runs and does not listen at its client
/// port yet, because the pod does not change when etcd begins to talk to its peers. Such a member
/// goes only if all others are known to be without a quorum.
pub(super) fn rule_12_costs_nothing(case: &Case<'_>) -> Option<Verdict> {
    let needed = case.needed();
    if !case.process().is_down() || case.others >= needed || lets_single_member_go(case) {
        return None;
    }
    let least = needed.min(case.smallest_majority());
    let at_most = case.others_that_may_serve();
    let soon = at_most.saturating_add(case.others_about_to_listen());
    let may_complete = !case.never_formed() && soon.saturating_add(1) >= least;
    let all_may_return = case.others_that_may_return().saturating_add(1) >= least;
    let too_many_going = case.others_with_a_grant().saturating_add(1) > case.spare_at_smallest();
    let is_about_to_listen = case
        .member
        .is_some_and(|member| case.is_about_to_listen(member));
    let is_fenced = case.is_own_step() && !(is_about_to_listen && case.others_may_have_quorum());
    if (may_complete || (all_may_return && too_many_going))
        && case.process() != ProcessState::DeadForGood
        && !is_fenced
    {
        return Some(Verdict::Wait(Reason::MayComplete(case.count(needed))));
    }
    Some(granted(Basis::CostsNothing))
}

/// Rule 13, its exception: the owner lets this revision go on without quorum, because its members
/// and the outdated ones do not form one. A rollout step takes an outdated member while no other
/// has a grant.
fn proceeds(case: &Case<'_>) -> bool {
    let snapshot = case.snapshot;
    let (Some(update), Some(accepted)) =
        (&snapshot.update_revision, &snapshot.proceed_without_quorum)
    else {
        return false;
    };
    let outdated = snapshot
        .pod(case.target())
        .is_some_and(|pod| pod.revision.as_ref() != Some(update));
    let alone = in_flight(case.grants, Some(case.target())).is_empty();
    case.is_rollout_step() && update == accepted && outdated && alone
}

/// Rule 13: quorum is lost and the member is alive, so the member is needed to bring quorum back.
///
/// A rollout step may take it once quorum has been lost for the grace period, because the new
/// revision may be the repair (DEP-06, scenarios 2 and 3). A member that could not be asked stays:
/// it may be a learner, which rule 11 would spare. Nothing here rests on `evidence: Readiness`.
pub(super) fn rule_13_quorum_lost(case: &Case<'_>) -> Option<Verdict> {
    let snapshot = case.snapshot;
    if case.others < case.needed() && proceeds(case) {
        return Some(granted(Basis::Proceed));
    }
    if repairs_mute_cluster(case) {
        return Some(granted(Basis::Repair));
    }
    let live = snapshot.policy.evidence == EvidenceMode::Live;
    if !live || !snapshot.quorum_lost || case.process().is_down() || lets_single_member_go(case) {
        return None;
    }
    let lost_for_long = snapshot
        .quorum_lost_for
        .is_some_and(|lost| lost >= snapshot.policy.quorum_loss_grace);
    let gave_evidence = case.member.is_some_and(gave_evidence);
    if case.is_rollout_step() && lost_for_long && gave_evidence {
        return Some(granted(Basis::Repair));
    }
    let count = case.count(case.majority());
    Some(Verdict::Wait(Reason::QuorumLost(count)))
}

/// Rule 13, for members that are all mute: a rollout step takes an outdated one, since nothing else
/// brings back a quorum that the old revision keeps from forming.
///
/// The evidence is weak, so every step keeps a quorum that may be there for all that: at least two
/// others run, no other has a grant, and all of them, the one that was replaced last too, have run
/// mute for the grace period. A network policy that drops the gate's packets makes nobody mute: no
/// connection is accepted then.
fn repairs_mute_cluster(case: &Case<'_>) -> bool {
    let snapshot = case.snapshot;
    let grace = snapshot.policy.quorum_loss_grace;
    let for_long = |time: Option<Duration>| time.is_some_and(|time| time >= grace);
    let others_remain = snapshot.pods.len() >= FEWEST_TO_SPARE_ONE;
    let lasts = snapshot.pods.iter().all(|pod| for_long(pod.up_for));
    let alone = in_flight(case.grants, Some(case.target())).is_empty();
    let outdated = snapshot
        .pod(case.target())
        .is_some_and(|pod| pod.revision != snapshot.update_revision);
    let is_mute = snapshot.is_mute && for_long(snapshot.mute_for) && lasts;
    is_mute && case.is_rollout_step() && outdated && alone && others_remain
}

/// Rule 14: a cluster of one or two cannot spare a member, and the owner's policy says who may take
/// one. One of two goes only while the other serves.
pub(super) fn rule_14_small_cluster(case: &Case<'_>) -> Option<Verdict> {
    if is_single(case) {
        let policy = case.snapshot.policy.single_member;
        return Some(if permits(policy, case) {
            granted(Basis::SingleMember)
        } else {
            too_small(case, policy)
        });
    }
    if case.snapshot.replicas != 2 || case.voters != 2 {
        return None;
    }
    let policy = case.snapshot.policy.two_members;
    if !permits(policy, case) {
        return Some(too_small(case, policy));
    }
    (case.others >= 1 && knows_both(case)).then(|| granted(Basis::TwoMembers))
}

/// Rule 15: the others make the majority. While a scale-out may add a voter at any moment, they
/// have to make the majority of one voter more.
pub(super) fn rule_15_majority(case: &Case<'_>) -> Option<Verdict> {
    let needed = case.needed();
    (case.others >= needed).then(|| {
        granted(Basis::Majority {
            others: case.others,
            majority: needed,
        })
    })
}

/// Rule 16: no voter could be asked.
pub(super) fn rule_16_no_evidence(case: &Case<'_>) -> Option<Verdict> {
    let voters = || {
        case.snapshot
            .members
            .iter()
            .filter(|member| member.role == Role::Voter)
    };
    if voters().any(gave_evidence) {
        return None;
    }
    let because = voters()
        .filter_map(|member| {
            member
                .condition
                .why()
                .map(|why| format!("{}: {why}", member.name))
        })
        .collect();
    Some(Verdict::Wait(if case.snapshot.is_mute {
        let grace = case.snapshot.policy.quorum_loss_grace;
        Reason::Mute { because, grace }
    } else {
        Reason::NoEvidence { because }
    }))
}

/// Rule 17: no other rule applies, and the cluster cannot spare the member.
pub(super) fn rule_17_no_headroom(case: &Case<'_>) -> Verdict {
    Verdict::Wait(Reason::NoHeadroom(case.count(case.needed())))
}

fn granted(basis: Basis) -> Verdict {
    Verdict::Allow(Allowance::Grant(basis))
}

/// Whether the other voter serves in a cluster of both, and not in one that it started for itself.
fn knows_both(case: &Case<'_>) -> bool {
    match case.snapshot.policy.evidence {
        EvidenceMode::Live => case.snapshot.membership == Membership::Confirmed { voters: 2 },
        EvidenceMode::Readiness => true,
    }
}

fn too_small(case: &Case<'_>, policy: SmallCluster) -> Verdict {
    Verdict::Wait(Reason::TooSmall {
        voters: case.voters,
        policy,
    })
}

fn permits(policy: SmallCluster, case: &Case<'_>) -> bool {
    match policy {
        SmallCluster::Allow => true,
        SmallCluster::AllowRollout => case.is_rollout_step(),
        SmallCluster::Never => false,
    }
}

fn is_single(case: &Case<'_>) -> bool {
    case.snapshot.replicas == 1 && case.voters == 1 && case.snapshot.members.len() <= 1
}

/// Whether the policy of a cluster of one lets its member go. Rules 12 and 13 do not apply then:
/// they guard a majority that other members would be part of.
fn lets_single_member_go(case: &Case<'_>) -> bool {
    is_single(case) && permits(case.snapshot.policy.single_member, case)
}

/// Whether the member's answer says something about its part in quorum.
fn gave_evidence(member: &Member) -> bool {
    match &member.condition {
        Condition::Serving | Condition::Learning => true,
        Condition::Failing(why) => !matches!(
            why,
            Why::Silent(Unanswered::Refused) | Why::Terminating | Why::Unstarted
        ),
        Condition::Unknown(_) => false,
    }
}
