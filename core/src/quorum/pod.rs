//! What the Kubernetes API says of one pod of a cluster: facts, refined by its node, that never decide alone.

use std::time::Duration;

use super::id::{MemberId, Ordinal, PodName, PodUid};

/// A pod of the cluster's StatefulSet, read uncached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact as the API states it, and they do not exclude each other"
)]
pub struct Pod {
    /// Its name.
    pub name: PodName,
    /// Its incarnation.
    pub uid: PodUid,
    /// Its ordinal, where its name has one.
    pub ordinal: Option<Ordinal>,
    /// Whether it has a `deletionTimestamp`: it serves no quorum from then on, whatever it answers.
    pub terminating: bool,
    /// Whether it has an address.
    pub has_address: bool,
    /// What its node says, or fails to say.
    pub node: Node,
    /// What its node last reported of the containers. Worth something only while the node is [`Node::Ready`].
    pub containers: Containers,
    /// `containerStatuses[etcd].ready`.
    pub etcd_ready: bool,
    /// For how long etcd's container has been running, where it is. No part of quorum either: it tells a rollout whether a process lasts.
    pub up_for: Option<Duration>,
    /// Whether a container beside etcd's is reported as not ready. No part of quorum: it only bears on the order of a rollout.
    pub sidecar_failing: bool,
    /// The pod's `Ready` condition.
    pub ready: bool,
    /// Its `controller-revision-hash`.
    pub revision: Option<String>,
    /// The role in its member Lease, where there is one. Used only with `evidence: Readiness`; may be stale.
    pub lease_role: Option<LeaseRole>,
    /// The member id last recorded in the budget for this UID, or else for this member's name.
    pub recorded_id: Option<MemberId>,
}

/// The state of a pod's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The pod is not bound to a node yet.
    Unscheduled,
    /// The node object exists and is Ready: what it reports of containers is current.
    Ready,
    /// The node is not Ready (or its condition unknown): what it last reported proves nothing.
    NotReady,
    /// The node is not Ready and carries the out-of-service taint: somebody vouches that it is off.
    OutOfService,
    /// The node object is gone.
    Gone,
    /// The node could not be read. Missing evidence.
    Unread,
}

/// The containers of a pod as its node last reported them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Containers {
    /// All containers are reported terminated.
    AllTerminated {
        /// Whether the pod's phase is Failed or Succeeded: they will not be started again.
        finished: bool,
    },
    /// etcd's container is terminated, or waits with a reason that names a failure (`CrashLoopBackOff`, `ErrImagePull`, …).
    EtcdFailed {
        /// The reason reported.
        reason: String,
    },
    /// Its kubelet rejected the pod: none of its containers ever ran, nor will.
    Rejected {
        /// The reason reported.
        reason: String,
    },
    /// Containers are being created, or init containers run: etcd has not started in this incarnation.
    Creating,
    /// etcd's container runs.
    Running,
    /// Nothing usable was reported.
    Unreported,
}

/// The role that a member Lease names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRole {
    /// `Leader`.
    Leader,
    /// `Member`, or any other.
    Follower,
}
