//! What is known of a member's process from the Kubernetes API. It refines what etcd did not say, and never speaks against what it said.

use super::evidence::Unanswered;
use super::pod::{Containers, Node, Pod};

/// What is known of a member's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum ProcessState {
    /// It does not run, and this incarnation may start again.
    Dead,
    /// It does not run and nothing will start this incarnation again: its node is gone or out of service, or it has finished.
    #[strum(serialize = "dead for good")]
    DeadForGood,
    /// It has not started in this incarnation: its containers are being created, or etcd's container runs, is not ready, and nothing listens
    /// yet. It does not serve, and may soon.
    Starting,
    /// It runs, or it may.
    Alive,
    /// It has no pod here.
    Elsewhere,
}

impl ProcessState {
    /// Whether its process is known not to run.
    pub fn is_down(self) -> bool {
        match self {
            Self::Dead | Self::DeadForGood | Self::Starting => true,
            Self::Alive | Self::Elsewhere => false,
        }
    }
}

/// What a missing status says beyond what the pod's node reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// Connections are refused: nothing listens at the pod's address.
    Refused,
    /// There is no address to connect to, or nobody may connect (`evidence: Readiness`): the node's word has to do.
    NoAddress,
    /// It timed out, or failed in another way: proves nothing.
    Unproven,
}

impl Silence {
    /// What a missing status proves.
    pub(super) fn of(unanswered: &Unanswered, pod: &Pod) -> Self {
        match unanswered {
            _ if !pod.has_address => Self::NoAddress,
            Unanswered::Refused => Self::Refused,
            _ => Self::Unproven,
        }
    }
}

/// Whether its kubelet calls etcd's container ready, and is to be believed. A member that refuses the gate may serve then: the gate may
/// have asked a wrong port, and a network policy may refuse in the member's name, where its kubelet asks from elsewhere. One without any
/// readiness probe is called ready as soon as it runs, which proves as little.
pub(super) fn is_called_ready(pod: &Pod) -> bool {
    pod.node == Node::Ready && pod.containers == Containers::Running && pod.etcd_ready
}

/// What is known of the process of a pod that gave no status of its own.
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
        (Containers::Creating, Silence::Refused | Silence::NoAddress) => ProcessState::Starting,
        (Containers::Running, Silence::Refused) if !is_called_ready(pod) => ProcessState::Starting,
        (Containers::EtcdFailed { .. } | Containers::Creating, Silence::Unproven)
        | (Containers::Running | Containers::Unreported, _) => ProcessState::Alive,
    }
}
