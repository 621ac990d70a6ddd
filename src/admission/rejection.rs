//! A refusal as people and programs read it: a status code, a sentence, and the single causes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::StatusCause;

use super::asked::{Subject, SubjectKind};
use crate::judge::Refused;
use crate::quorum::{Count, InPlace, Reason};

/// The advice to a refused caller, which the status code tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(super) enum Code {
    /// Ask again later: 429. `kubectl drain` asks every 5 s.
    Wait,
    /// Do something else: 403.
    Deny,
    /// There is nothing to do: 404. `kubectl drain` goes on.
    NotFound,
}

impl Code {
    /// The HTTP status code inside the review.
    pub(super) fn number(self) -> i32 {
        match self {
            Self::Wait => 429,
            Self::Deny => 403,
            Self::NotFound => 404,
        }
    }

    /// The machine-readable reason of the status.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Wait => "TooManyRequests",
            Self::Deny => "Forbidden",
            Self::NotFound => "NotFound",
        }
    }
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    /// The advice to the caller.
    pub(super) code: Code,
    /// A stable word for the reason.
    pub(super) slug: &'static str,
    /// A sentence.
    pub(super) message: String,
    /// The field of the request or of the object that the reason is about, if there is one.
    field: Option<&'static str>,
    /// Further causes: a stable word and a sentence each.
    also: Vec<(&'static str, String)>,
}

impl Rejection {
    /// The refusal of a request about `subject`.
    pub(super) fn new(subject: &Subject, refused: &Refused) -> Self {
        let (code, reason) = match refused {
            Refused::Wait(reason) => (Code::Wait, reason),
            Refused::Deny(reason) => (Code::Deny, reason),
            Refused::NoSuchPod => return Self::no_such_pod(&subject.name),
            Refused::Outdated => {
                let changed = Refused::unavailable("it changed while it was judged");
                return Self::new(subject, &changed);
            }
        };
        let (what, changes) = match subject.kind {
            SubjectKind::Pod => ("pod", matches!(reason, Reason::RestartByDelete(_))),
            SubjectKind::StatefulSet => ("statefulset", true),
            SubjectKind::Claim => ("persistentvolumeclaim", false),
        };
        let verb = if changes { "change" } else { "be deleted" };
        let manner = match code {
            Code::Wait | Code::NotFound => "now",
            Code::Deny => "this way",
        };
        let Subject {
            namespace, name, ..
        } = subject;
        Self {
            code,
            slug: refused.slug(),
            message: format!("{what} {namespace}/{name} cannot {verb} {manner}: {reason}"),
            field: field(reason),
            also: causes(reason),
        }
    }

    /// The refusal in the words of the API server, which `kubectl drain` and others know.
    fn no_such_pod(pod: &str) -> Self {
        Self {
            code: Code::NotFound,
            slug: Refused::NoSuchPod.slug(),
            message: format!("pods \"{pod}\" not found"),
            field: None,
            also: Vec::new(),
        }
    }

    /// The causes as a status carries them: the reason itself first.
    pub(super) fn causes(&self) -> Vec<StatusCause> {
        let cause = |field: Option<&str>, slug: &str, message: &String| StatusCause {
            field: field.map(str::to_owned),
            message: Some(message.clone()),
            reason: Some(slug.to_owned()),
        };
        let first = cause(self.field, self.slug, &self.message);
        let others = self
            .also
            .iter()
            .map(|(slug, message)| cause(None, slug, message));
        std::iter::once(first).chain(others).collect()
    }
}

fn field(reason: &Reason) -> Option<&'static str> {
    match reason {
        Reason::AtMostOnce { .. } => Some("gracePeriodSeconds"),
        Reason::RestartByDelete(InPlace::Deadline) => Some("spec.activeDeadlineSeconds"),
        Reason::RestartByDelete(InPlace::Image | InPlace::Resize) => Some("spec.containers"),
        Reason::RestartByDelete(InPlace::Start) => Some("spec.schedulingGates"),
        Reason::MembersListed { .. } | Reason::MembersUnknown { .. } => Some("spec.replicas"),
        Reason::Unannounced(_) => Some("metadata.annotations"),
        Reason::OwnerUnread { .. } => Some("metadata.ownerReferences"),
        _ => None,
    }
}

/// The members behind the numbers, a cause each.
fn causes(reason: &Reason) -> Vec<(&'static str, String)> {
    match reason {
        Reason::Learner(count)
        | Reason::MayComplete(count)
        | Reason::QuorumLost(count)
        | Reason::LastCopy(count)
        | Reason::NoHeadroom(count) => members(count),
        Reason::NoEvidence { because }
        | Reason::Mute { because, .. }
        | Reason::MembersUnknown { because } => because
            .iter()
            .map(|why| ("MemberUnknown", why.clone()))
            .collect(),
        _ => Vec::new(),
    }
}

fn members(count: &Count) -> Vec<(&'static str, String)> {
    let in_flight = count.in_flight.iter().map(|pod| {
        let message = format!("{pod} was permitted, and is not back yet");
        ("DisruptionInFlight", message)
    });
    let not_serving = count.not_serving.iter();
    let not_serving = not_serving.map(|voter| ("MemberNotServing", voter.to_string()));
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
        let pod = Subject::pod("ns", "etcd-0", None);
        let rejection = Rejection::new(&pod, &Refused::Wait(reason));
        let causes = rejection.causes();
        let words: Vec<_> = causes
            .iter()
            .map(|c| c.reason.as_deref().unwrap())
            .collect();
        assert_eq!(
            words,
            ["NoHeadroom", "DisruptionInFlight", "MemberNotServing"]
        );
        assert!(
            rejection
                .message
                .starts_with("pod ns/etcd-0 cannot be deleted now: etcd-0 is needed")
        );
        let last = causes.last().unwrap().message.as_deref().unwrap();
        assert!(last.starts_with("etcd-2 ("), "{last}");
    }
}
