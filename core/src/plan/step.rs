//! A step of a rollout.

use std::fmt;

use super::state::State;
use crate::quorum::{Disruption, Kind, MemberId, TargetPod};

/// The next thing to do to one pod, and the reason. `Display` is a sentence.
///
/// ```
/// use quorumgate_core::plan::{Action, Because, Departure, Part, Step};
/// use quorumgate_core::quorum::{Kind, MemberId, TargetPod};
///
/// let step = Step {
///     pod: TargetPod { name: "etcd-main-0".into(), uid: "uid-0".into() },
///     action: Action::MoveLeader { to: MemberId(2), then: Departure::Delete },
///     because: Because::Serving(Part::Leader),
/// };
/// let text = step.to_string();
/// assert!(text.starts_with("move leadership from etcd-main-0 to member 2, then delete"));
/// // Permission is asked for the delete that follows the move.
/// assert_eq!(step.disruption().kind, Kind::RolloutStep);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The pod to replace. Its UID is a precondition of the delete or eviction.
    pub pod: TargetPod,
    /// The thing to do.
    pub action: Action,
    /// The reason why it is this member's turn.
    pub because: Because,
}

/// The kinds of steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Action {
    /// Deletes the pod.
    Delete,
    /// Evicts the pod.
    Evict,
    /// Moves leadership away from the member, which then goes.
    MoveLeader {
        /// The member that takes leadership over.
        to: MemberId,
        /// The way in which the pod goes afterwards.
        then: Departure,
    },
}

/// The way in which a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Departure {
    /// A delete.
    Delete,
    /// An eviction, which the pod's `PodDisruptionBudget` may refuse.
    Evict,
}

/// The reason why it is a member's turn.
#[derive(
    Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames, derive_more::Display,
)]
pub enum Because {
    /// The member does not serve, so its replacement costs nothing (step 2).
    #[display("is outdated and {_0}")]
    NonServing(State),
    /// The member serves, and a container beside etcd is unhealthy (step 4 with `sidecarFirst`).
    #[display("is an outdated {_0} with an unhealthy container beside etcd")]
    SidecarFirst(Part),
    /// The member serves, and no other one comes first (step 4).
    #[display("is an outdated {_0}")]
    Serving(Part),
}

/// The part of a serving member in raft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Part {
    /// A follower.
    Follower,
    /// The leader.
    Leader,
}

impl Step {
    /// The disruption that this step needs permission for. Leadership moves only if the member may
    /// go right after.
    pub fn disruption(&self) -> Disruption {
        disruption(self.pod.clone(), self.action.departure())
    }

    /// The kind of disruption.
    pub fn kind(&self) -> Kind {
        self.action.departure().kind()
    }
}

impl Departure {
    fn kind(self) -> Kind {
        match self {
            Self::Delete => Kind::RolloutStep,
            Self::Evict => Kind::RolloutEviction,
        }
    }
}

impl Action {
    /// The way in which the pod goes in the end.
    pub fn departure(self) -> Departure {
        match self {
            Self::Delete => Departure::Delete,
            Self::Evict => Departure::Evict,
            Self::MoveLeader { then, .. } => then,
        }
    }

    /// The stable identifier of the action, for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

impl Because {
    /// The stable identifier of the reason, for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

/// The request of a rollout to take a pod.
pub(super) fn disruption(target: TargetPod, departure: Departure) -> Disruption {
    Disruption::of_gate(target, departure.kind())
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pod,
            action,
            because,
        } = self;
        match action {
            Action::Delete => write!(f, "delete {}: it {because}", pod.name),
            Action::Evict => write!(f, "evict {}: it {because}", pod.name),
            Action::MoveLeader { to, then } => {
                let name = &pod.name;
                write!(
                    f,
                    "move leadership from {name} to member {to}, then {then} {name}: it {because}"
                )
            }
        }
    }
}
