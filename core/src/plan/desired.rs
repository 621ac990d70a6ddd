//! What a rollout is asked to do, and what was watched meanwhile: everything that a snapshot does not say.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::max_unavailable::MaxUnavailable;
use crate::quorum::{Ordinal, PodName, Switch};

/// The wishes of a cluster's owner, the StatefulSet's own settings, and ages that need a clock.
///
/// The revision that pods are moved to, the revision that may go on without quorum, and for how long quorum has been lost or a
/// learner made no progress, are in the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// How far the StatefulSet controller has read the StatefulSet.
    pub generation: Generation,
    /// `spec.ordinals.start` of the StatefulSet: the first of its ordinals.
    pub first_ordinal: Ordinal,
    /// How pods are created.
    pub management: PodManagement,
    /// How many of the lowest ordinals keep their revision.
    pub partition: u32,
    /// Whether no new step may begin.
    pub paused: bool,
    /// How many members may be out at once.
    pub max_unavailable: MaxUnavailable,
    /// How a pod goes.
    pub removal: Removal,
    /// How outdated members that do not serve are replaced.
    pub non_serving: NonServing,
    /// Whether a serving member goes earlier while a container beside its etcd is unhealthy.
    pub sidecar_first: bool,
    /// What keeps old and new members from forming a quorum together, if anything does.
    pub obstacle: Option<Obstacle>,
    /// Whether leadership can be moved.
    pub handover: Handover,
    /// For how long each pod has been missing or has not served. Those that serve are absent.
    pub out_for: BTreeMap<PodName, Duration>,
}

impl Desired {
    /// What there is to do where nobody chose anything: DEP-07 as it is written.
    pub fn by_default() -> Self {
        Self {
            generation: Generation {
                desired: 1,
                observed: 1,
            },
            first_ordinal: Ordinal(0),
            management: PodManagement::Parallel,
            partition: 0,
            paused: false,
            max_unavailable: MaxUnavailable::Members(1),
            removal: Removal::Delete,
            non_serving: NonServing::OneAtATime,
            sidecar_first: false,
            obstacle: None,
            handover: Handover::Possible,
            out_for: BTreeMap::new(),
        }
    }
}

/// `metadata.generation` of the StatefulSet beside its `status.observedGeneration`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// Counts the changes of the specification.
    pub desired: i64,
    /// The last one that the StatefulSet controller has taken in; 0 before it has seen any.
    pub observed: i64,
}

impl Generation {
    /// Whether the status, and so the update revision, is about the specification as it stands.
    pub fn is_observed(self) -> bool {
        self.observed >= self.desired
    }
}

/// `spec.podManagementPolicy` of the StatefulSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodManagement {
    /// No pod is created above one that is not ready.
    OrderedReady,
    /// Pods are created as they are missing.
    Parallel,
}

/// How an outdated pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// By a delete with preconditions.
    Delete,
    /// Members that serve and whose other containers are healthy by an eviction, so that `PodDisruptionBudget`s have their say; all
    /// others by a delete.
    EvictHealthy,
}

/// How outdated members that do not serve are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonServing {
    /// One in each cycle.
    OneAtATime,
    /// All that may go in one cycle.
    AllAtOnce,
}

/// A change that keeps old and new members apart, so that the cluster cannot be rolled one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Obstacle {
    /// TLS between the members is switched.
    PeerTls(Switch),
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerTls(switch) => write!(
                f,
                "it switches TLS between the members {switch}, and members with it do not talk to those without"
            ),
        }
    }
}

/// Whether leadership can be moved now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// As far as is known.
    Possible,
    /// It was moved a moment ago and is left alone for a while.
    Resting {
        /// For how long still.
        remaining: Duration,
    },
    /// etcd refuses it to us: a leader goes as leader.
    Refused,
}
