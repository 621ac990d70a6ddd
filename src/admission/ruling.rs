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
        }))
    }

    fn of_set(yes: &SetYes) -> Self {
        Self(Allowed::Judged(match yes {
            SetYes::Passes(passing) => (*passing).into(),
            SetYes::Recorded(because, _) | SetYes::DryRun(because) => (*because).into(),
            SetYes::Unrecorded => "unrecorded",
        }))
    }

    /// A yes to a request that takes nothing by itself (a mutating webhook's), with what it changes.
    pub(super) fn to_change(patch: Option<Patch>) -> Self {
        Self(Allowed::Change(patch))
    }

    /// Whether nothing was asked but to change the request.
    pub(super) fn is_of_a_change(&self) -> bool {
        matches!(self.0, Allowed::Change(_))
    }

    /// A stable word for what the yes stands on.
    pub(super) fn reason(&self) -> &'static str {
        match &self.0 {
            Allowed::Judged(reason) => reason,
            Allowed::Change(Some(_)) => "patched",
            Allowed::Change(None) => "unchanged",
        }
    }

    /// What is changed in the request.
    pub(super) fn patch(&self) -> Option<&Patch> {
        match &self.0 {
            Allowed::Judged(_) => None,
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
        let what = format!("pod {namespace}/{pod}");
        let outcome = match outcome {
            Ok(yes) => Ok(Permit::of(&yes)),
            Err(Refusal::Wait(reason)) => Err(Objection::to_take(&what, Code::Wait, &reason)),
            Err(Refusal::Deny(reason)) => Err(Objection::to_take(&what, Code::Deny, &reason)),
            Err(Refusal::NoSuchPod) => Err(no_such_pod(pod)),
            Err(Refusal::Outdated) => {
                let what = "it changed while it was judged".to_owned();
                let reason = Reason::Unavailable { what };
                Err(Objection::to_take(
                    &format!("pod {namespace}/{pod}"),
                    Code::Wait,
                    &reason,
                ))
            }
        };
        Self {
            outcome,
            cluster,
            headroom,
            warnings,
        }
    }

    /// The judge's answer about a StatefulSet.
    pub(super) fn on_set(set: &ClusterRef, answer: SetAnswer) -> Self {
        let SetAnswer { outcome, warnings } = answer;
        let what = format!("statefulset {set}");
        let outcome = match outcome {
            Ok(yes) => Ok(Permit::of_set(&yes)),
            Err(SetRefusal::Wait(reason)) => Err(Objection::to_change(&what, Code::Wait, &reason)),
            Err(SetRefusal::Deny(reason)) => Err(Objection::to_change(&what, Code::Deny, &reason)),
        };
        Self {
            outcome,
            cluster: Some(set.clone()),
            headroom: None,
            warnings,
        }
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

    /// `allow`, `wait`, `deny` or `not-found`.
    pub(super) fn verdict(&self) -> &'static str {
        match &self.outcome {
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
