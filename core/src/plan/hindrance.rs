//! The reasons that hold back whatever the gate would do to a member by itself: a defragmentation
//! or a replacement.

use std::time::Duration;

use super::desired::Handover;
use super::version::{Defect, Version};
use crate::quorum::pod::Pod;
use crate::quorum::{EvidenceMode, Grants, PodName, Reason, Snapshot, Verdict, list};

/// A reason that holds back a defragmentation and a replacement alike, with its numbers. `Display`
/// is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, derive_more::Display)]
pub enum Hindrance {
    /// The evidence is that of readiness.
    #[display("the evidence is that of readiness, which is too weak")]
    NoLiveEvidence,
    /// Other members have grants, or this one has a grant for something else.
    #[display("already permitted: {}", list(pods))]
    Granted {
        /// The pods.
        pods: Vec<PodName>,
    },
    /// A pod is terminating.
    #[display("{pod} is terminating")]
    Terminating {
        /// The pod.
        pod: PodName,
    },
    /// A rollout is under way.
    #[display("a rollout is under way")]
    Rollout,
    /// The version of etcd has a defect that makes the work dangerous.
    #[display("etcd {version}: {defect}")]
    Defect {
        /// The version.
        version: Version,
        /// The defect.
        defect: Defect,
    },
    /// The member leads, and leadership moved a moment ago.
    #[display("it leads, and leadership moved a moment ago and is left alone for {} s", remaining.as_secs())]
    Leadership {
        /// The time until leadership may move again.
        remaining: Duration,
    },
    /// The member leads, and etcd refuses to move leadership for the gate.
    #[display(
        "it leads, and etcd refuses to move leadership (the gate's user lacks the role root)"
    )]
    HandoverRefused,
    /// The decision about the disruption is a refusal.
    #[display("{_0}")]
    Decision(Reason),
}

impl Hindrance {
    /// The stable identifier of the reason, for metrics and status.
    pub fn slug(&self) -> &'static str {
        if let Self::Decision(reason) = self {
            return reason.slug();
        }
        self.into()
    }

    /// Whether the evidence is too weak.
    pub(super) fn of_evidence(snapshot: &Snapshot) -> Option<Self> {
        (snapshot.policy.evidence != EvidenceMode::Live).then_some(Self::NoLiveEvidence)
    }

    /// Whether something else is under way: a grant of another member than `own`, the end of one of
    /// `pods`, or a rollout.
    pub(super) fn of_others<'a>(
        grants: &Grants,
        own: &PodName,
        mut pods: impl Iterator<Item = &'a Pod>,
        rolling_out: bool,
    ) -> Option<Self> {
        let granted = grants.iter().map(|(pod, _)| pod);
        let others: Vec<PodName> = granted.filter(|pod| *pod != own).cloned().collect();
        if !others.is_empty() {
            return Some(Self::Granted { pods: others });
        }
        if let Some(going) = pods.find(|pod| pod.terminating) {
            let pod = going.name.clone();
            return Some(Self::Terminating { pod });
        }
        rolling_out.then_some(Self::Rollout)
    }

    /// Whether leadership may not be moved now.
    pub(super) fn of_handover(handover: Handover) -> Option<Self> {
        match handover {
            Handover::Possible => None,
            Handover::Resting { remaining } => Some(Self::Leadership { remaining }),
            Handover::Refused => Some(Self::HandoverRefused),
        }
    }

    /// Whether the disruption is refused.
    pub(super) fn of_verdict(verdict: Verdict) -> Option<Self> {
        match verdict {
            Verdict::Allow(_) => None,
            Verdict::Wait(reason) | Verdict::Deny(reason) => Some(Self::Decision(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sentence_has_its_numbers() {
        let remaining = Duration::from_secs(7);
        for (hindrance, part) in [
            (Hindrance::NoLiveEvidence, "readiness"),
            (
                Hindrance::Granted {
                    pods: vec!["etcd-0".into(), "etcd-2".into()],
                },
                "already permitted: etcd-0, etcd-2",
            ),
            (
                Hindrance::Terminating {
                    pod: "etcd-1".into(),
                },
                "etcd-1 is terminating",
            ),
            (Hindrance::Rollout, "rollout"),
            (Hindrance::Leadership { remaining }, "left alone for 7 s"),
            (Hindrance::HandoverRefused, "role root"),
            (
                Hindrance::Decision(Reason::NoLedger),
                "no QuorumDisruptionBudget",
            ),
        ] {
            let sentence = hindrance.to_string();
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
