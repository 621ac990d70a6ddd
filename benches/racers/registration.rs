//! The registration of a racer with the API server, which asks it about deletes and evictions then.

use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use quorumgate_testbed::{Bed, eventually};
use serde_json::json;

use super::{KEPT, PATIENCE, Process, Racer};
use crate::caller::SERVER_NAME;
use crate::settled::settled;

const NAME: &str = "raced";

impl Racer {
    /// Makes the API server ask it, and waits until it does. `namespace` has the pod [`KEPT`].
    pub(crate) async fn register(&self, bed: &Bed, namespace: &str) -> Result<()> {
        match &self.process {
            Process::Ours(gate) => {
                gate.register().await?;
                gate.in_force(PATIENCE).await?;
                // It trusts no ledger for a while after it was not asked.
                settled(&bed.client(), PATIENCE).await
            }
            Process::Peer(_) => {
                let create = PostParams::default();
                all(bed).create(&create, &self.configuration()?).await?;
                keeps(bed, namespace, true).await
            }
        }
    }

    /// Makes the API server ask it no more.
    pub(crate) async fn unregister(&self, bed: &Bed, namespace: &str) -> Result<()> {
        match &self.process {
            Process::Ours(gate) => gate.unregister().await,
            Process::Peer(_) => {
                all(bed).delete(NAME, &DeleteParams::default()).await?;
                keeps(bed, namespace, false).await
            }
        }
    }

    /// Deletes and evictions of all pods. This project registers for fewer, by match conditions.
    fn configuration(&self) -> Result<ValidatingWebhookConfiguration> {
        let webhook = |name: &str, operation: &str, resource: &str, path: &str| {
            json!({
                "name": format!("{name}.example.com"),
                "clientConfig": {
                    "url": format!("https://{SERVER_NAME}:{}{path}", self.address.port()),
                    "caBundle": ByteString(self.authority.clone().into_bytes()),
                },
                "rules": [{
                    "apiGroups": [""], "apiVersions": ["v1"],
                    "operations": [operation], "resources": [resource],
                }],
                "admissionReviewVersions": ["v1"],
                "sideEffects": "NoneOnDryRun",
                "failurePolicy": "Fail",
                "timeoutSeconds": 5,
            })
        };
        let webhooks = [
            webhook("deletes", "DELETE", "pods", self.deletes),
            webhook("evictions", "CREATE", "pods/eviction", self.evictions),
        ];
        Ok(serde_json::from_value(
            json!({"metadata": {"name": NAME}, "webhooks": webhooks}),
        )?)
    }
}

fn all(bed: &Bed) -> Api<ValidatingWebhookConfiguration> {
    Api::all(bed.client())
}

/// Waits until the API server refuses to delete the pod that every peer keeps, or does not.
async fn keeps(bed: &Bed, namespace: &str, kept: bool) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(bed.client(), namespace);
    let dry_run = DeleteParams::default().dry_run();
    eventually(PATIENCE, "the API server has noticed", async || {
        let refused = match pods.delete(KEPT, &dry_run).await {
            Ok(_) => false,
            Err(kube::Error::Api(_)) => true,
            Err(error) => return Err(error.into()),
        };
        ensure!(refused == kept, "refused: {refused}");
        anyhow::Ok(())
    })
    .await
}
