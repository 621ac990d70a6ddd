//! The objects of a cluster of three members, as an API server has them: `etcd` in namespace `db`.

use serde_json::{Value, json};

/// The path of its budget.
pub(crate) const BUDGET: &str =
    "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets/etcd";
/// The path of its StatefulSet.
pub(crate) const SET: &str = "/apis/apps/v1/namespaces/db/statefulsets/etcd";
/// The path of its namespace.
pub(crate) const NAMESPACE: &str = "/api/v1/namespaces/db";

/// A running and Ready pod of the StatefulSet `etcd` (UID `set-1`), merged with `change`.
pub(crate) fn pod_json(ordinal: u32, change: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("etcd-{ordinal}"), "namespace": "db", "uid": format!("u{ordinal}"),
            "creationTimestamp": "2026-01-01T00:00:10Z",
            "labels": {
                "app": "etcd", "controller-revision-hash": "etcd-1",
                "statefulset.kubernetes.io/pod-name": format!("etcd-{ordinal}"),
            },
            "ownerReferences": [owner_of_pods("set-1")],
        },
        "spec": {
            "nodeName": format!("node-{ordinal}"), "subdomain": "etcd-peer",
            "containers": [{"name": "etcd", "image": "etcd"}],
        },
        "status": {
            "phase": "Running", "podIP": format!("10.0.0.{ordinal}"),
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "etcd", "image": "etcd", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}},
            }],
        },
    });
    json_patch::merge(&mut pod, change);
    pod
}

pub(crate) fn owner_of_pods(uid: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": uid, "controller": true})
}

/// The StatefulSet `etcd` (UID `set-1`) with 3 replicas, merged with `change`.
pub(crate) fn set_json(change: &Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": "etcd", "namespace": "db", "uid": "set-1"},
        "spec": {
            "replicas": 3, "serviceName": "etcd-peer", "selector": {"matchLabels": {"app": "etcd"}},
            "template": {"metadata": {"labels": {"app": "etcd"}}, "spec": {"containers": [{"name": "etcd"}]}},
        },
        "status": {"replicas": 3, "updateRevision": "etcd-2"},
    });
    json_patch::merge(&mut set, change);
    set
}

/// The budget of `etcd` (UID `budget-1`), merged with `change`.
pub(crate) fn budget_json(change: &Value) -> Value {
    let mut budget = json!({
        "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
        "metadata": {
            "name": "etcd", "namespace": "db", "uid": "budget-1", "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:20Z",
        },
        "spec": {"statefulSetName": "etcd"},
    });
    json_patch::merge(&mut budget, change);
    budget
}
