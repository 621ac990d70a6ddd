//! What somebody wants to do to a member.

use super::id::{PodName, PodUid};

/// One disruption that asks for permission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disruption {
    /// The pod it would take.
    pub target: TargetPod,
    /// What would be done.
    pub kind: Kind,
    /// Who asks.
    pub actor: Actor,
    /// Whether the pod gets its grace period.
    pub grace: Grace,
    /// The UID that the request insists on (a precondition), if any.
    pub precondition: Option<PodUid>,
}

/// The incarnation of a pod that a disruption is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPod {
    /// Its name.
    pub name: PodName,
    /// The incarnation that would go.
    pub uid: PodUid,
}

/// What would be done to the member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `DELETE pods`.
    Delete,
    /// `CREATE pods/eviction`. The API server asks the pod's `PodDisruptionBudget` after us (rule 10).
    Evict,
    /// A rollout replaces the pod by one of the update revision: it deletes it.
    RolloutStep,
    /// The same, by an eviction, so that `PodDisruptionBudget`s have their say (rule 10).
    RolloutEviction,
    /// The member's backend is defragmented: it blocks meanwhile.
    Defragment,
    /// The member's volume is replaced.
    Replace,
    /// The pod is updated in place, and its kubelet acts on that when it will.
    Restart(InPlace),
}

impl Kind {
    /// Whether a rollout does it.
    pub fn is_rollout_step(self) -> bool {
        matches!(self, Self::RolloutStep | Self::RolloutEviction)
    }

    /// Whether `PodDisruptionBudget`s are asked.
    pub fn is_eviction(self) -> bool {
        matches!(self, Self::Evict | Self::RolloutEviction)
    }
}

/// What about an update of a pod takes its member out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InPlace {
    /// A new image restarts etcd's container.
    Image,
    /// `activeDeadlineSeconds` ends the pod.
    Deadline,
    /// A resize restarts etcd's container, by the `resizePolicy` of a resource that changes.
    Resize,
}

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Actor {
    /// Anyone who is not named below.
    Stranger,
    /// A kubelet or the pod garbage collector: what they delete has ended already.
    NodeOrPodGc,
    /// This product's own controllers.
    Gate,
}

/// Whether the pod gets its grace period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grace {
    /// The pod's containers are stopped by its kubelet before the object goes.
    Graceful,
    /// Grace 0 asked for by the caller: the object goes at once, whether or not the containers still run.
    Forced,
}
