//! The steps of a run.

use std::fmt;

use super::due::Due;
use super::refusal::Refusal;
use crate::quorum::{MemberId, PodName, TargetPod};

/// The next thing that a run does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// No member is due.
    Nothing,
    /// A member is due, and nothing happens now.
    Wait {
        /// The pod of the member.
        pod: PodName,
        /// The reason why the member is due.
        due: Due,
        /// The reason to wait.
        because: Refusal,
    },
    /// The gate carries out this step. After it the cluster is observed again.
    Act(Step),
    /// A defragmentation is under way. The gate looks again.
    Watch {
        /// The pod of the member.
        pod: PodName,
        /// The reason why its grant does not settle yet.
        because: Refusal,
    },
}

/// A step of a run. `Display` is a sentence.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Step {
    /// Take a grant of the kind [`Permitted::Defragment`](crate::quorum::Permitted::Defragment), by
    /// compare-and-swap at the ledger that this judgement read.
    Grant {
        /// The pod of the member.
        pod: TargetPod,
        /// The reason why the member is due.
        due: Due,
    },
    /// Move leadership away from the member that has the grant, to a follower that is done.
    MoveLeader {
        /// The pod of the member.
        pod: TargetPod,
        /// The follower.
        to: MemberId,
    },
    /// Renew the grant, by compare-and-swap at the ledger that this judgement read. If that is
    /// accepted, make the call: once, without a deadline of its own, and never again.
    Begin {
        /// The pod of the member.
        pod: TargetPod,
    },
    /// Settle the grant, because the run is over.
    Settle {
        /// The pod of the member.
        pod: PodName,
    },
    /// Settle the grant, because the call was not made and must not be made now.
    GiveUp {
        /// The pod of the member.
        pod: PodName,
        /// The reason.
        because: Refusal,
    },
}

impl Step {
    /// The stable identifier of the step, for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Grant { pod, due } => write!(f, "defragment {}: {due}", pod.name),
            Self::MoveLeader { pod, to } => {
                write!(f, "move leadership from {} to member {to}", pod.name)
            }
            Self::Begin { pod } => write!(f, "begin to defragment {}", pod.name),
            Self::Settle { pod } => write!(f, "{pod} is defragmented and serves"),
            Self::GiveUp { pod, because } => write!(f, "leave {pod} as it is: {because}"),
        }
    }
}
