//! Rules 1 to 4: what can be answered without a look at any member.

use super::requests::{at_most_once, lifted};
use crate::quorum::circumstances::{Circumstances, Scope, Teardown};
use crate::quorum::disruption::{Actor, Disruption, Grace};
use crate::quorum::pod::Pod;
use crate::quorum::verdict::{Basis, Permission, Reason, Verdict, Waiver};

/// Rules 1 to 4, which need no look at any member: `None` where a member has to be looked at.
/// `target` is the pod as it was read; `None` when the pod is not one of the set's.
pub fn decide_early(
    circumstances: &Circumstances,
    target: Option<&Pod>,
    disruption: &Disruption,
) -> Option<Verdict> {
    rule_1_scope(&circumstances.scope)
        .or_else(|| rule_2_terminating(target, disruption))
        .or_else(|| rule_3_teardown(circumstances.teardown))
        .or_else(|| rule_4_other_incarnation(target, disruption))
}

/// What may go from a cluster whose ledger is missing or unreadable, which is what `because` says: whatever goes without a look at any member,
/// and whatever a person takes responsibility for. Nothing else, and a permission that would need a grant has none.
pub fn decide_without_ledger(
    circumstances: &Circumstances,
    target: &Pod,
    disruption: &Disruption,
    because: Reason,
) -> Verdict {
    rule_2_terminating(Some(target), disruption)
        .or_else(|| rule_3_teardown(circumstances.teardown))
        .or_else(|| rule_4_other_incarnation(Some(target), disruption))
        .or_else(|| at_most_once(Some(target), circumstances, disruption))
        .or_else(|| lifted(circumstances, disruption))
        .unwrap_or(Verdict::Wait(because))
}

/// Rule 1: not a pod of an enrolled cluster. Enrolled without a budget waits until the gate has created it.
fn rule_1_scope(scope: &Scope) -> Option<Verdict> {
    match scope {
        Scope::Enrolled => None,
        Scope::Foreign => Some(waived(Waiver::Foreign)),
        Scope::NoLedger => Some(Verdict::Wait(Reason::NoLedger)),
        Scope::NoDefinition => Some(Verdict::Wait(Reason::NoDefinition)),
    }
}

/// Rule 2: the pod is already terminating. Shortening its grace to 0 falls under rule 5, except for those who only delete what has ended.
fn rule_2_terminating(target: Option<&Pod>, disruption: &Disruption) -> Option<Verdict> {
    let terminating = target.is_some_and(|pod| pod.terminating);
    (terminating && !shortens_grace(disruption)).then(|| waived(Waiver::Terminating))
}

/// Whether the request takes away the time that a terminating pod has left.
pub(super) fn shortens_grace(disruption: &Disruption) -> bool {
    disruption.grace == Grace::Forced && disruption.actor != Actor::NodeOrPodGc
}

/// Rule 3: teardown. What stays in etcd's member list meanwhile (hibernation, scale-in) goes with a grant.
fn rule_3_teardown(teardown: Option<Teardown>) -> Option<Verdict> {
    let teardown = teardown?;
    Some(match teardown {
        Teardown::Namespace | Teardown::StatefulSet | Teardown::Owner => {
            waived(Waiver::Teardown(teardown))
        }
        Teardown::Hibernation | Teardown::ScaleIn => {
            Verdict::Allow(Permission::Grant(Basis::Teardown(teardown)))
        }
    })
}

/// Rule 4: the request insists on another incarnation; the API server answers 409.
fn rule_4_other_incarnation(target: Option<&Pod>, disruption: &Disruption) -> Option<Verdict> {
    let present = target.map_or(&disruption.target.uid, |pod| &pod.uid);
    let wanted = disruption.precondition.as_ref()?;
    (wanted != present).then(|| waived(Waiver::WrongIncarnation))
}

fn waived(waiver: Waiver) -> Verdict {
    Verdict::Allow(Permission::Waived(waiver))
}
