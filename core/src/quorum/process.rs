//! The state of a member's process, from the Kubernetes API.
//!
//! The state explains why a member did not answer. An answer of etcd is never contradicted by it.

use super::evidence::Unanswered;
use super::pod::{Containers, Node, Pod};

/// The state of a member's process. `Display` gives the word that refusals use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum ProcessState {
    /// The process does not run. The same incarnation of the pod may start it again.
    Dead,
    /// The process does not run, and this incarnation of the pod will not start it again: the node
    /// is gone or out of service, the pod has finished, or the kubelet rejected the pod.
    #[strum(serialize = "dead for good")]
    DeadForGood,
    /// The process has not started to serve in this incarnation. Either the containers are being
    /// created, or etcd's container runs, is not ready, and nothing listens at the client port yet.
    /// The member may serve a moment later.
    Starting,
    /// The process runs, or nothing proves that it does not.
    Alive,
    /// The member has no pod in this StatefulSet.
    Elsewhere,
}

impl ProcessState {
    /// Whether the process is known not to serve: dead, dead for good, or starting.
    pub fn is_down(self) -> bool {
        match self {
            Self::Dead | Self::DeadForGood | Self::Starting => true,
            Self::Alive | Self::Elsewhere => false,
        }
    }
}

/// The proof that a missing status gives, apart from the node's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// The connection was refused, and that is believed: nothing listens at the pod's address.
    Refused,
    /// The pod has no address, or nobody may connect (`evidence: Readiness`). The node's report is
    /// taken alone.
    NoAddress,
    /// A timeout, another failure, or a refusal that is not believed. Each proves nothing.
    Unproven,
}

/// Whether the refusal of a connection is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectionRefusal {
    /// The process itself refuses: nothing listens.
    Believed,
    /// Something on the way may refuse, and the process may well serve.
    Doubted,
}

impl Silence {
    /// The proof in a missing status of `pod`.
    pub(super) fn new(unanswered: &Unanswered, pod: &Pod, refusal: ConnectionRefusal) -> Self {
        match unanswered {
            _ if !pod.has_address => Self::NoAddress,
            Unanswered::Refused if refusal == ConnectionRefusal::Believed => Self::Refused,
            Unanswered::Refused
            | Unanswered::NoAddress
            | Unanswered::Deadline
            | Unanswered::Mute
            | Unanswered::Defragmenting
            | Unanswered::Tls(_)
            | Unanswered::Denied(_)
            | Unanswered::NoLeader
            | Unanswered::Learner
            | Unanswered::NotAsked
            | Unanswered::Other(_) => Self::Unproven,
        }
    }
}

/// Whether the kubelet of a Ready node reports etcd's container as ready.
///
/// Such a member may serve although it refused the gate's connection. The gate may have asked the
/// wrong port, or a network policy may reject the gate's connections but not the kubelet's. A
/// container without a readiness probe is reported ready as soon as it runs; that proves no more,
/// but the cautious answer is the same.
pub(super) fn is_called_ready(pod: &Pod) -> bool {
    pod.node == Node::Ready && pod.containers == Containers::Running && pod.etcd_ready
}

/// Whether the Kubernetes API alone says that etcd does not run in this pod. A refusal adds nothing
/// to that, so the way by which it came makes no difference.
pub(super) fn is_called_down(pod: &Pod) -> bool {
    match pod.node {
        Node::Gone | Node::OutOfService | Node::Unscheduled => true,
        Node::NotReady | Node::Unread => false,
        Node::Ready => !matches!(pod.containers, Containers::Running | Containers::Unreported),
    }
}

/// The state of the process in a pod that gave no status.
pub(super) fn of_silent(pod: &Pod, silence: Silence) -> ProcessState {
    match pod.node {
        Node::Gone | Node::OutOfService => ProcessState::DeadForGood,
        Node::Unscheduled => ProcessState::Starting,
        Node::NotReady | Node::Unread => ProcessState::Alive,
        Node::Ready => reported(pod, silence),
    }
}

fn reported(pod: &Pod, silence: Silence) -> ProcessState {
    match (&pod.containers, silence) {
        (Containers::AllTerminated { finished: true } | Containers::Rejected { .. }, _) => {
            ProcessState::DeadForGood
        }
        (Containers::AllTerminated { finished: false }, _)
        | (Containers::EtcdFailed { .. }, Silence::Refused | Silence::NoAddress) => {
            ProcessState::Dead
        }
        (Containers::Creating, Silence::Refused | Silence::NoAddress)
        | (Containers::Running, Silence::Refused) => ProcessState::Starting,
        (Containers::EtcdFailed { .. } | Containers::Creating, Silence::Unproven)
        | (Containers::Running | Containers::Unreported, _) => ProcessState::Alive,
    }
}
