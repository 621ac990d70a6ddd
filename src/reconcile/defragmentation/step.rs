//! The steps of a defragmentation.

use derive_more::Display;

use crate::plan::defragmentation::{self as plan, Disarm, Due, Refusal};
use crate::quorum::{self, MemberId, PodName, TargetPod};

/// A step of a run.
#[derive(Debug, Display)]
pub(in crate::reconcile) enum Step {
    /// The grant for a member.
    #[display("permit {} to be defragmented: {due}", pod.name)]
    Grant { pod: TargetPod, due: Due },
    /// Leadership moves away, once.
    #[display("move leadership from {} to member {to}", pod.name)]
    MoveLeader { pod: TargetPod, to: MemberId },
    /// The grant is renewed, and the call is made.
    #[display("defragment {}", pod.name)]
    Begin { pod: TargetPod },
    /// The grant of a call that was not made is settled. `None`: another replica leads, or
    /// leadership did not move.
    #[display("leave {pod} as it is")]
    GiveUp {
        pod: PodName,
        because: Option<Refusal>,
    },
    /// The grant of a run that is over is settled.
    #[display("the defragmentation of {pod} is over")]
    Settle {
        pod: PodName,
        seen: quorum::DefragmentationProgress,
    },
    /// Alarms are disarmed, because every member has room again.
    #[display("disarm the NOSPACE alarms")]
    Disarm(Vec<MemberId>),
}

/// The reason why nothing is done.
pub(in crate::reconcile) enum Wait {
    /// A permission is open. `true`: this process waits for its own call.
    Running(bool),
    /// Every voter has to serve for a while.
    Serving,
    /// Nothing runs.
    Resting(plan::Next, Disarm),
}
