//! What every cluster of the test bed has from the start.

use anyhow::{Context as _, Result};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

/// Creates them, or leaves them as they are.
pub(super) async fn apply(client: &Client) -> Result<()> {
    // Volumes are directories of this machine, made and removed by kube-controller-manager's hostpath provisioner.
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
    Ok(())
}
