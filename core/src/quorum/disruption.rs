//! Disruptions: requests to take a member out on purpose.

use super::id::{PodName, PodUid};

/// A request to take one member out, as [`decide()`](super::decide()) judges it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disruption {
    /// The pod that would go.
    pub target: TargetPod,
    /// The kind of disruption.
    pub kind: Kind,
    /// The asker.
    pub actor: Actor,
    /// Whether the pod keeps its grace period.
    pub grace: Grace,
    /// The UID in the request's preconditions, if it has one.
    pub precondition: Option<PodUid>,
}

impl Disruption {
    /// A disruption of this incarnation by the gate's own controllers.
    pub fn of_gate(target: TargetPod, kind: Kind) -> Self {
        Self {
            precondition: Some(target.uid.clone()),
            target,
            kind,
            actor: Actor::Gate,
            grace: Grace::Graceful,
        }
    }
}

/// A pod of a given name and UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPod {
    /// The name of the pod.
    pub name: PodName,
    /// The UID of the incarnation that would go.
    pub uid: PodUid,
}

/// The kinds of disruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A `DELETE pods` request.
    Delete,
    /// A `CREATE pods/eviction` request. After the gate the API server asks the pod's
    /// `PodDisruptionBudget` (rule 10).
    Evict,
    /// A rollout deletes the pod, to have it created again with the update revision.
    RolloutStep,
    /// A rollout evicts the pod, so that `PodDisruptionBudget`s are respected (rule 10).
    RolloutEviction,
    /// A defragmentation of the member's database. The member blocks until it is done.
    Defragment,
    /// A replacement of the member's volume.
    Replace,
    /// The member is removed from etcd for good, and its pod goes.
    Remove,
    /// The member starts again as the only one of its cluster, with what it has.
    Recover,
    /// An update of the pod in place. The kubelet acts on such an update at a time of its own
    /// choosing.
    Restart(InPlace),
}

impl Kind {
    /// Whether a rollout asks for this disruption.
    pub fn is_rollout_step(self) -> bool {
        matches!(self, Self::RolloutStep | Self::RolloutEviction)
    }

    /// Whether the pod ends by this disruption, so that the next one starts in its place.
    pub fn ends_the_pod(self) -> bool {
        self != Self::Defragment
    }

    /// Whether `PodDisruptionBudget`s apply to this disruption.
    pub fn is_eviction(self) -> bool {
        matches!(self, Self::Evict | Self::RolloutEviction)
    }
}

/// The kinds of pod updates that take a member out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {
    /// A new image: etcd's container restarts.
    Image,
    /// `activeDeadlineSeconds`: the pod ends.
    Deadline,
    /// A resize of a resource whose `resizePolicy` is `RestartContainer`: etcd's container
    /// restarts.
    Resize,
    /// The removal of the gate's scheduling gate: a member starts whose data is not there.
    Start,
}

/// The asker of a disruption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// Every asker except the two below.
    Stranger,
    /// A kubelet or the pod garbage collector. They delete only pods that have ended.
    NodeOrPodGc,
    /// The controllers of quorumgate.
    Gate,
}

/// Whether a pod keeps its grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// The kubelet stops the containers before the pod object is removed.
    Graceful,
    /// The caller asked for grace 0. The pod object is removed at once, even if its containers
    /// still run.
    Forced,
}

impl Grace {
    /// The grace that a request of this kind leaves its pod, from the grace that it states. An
    /// eviction does not show its pod: `goes_at_once` says whether the API server removes the pod
    /// without a grace period unless a request states one.
    #[must_use]
    pub fn for_request(self, kind: Kind, goes_at_once: bool) -> Self {
        if kind.is_eviction() && goes_at_once {
            Self::Forced
        } else {
            self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_eviction_goes_at_once_without_asking_for_it() {
        assert_eq!(
            Grace::Graceful.for_request(Kind::Evict, true),
            Grace::Forced
        );
        assert_eq!(
            Grace::Graceful.for_request(Kind::Evict, false),
            Grace::Graceful
        );
        assert_eq!(
            Grace::Graceful.for_request(Kind::Delete, true),
            Grace::Graceful
        );
        assert_eq!(
            Grace::Forced.for_request(Kind::Delete, false),
            Grace::Forced
        );
    }
}
