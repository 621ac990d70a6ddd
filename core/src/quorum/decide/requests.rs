//! Rules 5 to 10: what the request, the ledger and the cluster's surroundings say, before the member's own condition counts.

use super::Case;
use super::early::shortens_grace;
use crate::quorum::circumstances::{Circumstances, DisruptionBudget, OverrideOn, Temperature};
use crate::quorum::disruption::{Actor, Disruption, Grace, Kind};
use crate::quorum::pod::{Node, Pod};
use crate::quorum::process::ProcessState;
use crate::quorum::verdict::{Basis, Permission, Reason, Verdict, Waiver};

/// Rule 5: force on a pod that may still run on an unreachable node would let a second one start beside it.
///
/// What is left of rule 2 ends here: a terminating pod may go at once where it cannot run on.
pub(super) fn rule_5_at_most_once(case: &Case<'_>) -> Option<Verdict> {
    let pod = case.snapshot.pod(case.target());
    at_most_once(pod, &case.snapshot.circumstances, case.disruption)
}

pub(super) fn at_most_once(
    pod: Option<&Pod>,
    circumstances: &Circumstances,
    disruption: &Disruption,
) -> Option<Verdict> {
    let target = &disruption.target.name;
    let lifted = circumstances.lifted.as_ref();
    let lifted = lifted.is_some_and(|lifted| lifted.on == OverrideOn::Pod);
    if disruption.grace == Grace::Forced && !lifted {
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
        .then_some(Verdict::Allow(Permission::Waived(Waiver::Terminating)))
}

fn is_terminating(pod: &Pod) -> bool {
    pod.terminating
}

/// Rule 6: a valid override, for requests of others only, never for the gate's own steps.
pub(super) fn rule_6_override(case: &Case<'_>) -> Option<Verdict> {
    lifted(&case.snapshot.circumstances, case.disruption)
}

pub(super) fn lifted(circumstances: &Circumstances, disruption: &Disruption) -> Option<Verdict> {
    (circumstances.lifted.is_some() && disruption.actor != Actor::Gate)
        .then_some(Verdict::Allow(Permission::Grant(Basis::Override)))
}

/// Rule 7: the pod is proven not to be a member.
pub(super) fn rule_7_not_a_member(case: &Case<'_>) -> Option<Verdict> {
    case.snapshot
        .not_members
        .contains(case.target())
        .then_some(Verdict::Allow(Permission::Grant(Basis::NotAMember)))
}

/// A restart in place is not judged but refused: nobody could tell when the kubelet acts, so no grant would last long enough.
pub(super) fn restart_in_place(case: &Case<'_>) -> Option<Verdict> {
    match case.disruption.kind {
        Kind::Restart(by) => Some(Verdict::Deny(Reason::RestartByDelete(by))),
        Kind::Delete
        | Kind::Evict
        | Kind::RolloutStep
        | Kind::RolloutEviction
        | Kind::Defragment
        | Kind::Replace => None,
    }
}

/// Rule 8: another budget guards the same etcd cluster, so neither knows what the other has permitted. That is another budget's word, which
/// anybody may write into a budget of his own. Where every member belongs in a pod of this StatefulSet, nobody else can guard one.
pub(super) fn rule_8_shared_cluster(case: &Case<'_>) -> Option<Verdict> {
    let other = case.snapshot.circumstances.shared_with.clone()?;
    if case.snapshot.has_all_members_here() {
        return None;
    }
    Some(Verdict::Wait(Reason::SharedCluster { other }))
}

/// Rule 9: while the ledger may lack open grants, only members that are dead for good go.
pub(super) fn rule_9_cold_ledger(case: &Case<'_>) -> Option<Verdict> {
    match case.snapshot.circumstances.ledger {
        Temperature::Cold { remaining } if case.process() != ProcessState::DeadForGood => {
            Some(Verdict::Wait(Reason::LedgerCold { remaining }))
        }
        Temperature::Cold { .. } | Temperature::Warm => None,
    }
}

/// Rule 10: an eviction that its `PodDisruptionBudget` would refuse must not hold the ledger. Asked only where the members could spare the
/// pod: otherwise their reason says more.
pub(super) fn rule_10_disruption_budget(case: &Case<'_>) -> Option<Verdict> {
    if !case.disruption.kind.is_eviction() {
        return None;
    }
    let names = match &case.snapshot.circumstances.disruption_budget {
        DisruptionBudget::Permits => return None,
        DisruptionBudget::Refuses { name } => vec![name.clone()],
        DisruptionBudget::Several { names } => names.clone(),
    };
    Some(Verdict::Wait(Reason::DisruptionBudget { names }))
}
