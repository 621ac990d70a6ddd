//! What is known of a member's process from the Kubernetes API. It refines what etcd did not say, and never speaks against what it said.

use super::evidence::Unanswered;
use super::pod::{Containers, Node, Pod};

/// What is known of a member's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Body {
    /// It does not run, and this incarnation may start again.
    Dead,
    /// It does not run and nothing will start this incarnation again: its node is gone or out of service, or it has finished.
    #[strum(serialize = "dead for good")]
    DeadForGood,
    /// It has not started in this incarnation.
    Starting,
    /// It runs, or it may.
    Alive,
    /// It has no pod here.
    Elsewhere,
}

impl Body {
    /// Whether its process is known not to run.
    pub fn is_down(self) -> bool {
        match self {
            Self::Dead | Self::DeadForGood | Self::Starting => true,
            Self::Alive | Self::Elsewhere => false,
        }
    }
}

/// Whether, beyond what its node reports, nothing listens at the pod's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// Connections are refused, or there is no address to connect to.
    Proven,
    /// It timed out, or failed in another way: proves nothing.
    Unproven,
}

impl Silence {
    /// What a missing status proves.
    pub(super) fn of(unanswered: &Unanswered, pod: &Pod) -> Self {
        if *unanswered == Unanswered::Refused || !pod.has_address {
            Self::Proven
        } else {
            Self::Unproven
        }
    }
}

/// What is known of the process of a pod that gave no status of its own.
pub(super) fn of_silent(pod: &Pod, silence: Silence) -> Body {
    match pod.node {
        Node::Gone | Node::OutOfService => Body::DeadForGood,
        Node::Unscheduled => Body::Starting,
        Node::NotReady | Node::Unread => Body::Alive,
        Node::Ready => reported(&pod.containers, silence),
    }
}

fn reported(containers: &Containers, silence: Silence) -> Body {
    match (containers, silence) {
        (Containers::AllTerminated { finished: true }, _) => Body::DeadForGood,
        (Containers::AllTerminated { finished: false }, _)
        | (Containers::EtcdFailed { .. }, Silence::Proven) => Body::Dead,
        (Containers::Creating, Silence::Proven) => Body::Starting,
        (Containers::EtcdFailed { .. } | Containers::Creating, Silence::Unproven)
        | (Containers::Running | Containers::Unreported, _) => Body::Alive,
    }
}
