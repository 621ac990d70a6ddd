//! What a webhook decided about one request, before it becomes an answer.
//!
//! A [`Permit`] is made from a yes of the judge, from an accepted record, or from a change to the request; nothing else allows.

use json_patch::Patch;

use crate::judge::{Answer, Refusal, Yes};
use crate::quorum::{Basis, ClusterRef, Reason, Teardown, Waiver};

use super::objection::{Code, Objection};
use super::stateful_set::{SetAnswer, SetRefusal, SetYes};

/// A webhook's decision, with what goes beside it.
#[derive(Debug)]
pub(super) struct Ruling {
    /// Yes or no.
    pub outcome: Result<Permit, Objection>,
    /// The cluster it is about.
    pub cluster: Option<ClusterRef>,
    /// Serving voters without a grant, minus the majority.
    pub headroom: Option<i64>,
    /// What the caller should know besides.
    pub warnings: Vec<String>,
}

/// A yes.
#[derive(Debug)]
pub(super) struct Permit(Allowed);

#[derive(Debug)]
enum Allowed {
    /// It would have been refused for this, and refusals are only reported.
    Warned(Objection),
    /// Somebody may do what they asked, for this reason.
    Judged(&'static str),
    /// Nothing was asked but whether to change the request (by a mutating webhook).
    Change(Option<Patch>),
}

impl Permit {
    /// The yes to a disruption. It takes the judge's, which takes an accepted write where a grant is needed.
    fn of(yes: &Yes) -> Self {
        Self(Allowed::Judged(match yes {
            Yes::Waived(waiver) => waived(*waiver),
            Yes::Recorded { basis, proof: _ } | Yes::DryRun(basis) => granted(*basis),
            Yes::Ungranted => "override-ungranted",
            // Told with its objection by [`Ruling::on_pod`].
            Yes::Warned(_) => "warned",
        }))
    }

    fn of_set(yes: &SetYes) -> Self {
        Self(Allowed::Judged(match yes {
            SetYes::Passes(passing) => (*passing).into(),
            SetYes::Recorded(because, _) | SetYes::DryRun(because) => (*because).into(),
            SetYes::Unrecorded => "unrecorded",
            SetYes::Warned(_) => "warned",
        }))
    }

    /// A yes to a request that takes nothing by itself (a mutating webhook's), with what it changes.
    pub(super) fn to_change(patch: Option<Patch>) -> Self {
        Self(Allowed::Change(patch))
    }

    /// Why it would have been refused, where it would.
    pub(super) fn warned(&self) -> Option<&Objection> {
        match &self.0 {
            Allowed::Warned(objection) => Some(objection),
            Allowed::Judged(_) | Allowed::Change(_) => None,
        }
    }

    /// Whether nothing was asked but to change the request.
    pub(super) fn is_of_a_change(&self) -> bool {
        matches!(self.0, Allowed::Change(_))
    }

    /// A stable word for what the yes stands on.
    pub(super) fn reason(&self) -> &'static str {
        match &self.0 {
            Allowed::Judged(reason) => reason,
            Allowed::Warned(objection) => objection.slug,
            Allowed::Change(Some(_)) => "patched",
            Allowed::Change(None) => "unchanged",
        }
    }

    /// What is changed in the request.
    pub(super) fn patch(&self) -> Option<&Patch> {
        match &self.0 {
            Allowed::Judged(_) | Allowed::Warned(_) => None,
            Allowed::Change(patch) => patch.as_ref(),
        }
    }
}

impl Ruling {
    /// The judge's answer about `pod` in `namespace`.
    pub(super) fn on_pod(namespace: &str, pod: &str, answer: Answer) -> Self {
        let Answer {
            cluster,
            outcome,
            headroom,
            warnings,
        } = answer;
        let outcome = match outcome {
            Ok(Yes::Warned(refusal)) => Ok(warned(objection(namespace, pod, &refusal))),
            Ok(yes) => Ok(Permit::of(&yes)),
            Err(refusal) => Err(objection(namespace, pod, &refusal)),
        };
        Self {
            outcome,
            cluster,
            headroom,
            warnings,
        }
        .told()
    }

    /// What would have been refused is told to the caller.
    fn told(mut self) -> Self {
        if let Ok(permit) = &self.outcome
            && let Some(objection) = permit.warned()
        {
            let warning = format!(
                "allowed by enforcement: Warn, otherwise refused: {}",
                objection.message
            );
            self.warnings.insert(0, warning);
        }
        self
    }

    /// The judge's answer about a StatefulSet.
    pub(super) fn on_set(set: &ClusterRef, answer: SetAnswer) -> Self {
        let SetAnswer { outcome, warnings } = answer;
        let objection = |refusal: &SetRefusal| {
            let what = format!("statefulset {set}");
            match refusal {
                SetRefusal::Wait(reason) => Objection::to_change(&what, Code::Wait, reason),
                SetRefusal::Deny(reason) => Objection::to_change(&what, Code::Deny, reason),
            }
        };
        let outcome = match outcome {
            Ok(SetYes::Warned(refusal)) => Ok(warned(objection(&refusal))),
            Ok(yes) => Ok(Permit::of_set(&yes)),
            Err(refusal) => Err(objection(&refusal)),
        };
        Self {
            outcome,
            cluster: Some(set.clone()),
            headroom: None,
            warnings,
        }
        .told()
    }

    /// The answer of a mutating webhook.
    pub(super) fn change(patch: Option<Patch>) -> Self {
        Self {
            outcome: Ok(Permit::to_change(patch)),
            cluster: None,
            headroom: None,
            warnings: Vec::new(),
        }
    }

    /// The answer where something was not to be had in time: wait.
    pub(super) fn unavailable(subject: &str, what: impl Into<String>) -> Self {
        let reason = Reason::Unavailable { what: what.into() };
        Self {
            outcome: Err(Objection::to_take(subject, Code::Wait, &reason)),
            cluster: None,
            headroom: None,
            warnings: Vec::new(),
        }
    }

    /// Why it is refused, or would be.
    pub(super) fn objection(&self) -> Option<&Objection> {
        match &self.outcome {
            Ok(permit) => permit.warned(),
            Err(objection) => Some(objection),
        }
    }

    /// `allow`, `warn` (allowed, and otherwise refused), `wait`, `deny` or `not-found`.
    pub(super) fn verdict(&self) -> &'static str {
        match &self.outcome {
            Ok(permit) if permit.warned().is_some() => "warn",
            Ok(_) => "allow",
            Err(objection) => objection.code.into(),
        }
    }

    /// A stable word for the reason.
    pub(super) fn reason(&self) -> &'static str {
        match &self.outcome {
            Ok(permit) => permit.reason(),
            Err(objection) => objection.slug,
        }
    }
}

fn warned(objection: Objection) -> Permit {
    Permit(Allowed::Warned(objection))
}

fn objection(namespace: &str, pod: &str, refusal: &Refusal) -> Objection {
    let what = format!("pod {namespace}/{pod}");
    match refusal {
        Refusal::Wait(reason) => Objection::to_take(&what, Code::Wait, reason),
        Refusal::Deny(reason) => Objection::to_take(&what, Code::Deny, reason),
        Refusal::NoSuchPod => no_such_pod(pod),
        Refusal::Outdated => {
            let changed = "it changed while it was judged".to_owned();
            let reason = Reason::Unavailable { what: changed };
            Objection::to_take(&what, Code::Wait, &reason)
        }
    }
}

/// In the words of the API server itself, which `kubectl drain` and its like know.
fn no_such_pod(pod: &str) -> Objection {
    Objection {
        code: Code::NotFound,
        slug: "no-such-pod",
        message: format!("pods \"{pod}\" not found"),
        field: None,
        also: Vec::new(),
    }
}

fn waived(waiver: Waiver) -> &'static str {
    match waiver {
        Waiver::Teardown(teardown) => torn_down(teardown),
        Waiver::Foreign
        | Waiver::Terminating
        | Waiver::WrongIncarnation
        | Waiver::RestartsNothing => waiver.into(),
    }
}

fn granted(basis: Basis) -> &'static str {
    match basis {
        Basis::Teardown(teardown) => torn_down(teardown),
        Basis::Override
        | Basis::NotAMember
        | Basis::Learner
        | Basis::CostsNothing
        | Basis::Repair
        | Basis::Proceed
        | Basis::SingleMember
        | Basis::TwoMembers
        | Basis::Majority { .. } => basis.into(),
    }
}

fn torn_down(teardown: Teardown) -> &'static str {
    match teardown {
        Teardown::Namespace => "teardown-namespace",
        Teardown::StatefulSet => "teardown-stateful-set",
        Teardown::Owner => "teardown-owner",
        Teardown::Hibernation => "hibernation",
        Teardown::ScaleIn => "scale-in",
    }
}
