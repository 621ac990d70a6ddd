//! Kubernetes objects that every control plane has from the start.

use anyhow::{Context as _, Result};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// The role that lets nodes read Services and their pods.
const NODE_NAMES: &str = "testbed:node-names";

/// Creates the objects, unless they exist.
pub(super) async fn apply(client: &Client) -> Result<()> {
    // Volumes are directories of this machine. The hostpath provisioner of kube-controller-manager
    // creates and removes them.
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "standard",
            "annotations": { "storageclass.kubernetes.io/is-default-class": "true" },
        },
        "provisioner": "kubernetes.io/host-path",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    });
    Api::<StorageClass>::all(client.clone())
        .patch(
            "standard",
            &PatchParams::apply("testbed").force(),
            &Patch::Apply(class),
        )
        .await
        .context("cannot create the StorageClass `standard`")?;
    let rules = [json!({
        "apiGroups": [""],
        "resources": ["services", "pods"],
        "verbs": ["get", "list", "watch"],
    })];
    // Node agents stand for cluster DNS too, which reads objects that a kubelet may not read.
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": NODE_NAMES },
        "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": NODE_NAMES },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NODE_NAMES },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes" }],
    });
    let apply = PatchParams::apply("testbed").force();
    Api::<ClusterRole>::all(client.clone())
        .patch(NODE_NAMES, &apply, &Patch::Apply(role))
        .await
        .context("cannot create the ClusterRole for node agents")?;
    Api::<ClusterRoleBinding>::all(client.clone())
        .patch(NODE_NAMES, &apply, &Patch::Apply(binding))
        .await
        .context("cannot create the ClusterRoleBinding for node agents")?;
    Ok(())
}
