//! The steps of a replacement.

use derive_more::Display;

use crate::plan::replacement::{self as plan};
use crate::quorum::{MemberId, PodName, PodUid};

/// A step of the replacement.
#[derive(Debug, Display)]
pub(in crate::reconcile) enum Step {
    /// A step of a replacement, by the planner.
    #[display("{_0}")]
    Plan(plan::Step),
    /// The replacement ends before anything was changed.
    #[display("leave {pod} as it is: {because}")]
    Undo { pod: PodName, because: String },
    /// The CORRUPT alarm is disarmed, whose reason was removed.
    #[display("disarm the CORRUPT alarm of member {_0}")]
    Disarm(MemberId),
    /// A pod that waits is let go, because etcd expects it, or a new cluster begins with it.
    #[display("let {pod} start")]
    Start { pod: PodName, uid: PodUid },
    /// A pod that was made to join the old cluster is created anew for the one that begins.
    #[display("delete {pod}, which was made to join the cluster before")]
    CreateAnew { pod: PodName, uid: PodUid },
    /// The old cluster is forgotten, because a new one begins with these pods.
    #[display("forget the cluster before: a new one begins")]
    BeginAnew(Vec<PodUid>),
}

/// The reason why nothing is done.
pub(in crate::reconcile) enum Wait {
    /// The planner waits, or has nothing to do.
    Plan(plan::Next),
    /// etcd refused to remove a member, with these words.
    MembersStay(String),
}
