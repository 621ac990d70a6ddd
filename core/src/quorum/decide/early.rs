//! Rules 1 to 4, which are answered before any member is asked.

use super::general::{at_most_once, by_override, shortens_grace};
use crate::quorum::circumstances::{Circumstances, Scope, Teardown};
use crate::quorum::disruption::{Disruption, Kind};
use crate::quorum::pod::Pod;
use crate::quorum::verdict::{Allowance, Basis, Reason, Verdict, Waiver};

/// Rules 1 to 4. `None` means that none of them applies, so that the members have to be asked.
///
/// `target` is the pod as the API server has it; `None` if the pod is not one of the StatefulSet's.
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

/// The decision where the ledger is missing or cannot be read, for the reason `because`.
///
/// Only what needs no look at a member passes: terminating pods, teardown, requests for another
/// incarnation, and overrides. Where [`decide()`](super::decide()) would demand a grant, none is
/// recorded.
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
        .or_else(|| by_override(circumstances, disruption.actor))
        .unwrap_or(Verdict::Wait(because))
}

/// Rule 1: a pod outside every enrolled cluster passes. A cluster that is enrolled and has no
/// budget waits until the gate has created one. The program answers that before it reads the
/// cluster, when it finds out whose pod it is.
fn rule_1_scope(scope: &Scope) -> Option<Verdict> {
    match scope {
        Scope::Enrolled => None,
        Scope::Foreign => Some(waived(Waiver::Foreign)),
        Scope::NoLedger => Some(Verdict::Wait(Reason::NoLedger)),
        Scope::NoDefinition => Some(Verdict::Wait(Reason::NoDefinition)),
    }
}

/// Rule 2: a pod that is terminating already passes. A request that shortens its grace period to 0
/// is left to rule 5, and the removal of its member from etcd to the rule about that.
fn rule_2_terminating(target: Option<&Pod>, disruption: &Disruption) -> Option<Verdict> {
    let terminating = target.is_some_and(|pod| pod.terminating);
    let is_removal = disruption.kind == Kind::Remove;
    let passes = terminating && !is_removal && !shortens_grace(disruption);
    passes.then(|| waived(Waiver::Terminating))
}

/// Rule 3: a teardown passes. Hibernation and scale-in take a grant, because etcd still lists the
/// member meanwhile.
fn rule_3_teardown(teardown: Option<Teardown>) -> Option<Verdict> {
    let teardown = teardown?;
    Some(match teardown {
        Teardown::Namespace | Teardown::StatefulSet | Teardown::Owner => {
            waived(Waiver::Teardown(teardown))
        }
        Teardown::Hibernation | Teardown::ScaleIn => {
            Verdict::Allow(Allowance::Grant(Basis::Teardown(teardown)))
        }
    })
}

/// Rule 4: a request for another incarnation passes, because the API server refuses it with 409.
fn rule_4_other_incarnation(target: Option<&Pod>, disruption: &Disruption) -> Option<Verdict> {
    let present = target.map_or(&disruption.target.uid, |pod| &pod.uid);
    let wanted = disruption.precondition.as_ref()?;
    (wanted != present).then(|| waived(Waiver::WrongIncarnation))
}

fn waived(waiver: Waiver) -> Verdict {
    Verdict::Allow(Allowance::Waived(waiver))
}
