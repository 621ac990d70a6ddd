//! The wishes for a rollout, and the ages that were watched meanwhile: everything that a snapshot
//! does not say.

use std::collections::BTreeMap;
use std::time::Duration;

use super::max_unavailable::MaxUnavailable;
use super::preflight::Finding;
use crate::quorum::{Ordinal, PodName, Switch};

/// The owner's wishes, the settings of the StatefulSet, and the ages that need a clock.
///
/// The snapshot holds the rest: the update revision, the revision that may go on without quorum,
/// and the time for which quorum has been lost or a learner has made no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    /// Whether the StatefulSet controller has read the latest specification.
    pub generation: Generation,
    /// The first ordinal: `spec.ordinals.start` of the StatefulSet.
    pub first_ordinal: Ordinal,
    /// The order in which pods are created.
    pub management: PodManagement,
    /// The number of lowest ordinals that keep their revision.
    pub partition: u32,
    /// Whether no new step may begin.
    pub paused: bool,
    /// The number of members that may be unavailable at once.
    pub max_unavailable: MaxUnavailable,
    /// The way in which a pod goes.
    pub removal: Removal,
    /// The number of non-serving members that one cycle replaces.
    pub non_serving: NonServing,
    /// Whether members with an unhealthy container beside etcd go before the others
    /// (`sidecarFirst`).
    pub sidecar_first: bool,
    /// Whether an updated pod that is not Ready by a sidecar alone holds the rollout.
    pub sidecars: Sidecars,
    /// The time for which an updated member has to serve before the next serving member goes.
    pub soak: Duration,
    /// The change that keeps updated and outdated members from forming a quorum together, if there
    /// is one.
    pub obstacle: Option<Obstacle>,
    /// The faults that the template showed before its first member went.
    pub findings: Vec<Finding>,
    /// The revision that a person lets go on with them.
    pub accepted_findings: Option<String>,
    /// Whether leadership can be moved now.
    pub handover: Handover,
    /// The time for which each pod has been missing or its member has not served. Members that
    /// serve are absent from the map.
    pub out_for: BTreeMap<PodName, Duration>,
}

impl Desired {
    /// The defaults: DEP-07 as it is written.
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
            sidecars: Sidecars::Ignore,
            soak: Duration::ZERO,
            obstacle: None,
            findings: Vec::new(),
            accepted_findings: None,
            handover: Handover::Possible,
            out_for: BTreeMap::new(),
        }
    }
}

/// The generation of the StatefulSet, and the one that its controller has observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// `metadata.generation`, which counts the changes of the specification.
    pub desired: i64,
    /// `status.observedGeneration`; 0 before the controller has seen any.
    pub observed: i64,
}

impl Generation {
    /// Whether the status, and with it the update revision, belongs to the present specification.
    pub fn is_observed(self) -> bool {
        self.observed >= self.desired
    }
}

/// `spec.podManagementPolicy` of the StatefulSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodManagement {
    /// No pod is created above one that is not ready.
    OrderedReady,
    /// Missing pods are created at once, in any order.
    Parallel,
}

/// The way in which an outdated pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// A delete with preconditions.
    Delete,
    /// An eviction for members that serve and whose other containers are healthy, so that
    /// `PodDisruptionBudget`s are respected. A delete for all others (DEP-06).
    EvictHealthy,
}

/// The number of outdated non-serving members that one cycle replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonServing {
    /// A single member.
    OneAtATime,
    /// All members that may go.
    AllAtOnce,
}

/// Whether an updated member that serves and is not Ready holds the rollout where a sidecar alone
/// is the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sidecars {
    /// The rollout goes on.
    Ignore,
    /// The rollout waits until the pod is Ready.
    Hold,
}

/// A change that keeps updated and outdated members apart, so that the members cannot be replaced
/// one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
pub enum Obstacle {
    /// TLS between the members is switched on or off.
    #[display(
        "it switches TLS between the members {_0}, and members with it do not talk to those without"
    )]
    PeerTls(Switch),
}

/// Whether leadership can be moved now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handover {
    /// Leadership can be moved, as far as is known.
    Possible,
    /// Leadership moved a moment ago, and stays for a while.
    Resting {
        /// The time until leadership may move again.
        remaining: Duration,
    },
    /// etcd refuses to move leadership for the gate. A leader goes as leader.
    Refused,
}
