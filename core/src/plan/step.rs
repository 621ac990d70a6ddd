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
    /// Moves leadership away from the pod's member, which then goes.
    MoveLeader {
        /// The member that leads from then on.
        to: MemberId,
        /// How it goes.
        then: Departure,
    },
}

/// How a pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Departure {
    /// It is deleted.
    Delete,
    /// It is evicted: its `PodDisruptionBudget` has its say.
    Evict,
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
        disruption(self.pod.clone(), self.action.departure())
    }

    /// What it does to the member, for the judge.
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
    /// How the pod goes in the end.
    pub fn departure(self) -> Departure {
        match self {
            Self::Delete => Departure::Delete,
            Self::Evict => Departure::Evict,
            Self::MoveLeader { then, .. } => then,
        }
    }

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
pub(super) fn disruption(target: TargetPod, departure: Departure) -> Disruption {
    Disruption {
        precondition: Some(target.uid.clone()),
        target,
        kind: departure.kind(),
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
