//! The steps of a run.

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
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, derive_more::Display)]
pub enum Step {
    /// Take a grant of the kind [`GrantKind::Defragment`](crate::quorum::GrantKind::Defragment), by
    /// compare-and-swap at the ledger that this judgement read.
    #[display("defragment {}: {due}", pod.name)]
    Grant {
        /// The pod of the member.
        pod: TargetPod,
        /// The reason why the member is due.
        due: Due,
    },
    /// Move leadership away from the member that has the grant, to a follower that is done.
    #[display("move leadership from {} to member {to}", pod.name)]
    MoveLeader {
        /// The pod of the member.
        pod: TargetPod,
        /// The follower.
        to: MemberId,
    },
    /// Renew the grant, by compare-and-swap at the ledger that this judgement read. If that is
    /// accepted, make the call: once, without a deadline of its own, and never again.
    #[display("begin to defragment {}", pod.name)]
    Begin {
        /// The pod of the member.
        pod: TargetPod,
    },
    /// Settle the grant, because the run is over.
    #[display("{pod} is defragmented and serves")]
    Settle {
        /// The pod of the member.
        pod: PodName,
    },
    /// Settle the grant, because the call was not made and must not be made now.
    #[display("leave {pod} as it is: {because}")]
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
