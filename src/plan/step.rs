//! One step of a rollout.

use std::fmt;

use super::state::State;
use crate::quorum::{Actor, Disruption, Grace, Kind, MemberId, TargetPod};

/// What to do next, to whom, and why. `Display` is a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The incarnation that is to be replaced. It goes with this UID as a precondition, or not at all.
    pub pod: TargetPod,
    /// What is done.
    pub action: Action,
    /// Why it is this one's turn.
    pub because: Because,
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Action {
    /// Deletes the pod.
    Delete,
    /// Evicts the pod.
    Evict,
    /// Moves leadership away from the pod's member, which goes in a later step.
    MoveLeader {
        /// The member that leads from then on.
        to: MemberId,
    },
}

/// Why it is a member's turn.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Because {
    /// It does not serve, so replacing it costs nothing (step 2).
    NonServing(State),
    /// It serves, and a container beside its etcd is unhealthy (step 4 with `sidecarFirst`).
    SidecarFirst(Part),
    /// It serves, and nobody else goes before it (step 4).
    Serving(Part),
}

/// The part a serving member has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Part {
    /// It follows.
    Follower,
    /// It leads.
    Leader,
}

impl Step {
    /// What the gate is asked for before this step. Leadership is only moved where the member may go right after.
    pub fn disruption(&self) -> Disruption {
        disruption(self.pod.clone())
    }
}

impl Action {
    /// A stable word for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

impl Because {
    /// A stable word for metrics and status.
    pub fn slug(&self) -> &'static str {
        self.into()
    }
}

/// A rollout's wish to take a pod.
pub(super) fn disruption(target: TargetPod) -> Disruption {
    Disruption {
        precondition: Some(target.uid.clone()),
        target,
        kind: Kind::RolloutStep,
        actor: Actor::Gate,
        grace: Grace::Graceful,
    }
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
            Action::MoveLeader { to } => {
                write!(
                    f,
                    "move leadership from {} to member {to}: it {because}",
                    pod.name
                )
            }
        }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NonServing(state) => write!(f, "is outdated and {state}"),
            Self::SidecarFirst(part) => write!(
                f,
                "is an outdated {part} with an unhealthy container beside etcd"
            ),
            Self::Serving(part) => write!(f, "is an outdated {part}"),
        }
    }
}
