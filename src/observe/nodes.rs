//! The state of a node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};

use super::pods;
use crate::api::names;
use crate::quorum::pod::Node;

/// The state of a node whose object exists.
pub(super) fn state(node: &NodeObject) -> Node {
    if is_ready(node) {
        Node::Ready
    } else if is_out_of_service(node) {
        Node::OutOfService
    } else {
        Node::NotReady
    }
}

/// The state of the node that a pod is bound to, among those that were read.
pub(super) fn of_pod(pod: &Pod, nodes: &BTreeMap<String, Node>) -> Node {
    match pods::node_name(pod) {
        None => Node::Unscheduled,
        Some(name) => nodes.get(name).copied().unwrap_or(Node::Unread),
    }
}

fn is_ready(node: &NodeObject) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn is_out_of_service(node: &NodeObject) -> bool {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_ref());
    let mut taints = taints.into_iter().flatten();
    taints.any(|taint| taint.key == names::OUT_OF_SERVICE)
}
