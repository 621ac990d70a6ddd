//! A no, as people and programs read it: a code, a sentence, and its causes one by one.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;

use crate::quorum::{Count, InPlace, Reason};

use super::stateful_set::SetReason;

/// What a refused caller should do, which is what the status code tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Code {
    /// Ask again later: 429. `kubectl drain` does, every 5 s.
    Wait,
    /// Do something else: 403.
    Deny,
    /// There is nothing to do: 404. `kubectl drain` goes on.
    NotFound,
}

impl Code {
    /// The HTTP status code inside the review.
    pub fn number(self) -> i32 {
        match self {
            Self::Wait => 429,
            Self::Deny => 403,
            Self::NotFound => 404,
        }
    }

    /// The machine-readable reason of the status.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Wait => "TooManyRequests",
            Self::Deny => "Forbidden",
            Self::NotFound => "NotFound",
        }
    }
}

/// A no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Objection {
    /// What the caller should do.
    pub code: Code,
    /// A stable word for the reason.
    pub slug: &'static str,
    /// A sentence.
    pub message: String,
    /// The field of the request or the object that the reason is about, where there is one.
    pub field: Option<&'static str>,
    /// Further causes, each with a stable word, a sentence and a name.
    pub also: Vec<Cause>,
}

/// One more cause of a no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cause {
    /// A stable word.
    pub slug: &'static str,
    /// A sentence.
    pub message: String,
}

impl Objection {
    /// A refusal to take `what` (a pod, say, by kind and name) for a reason of the decision's.
    pub(super) fn to_take(what: &str, code: Code, reason: &Reason) -> Self {
        let manner = match (code, reason) {
            (Code::Wait | Code::NotFound, _) => "cannot go now",
            (Code::Deny, Reason::RestartByDelete(_)) => "cannot change this way",
            (Code::Deny, _) => "cannot go this way",
        };
        Self {
            code,
            slug: reason.slug(),
            message: format!("{what} {manner}: {reason}"),
            field: field(reason),
            also: causes(reason),
        }
    }

    /// A refusal to change a StatefulSet.
    pub(super) fn to_change(what: &str, code: Code, reason: &SetReason) -> Self {
        let manner = match code {
            Code::Wait | Code::NotFound => "cannot change now",
            Code::Deny => "cannot change this way",
        };
        let field = match reason {
            SetReason::MembersListed { .. } | SetReason::MembersUnknown { .. } => {
                Some("spec.replicas")
            }
            SetReason::OwnerLives { .. } | SetReason::OwnerUnread { .. } => {
                Some("metadata.ownerReferences")
            }
            SetReason::NoLedger | SetReason::NoDefinition | SetReason::Unavailable { .. } => None,
        };
        Self {
            code,
            slug: reason.slug(),
            message: format!("{what} {manner}: {reason}"),
            field,
            also: Vec::new(),
        }
    }

    /// The causes as a status carries them: the reason itself first.
    pub(super) fn causes(&self) -> Vec<StatusCause> {
        let first = StatusCause {
            field: self.field.map(str::to_owned),
            message: Some(self.message.clone()),
            reason: Some(self.slug.to_owned()),
        };
        let others = self.also.iter().map(|cause| StatusCause {
            field: None,
            message: Some(cause.message.clone()),
            reason: Some(cause.slug.to_owned()),
        });
        std::iter::once(first).chain(others).collect()
    }
}

fn field(reason: &Reason) -> Option<&'static str> {
    match reason {
        Reason::AtMostOnce { .. } => Some("gracePeriodSeconds"),
        Reason::RestartByDelete(InPlace::Deadline) => Some("spec.activeDeadlineSeconds"),
        Reason::RestartByDelete(InPlace::Image | InPlace::Resize) => Some("spec.containers"),
        Reason::NoLedger
        | Reason::NoDefinition
        | Reason::SharedCluster { .. }
        | Reason::LedgerCold { .. }
        | Reason::DisruptionBudget { .. }
        | Reason::Learner(_)
        | Reason::MayComplete(_)
        | Reason::QuorumLost(_)
        | Reason::TooSmall { .. }
        | Reason::NoEvidence { .. }
        | Reason::NoHeadroom(_)
        | Reason::LeadershipMoved { .. }
        | Reason::Unavailable { .. } => None,
    }
}

/// The members behind the numbers, one cause each.
fn causes(reason: &Reason) -> Vec<Cause> {
    match reason {
        Reason::Learner(count)
        | Reason::MayComplete(count)
        | Reason::QuorumLost(count)
        | Reason::NoHeadroom(count) => members(count),
        Reason::NoEvidence { because } => because
            .iter()
            .map(|why| Cause {
                slug: "member-unknown",
                message: why.clone(),
            })
            .collect(),
        Reason::NoLedger
        | Reason::NoDefinition
        | Reason::AtMostOnce { .. }
        | Reason::SharedCluster { .. }
        | Reason::LedgerCold { .. }
        | Reason::DisruptionBudget { .. }
        | Reason::TooSmall { .. }
        | Reason::LeadershipMoved { .. }
        | Reason::Unavailable { .. }
        | Reason::RestartByDelete(_) => Vec::new(),
    }
}

fn members(count: &Count) -> Vec<Cause> {
    let in_flight = count.in_flight.iter().map(|pod| Cause {
        slug: "disruption-in-flight",
        message: format!("{pod} was permitted to go and is not back yet"),
    });
    let not_serving = count.not_serving.iter().map(|voter| Cause {
        slug: "member-not-serving",
        message: voter.to_string(),
    });
    in_flight.chain(not_serving).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::{NotServing, ProcessState, Why};

    #[test]
    fn each_member_behind_a_refusal_is_a_cause_of_its_own() {
        let reason = Reason::NoHeadroom(Count {
            target: "etcd-0".to_owned(),
            voters: 3,
            serving: 1,
            left: 0,
            needed: 2,
            missing: 0,
            in_flight: vec!["etcd-1".into()],
            not_serving: vec![NotServing {
                member: "etcd-2".to_owned(),
                process: ProcessState::Dead,
                why: Why::NoLeader,
            }],
        });
        let objection = Objection::to_take("pod ns/etcd-0", Code::Wait, &reason);
        let causes = objection.causes();
        let words: Vec<_> = causes
            .iter()
            .map(|c| c.reason.as_deref().unwrap())
            .collect();
        assert_eq!(
            words,
            ["no-headroom", "disruption-in-flight", "member-not-serving"]
        );
        assert!(
            objection
                .message
                .starts_with("pod ns/etcd-0 cannot go now: etcd-0 has to stay")
        );
        let last = causes.last().unwrap().message.as_deref().unwrap();
        assert!(last.starts_with("etcd-2 ("), "{last}");
    }
}
