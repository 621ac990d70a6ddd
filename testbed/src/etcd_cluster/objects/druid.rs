//! The objects of etcd-druid beside the StatefulSet: member Leases, the client Service, the
//! `PodDisruptionBudget`.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::{labels, server_side};
use crate::etcd_cluster::spec::{Spec, Tls};

/// Applies all of these objects.
pub(super) async fn apply(client: &kube::Client, namespace: &str, spec: &Spec) -> Result<()> {
    for ordinal in 0..spec.replicas {
        server_side::<Lease>(client, namespace, member_lease(spec, ordinal)).await?;
    }
    server_side::<Service>(client, namespace, client_service(spec)).await?;
    server_side::<PodDisruptionBudget>(client, namespace, disruption_budget(spec)).await
}

/// The Lease of a member, which is empty until the first heartbeat.
fn member_lease(spec: &Spec, ordinal: u32) -> Value {
    let name = spec.member_name(&spec.pod(ordinal));
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "labels": labels::druid_component(spec, "etcd-member-lease", &name),
            "annotations": {
                "member.etcd.gardener.cloud/tls-enabled": (spec.tls == Tls::Mutual).to_string(),
            },
        },
    })
}

fn client_service(spec: &Spec) -> Value {
    let name = format!("{}-client", spec.name);
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "labels": labels::druid_component(spec, "etcd-client-service", &name),
        },
        "spec": {
            "selector": labels::pod(spec),
            "ports": [
                {"name": "client", "port": 2379},
                {"name": "backuprestore", "port": 8080},
            ],
        },
    })
}

/// The `PodDisruptionBudget`, which keeps the majority. A single member may go.
fn disruption_budget(spec: &Spec) -> Value {
    let minimum = if spec.replicas <= 1 {
        0
    } else {
        spec.replicas / 2 + 1
    };
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {
            "name": spec.name,
            "labels": labels::druid_component(spec, "etcd-pdb", &spec.name),
        },
        "spec": {
            "minAvailable": minimum,
            "selector": {"matchLabels": labels::druid_defaults(spec)},
        },
    })
}
