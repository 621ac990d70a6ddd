//! Rules 5 to 10, which look at the request, at the ledger and at the cluster as a whole, before
//! voters are counted.

use super::case::Case;
use crate::quorum::circumstances::{Circumstances, EvictionBudget, OverrideOn};
use crate::quorum::disruption::{Actor, Disruption, Grace, Kind};
use crate::quorum::membership::Membership;
use crate::quorum::pod::{Node, Pod};
use crate::quorum::process::ProcessState;
use crate::quorum::snapshot::Member;
use crate::quorum::trust::Trust;
use crate::quorum::verdict::{Allowance, Basis, Reason, Verdict, Waiver};

/// Rule 5: a forced delete of a pod that may still run on an unreachable node is refused. The
/// StatefulSet would start a second pod beside it.
///
/// The rest of rule 2 is answered here too: a terminating pod may go at once if it cannot run on.
pub(super) fn rule_5_at_most_once(case: &Case<'_>) -> Option<Verdict> {
    let pod = case.snapshot.pod(case.target());
    at_most_once(pod, &case.snapshot.circumstances, case.disruption)
}

/// Rule 5, without a snapshot.
pub(super) fn at_most_once(
    pod: Option<&Pod>,
    circumstances: &Circumstances,
    disruption: &Disruption,
) -> Option<Verdict> {
    let target = &disruption.target.name;
    let valid = circumstances.valid_override.as_ref();
    let is_on_pod = valid.is_some_and(|valid| valid.on == OverrideOn::Pod);
    if disruption.grace == Grace::Forced && !is_on_pod {
        match pod.map_or(Node::Unread, |pod| pod.node) {
            Node::NotReady => {
                let pod = target.clone();
                return Some(Verdict::Deny(Reason::AtMostOnce { pod }));
            }
            Node::Unread => {
                let what = format!("the node of {target} could not be read");
                return Some(Verdict::Wait(Reason::Unavailable { what }));
            }
            Node::Unscheduled | Node::Ready | Node::OutOfService | Node::Gone => {}
        }
    }
    (pod.is_some_and(is_terminating) && shortens_grace(disruption))
        .then_some(Verdict::Allow(Allowance::Waived(Waiver::Terminating)))
}

fn is_terminating(pod: &Pod) -> bool {
    pod.terminating
}

/// Rule 6: a valid override passes. It never serves the gate's own steps.
pub(super) fn rule_6_override(case: &Case<'_>) -> Option<Verdict> {
    by_override(&case.snapshot.circumstances, case.disruption.actor)
}

/// Rule 6, without a snapshot: for pods and for claims.
pub(in crate::quorum) fn by_override(
    circumstances: &Circumstances,
    actor: Actor,
) -> Option<Verdict> {
    (circumstances.valid_override.is_some() && actor != Actor::Gate)
        .then_some(Verdict::Allow(Allowance::Grant(Basis::Override)))
}

/// Rule 7: a pod that is proven not to be a member passes.
pub(super) fn rule_7_not_a_member(case: &Case<'_>) -> Option<Verdict> {
    case.snapshot
        .not_members
        .contains(case.target())
        .then_some(Verdict::Allow(Allowance::Grant(Basis::NotAMember)))
}

/// A restart in place is refused without judging the members. Nobody knows when the kubelet will
/// act, so no grant would last until then.
pub(super) fn restart_in_place(case: &Case<'_>) -> Option<Verdict> {
    match case.disruption.kind {
        Kind::Restart(by) => Some(Verdict::Deny(Reason::RestartByDelete(by))),
        Kind::Delete
        | Kind::Evict
        | Kind::RolloutStep
        | Kind::RolloutEviction
        | Kind::Defragment
        | Kind::Replace
        | Kind::Remove
        | Kind::Recover => None,
    }
}

/// A pod whose ordinal its StatefulSet does not keep would not be created again, and its claim may
/// go with it. The StatefulSet was made anew with fewer replicas, or scaled while the gate was not
/// asked. Its member leaves etcd first, or somebody announces the scale-in.
pub(super) fn outside_ordinals(case: &Case<'_>) -> Option<Verdict> {
    let outside = case.snapshot.circumstances.outside_ordinals.as_ref()?;
    case.disruption.kind.ends_the_pod().then(|| {
        Verdict::Deny(Reason::OutsideOrdinals {
            pod: case.target().clone(),
            outside: Box::new(outside.clone()),
        })
    })
}

/// While the template has `--force-new-cluster`, every pod that is made of it leaves the others. It
/// keeps the cluster id, so both halves take writes. No member of several goes, dead or alive.
pub(super) fn forces_new_cluster(case: &Case<'_>) -> Option<Verdict> {
    let ends_the_pod = case.disruption.kind.ends_the_pod();
    let leaves_others = case.snapshot.circumstances.forces_new_cluster && case.voters > 1;
    (ends_the_pod && leaves_others).then_some(Verdict::Deny(Reason::ForcesNewCluster))
}

/// Rule 8: another budget guards the same etcd cluster, so neither budget knows what the other has
/// permitted.
///
/// Anybody can write a cluster id into the status of a budget. The claim is therefore ignored if
/// every member of the cluster has a pod of this StatefulSet: no other budget can guard one of
/// them.
pub(super) fn rule_8_shared_cluster(case: &Case<'_>) -> Option<Verdict> {
    let other = case.snapshot.circumstances.shared_with.clone()?;
    if case.snapshot.has_all_members_here() {
        return None;
    }
    Some(Verdict::Wait(Reason::SharedCluster { other }))
}

/// Quorum is lost for good, and a person has named the member that starts alone, with what it has.
///
/// Its pod goes twice: for the start alone, and once more so that the next one starts without that
/// setting. Nobody else serves, so nobody loses the member. The first time it says itself that it
/// has no leader, or is mute as members are that started without a quorum. That no majority has its
/// data any more is for the planner to find out. Afterwards it may serve alone, or not at all: one
/// that serves with others has a quorum again. Data that is known to be lost, or was emptied, is
/// what the person gives up.
pub(super) fn recovery(case: &Case<'_>) -> Option<Verdict> {
    let snapshot = case.snapshot;
    let begins = case.disruption.kind == Kind::Recover;
    let is_named = snapshot.circumstances.recovering.as_ref() == Some(case.target());
    let is_trusted = snapshot.circumstances.ledger == Trust::Trusted;
    let goes_on = is_named && case.is_own_step();
    if !is_trusted || !(begins || goes_on) {
        return None;
    }
    let is_lost = case.member.is_some_and(Member::says_no_leader);
    let serves = case.member.is_some_and(Member::serves_quorum);
    let is_alone = snapshot.membership == Membership::Confirmed { voters: 1 };
    let takes_no_quorum = is_named && (is_alone || !serves);
    if case.others == 0 && (is_lost || takes_no_quorum) {
        return Some(Verdict::Allow(Allowance::Grant(Basis::Recovery)));
    }
    begins.then(|| Verdict::Wait(Reason::NoHeadroom(case.count(case.needed()))))
}

/// While data is lost and nobody has accepted that, no member goes: whatever the members still have
/// may be the last of it.
pub(super) fn lost_data(case: &Case<'_>) -> Option<Verdict> {
    let lost = case.snapshot.went_back?;
    Some(Verdict::Wait(Reason::DataLost(lost)))
}

/// A member that began without its data under its old id may have voted for one that lacked writes
/// which it had acknowledged. Whatever emptied it may empty the next one too. So until it is
/// replaced, or somebody accepts that, only its replacement and members that are dead for good go.
pub(super) fn refilled_member(case: &Case<'_>) -> Option<Verdict> {
    let members = &case.snapshot.refilled;
    let target = case.snapshot.member(case.target());
    let is_refilled = target.is_some_and(|member| members.contains(&member.name));
    // The delete of the pod follows the permission to replace the member.
    let is_permitted = case.is_own_step() && case.grants.permit_replacement(case.target());
    let is_its_replacement = is_refilled && (case.disruption.kind == Kind::Replace || is_permitted);
    let goes = is_its_replacement || case.process() == ProcessState::DeadForGood;
    (!members.is_empty() && !goes).then(|| {
        Verdict::Wait(Reason::Refilled {
            members: members.clone(),
        })
    })
}

/// Rule 9: while the ledger may lack open grants, only members that are dead for good go.
pub(super) fn rule_9_untrusted_ledger(case: &Case<'_>) -> Option<Verdict> {
    match case.snapshot.circumstances.ledger {
        Trust::Untrusted { remaining } if case.process() != ProcessState::DeadForGood => {
            Some(Verdict::Wait(Reason::LedgerUntrusted { remaining }))
        }
        Trust::Untrusted { .. } | Trust::Trusted => None,
    }
}

/// Rule 10: an eviction that the pod's `PodDisruptionBudget` would refuse takes no grant, because a
/// grant would hold up others for nothing. This rule is asked only after the members' rules have
/// said yes: their refusal says more.
pub(super) fn rule_10_disruption_budget(case: &Case<'_>) -> Option<Verdict> {
    if !case.disruption.kind.is_eviction() {
        return None;
    }
    let names = match &case.snapshot.circumstances.disruption_budget {
        EvictionBudget::Permits => return None,
        EvictionBudget::Refuses { name } => vec![name.clone()],
        EvictionBudget::Several { names } => names.clone(),
    };
    Some(Verdict::Wait(Reason::DisruptionBudget { names }))
}

/// Whether the request takes the rest of its grace period from a terminating pod. Kubelets and the
/// pod garbage collector are excepted, because they delete only pods that have ended.
pub(super) fn shortens_grace(disruption: &Disruption) -> bool {
    disruption.grace == Grace::Forced && disruption.actor != Actor::NodeOrPodGc
}
