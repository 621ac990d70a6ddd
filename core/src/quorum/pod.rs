//! A pod of a cluster, as the Kubernetes API and the pod's node report it.
//!
//! These facts explain a member's silence. They never decide alone.

use std::time::Duration;

use super::id::{MemberId, Ordinal, PodName, PodUid};

/// A pod of the cluster's StatefulSet, read from the API server without a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact as the API states it, and they do not exclude each other"
)]
pub struct Pod {
    /// The name of the pod.
    pub name: PodName,
    /// The UID of this incarnation.
    pub uid: PodUid,
    /// The ordinal, if the name ends in one.
    pub ordinal: Option<Ordinal>,
    /// Whether the pod has a `deletionTimestamp`. The member does not serve from then on, whatever
    /// it answers.
    pub terminating: bool,
    /// Whether the pod has an IP address.
    pub has_address: bool,
    /// The state of the pod's node.
    pub node: Node,
    /// The containers as the node last reported them. The report is current only while the node is
    /// [`Node::Ready`].
    pub containers: Containers,
    /// The value of `containerStatuses[etcd].ready`.
    pub etcd_ready: bool,
    /// The time since etcd's container started, if it runs. A rollout sees by it whether a process
    /// lasts; no rule on quorum reads it.
    pub up_for: Option<Duration>,
    /// The age of etcd's process. Where that is not known, the time since its container started.
    pub etcd_age: Option<Duration>,
    /// Whether a container other than etcd's is reported as not ready. Only the order of a rollout
    /// depends on it.
    pub sidecar_failing: bool,
    /// Whether the pod's `Ready` condition is true.
    pub ready: bool,
    /// The time since that condition became true. `None` if it is not, or says no time.
    pub ready_for: Option<Duration>,
    /// The value of the label `controller-revision-hash`.
    pub revision: Option<String>,
    /// The role in the member's Lease, if there is one. Only `evidence: Readiness` uses it, and it
    /// may be out of date.
    pub lease_role: Option<LeaseRole>,
    /// The member id that the budget last recorded for this UID, or else for this member's name.
    pub recorded_id: Option<MemberId>,
}

/// The state of a pod's node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The pod is not bound to a node yet.
    Unscheduled,
    /// The node exists and is Ready, so its reports on containers are current.
    Ready,
    /// The node is not Ready, or its condition is unknown. Its last report proves nothing.
    NotReady,
    /// The node is not Ready and carries the taint `node.kubernetes.io/out-of-service`: a person
    /// vouches that it is off.
    OutOfService,
    /// The Node object is gone.
    Gone,
    /// The node could not be read, so the evidence is missing.
    Unread,
}

/// The containers of a pod as its node last reported them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Containers {
    /// All containers are reported as terminated.
    AllTerminated {
        /// Whether the pod's phase is Failed or Succeeded, so that they will not be started again.
        finished: bool,
    },
    /// etcd's container is terminated, or waits for a reason that names a failure
    /// (`CrashLoopBackOff`, `ErrImagePull`, …).
    EtcdFailed {
        /// The reported reason.
        reason: String,
    },
    /// The kubelet rejected the pod. None of its containers ever ran, and none will.
    Rejected {
        /// The reported reason.
        reason: String,
    },
    /// Containers are being created, or init containers run. etcd has not started in this
    /// incarnation.
    Creating,
    /// etcd's container runs.
    Running,
    /// The node reported nothing that can be used.
    Unreported,
}

/// The role in a member's Lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRole {
    /// The Lease says `Leader`.
    Leader,
    /// The Lease says `Member`, or anything else.
    Follower,
}
