//! Labels of a cluster's objects.

use serde_json::{Value, json};

use crate::etcd_cluster::spec::{Shape, Spec};

/// The label on every pod with the name of its cluster, whatever its shape.
const CLUSTER: &str = "testbed.quorumgate.io/cluster";

/// The selector of a cluster's pods and of no others.
pub(in crate::etcd_cluster) fn cluster_selector(spec: &Spec) -> String {
    format!("{CLUSTER}={}", spec.name)
}

/// The selector of the StatefulSet and of the Services.
pub(super) fn selector(spec: &Spec) -> Value {
    match spec.shape {
        Shape::Enrolled | Shape::Foreign => json!({"app": spec.name}),
        Shape::Druid => druid_defaults(spec),
    }
}

/// The labels of the pod template.
pub(super) fn pod(spec: &Spec) -> Value {
    match spec.shape {
        Shape::Enrolled | Shape::Foreign => json!({"app": spec.name, CLUSTER: spec.name}),
        Shape::Druid => json!({
            "app.kubernetes.io/managed-by": "etcd-druid",
            "app.kubernetes.io/part-of": spec.name,
            "app.kubernetes.io/component": "etcd-statefulset",
            "app.kubernetes.io/name": spec.name,
            CLUSTER: spec.name,
        }),
    }
}

/// The labels of the StatefulSet itself.
pub(super) fn stateful_set(spec: &Spec) -> Value {
    match spec.shape {
        Shape::Enrolled => json!({"app": spec.name, "quorumgate.io/enroll": "true"}),
        Shape::Foreign => json!({"app": spec.name}),
        Shape::Druid => pod(spec),
    }
}

/// The two labels of all objects of druid, which its StatefulSet and its `PodDisruptionBudget`
/// select.
pub(super) fn druid_defaults(spec: &Spec) -> Value {
    json!({
        "app.kubernetes.io/managed-by": "etcd-druid",
        "app.kubernetes.io/part-of": spec.name,
    })
}

/// The labels of druid's objects other than the StatefulSet.
pub(super) fn druid_component(spec: &Spec, component: &str, name: &str) -> Value {
    json!({
        "app.kubernetes.io/managed-by": "etcd-druid",
        "app.kubernetes.io/part-of": spec.name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/name": name,
    })
}
