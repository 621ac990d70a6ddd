//! Another webhook beside the gate's, which refuses.

use anyhow::Result;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::world::World;

/// The webhook's name in refusals.
pub(crate) const NAME: &str = "refuses.example.com";

/// A webhook without a server and with `failurePolicy: Fail`, so that the API server refuses.
pub(crate) struct OtherHook {
    configurations: Api<ValidatingWebhookConfiguration>,
    name: String,
}

impl OtherHook {
    /// Creates the webhook for deletes of pods in the world's namespace, with this match condition.
    pub(crate) async fn create(world: &World, condition: &str) -> Result<Self> {
        let deletes = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]});
        Self::of_rule(world, NAME, deletes, condition).await
    }

    /// Creates the webhook for writes that advance a StatefulSet's `status.currentRevision` while
    /// its strategy is `RollingUpdate`.
    pub(crate) async fn of_closing_books(world: &World) -> Result<Self> {
        let writes = json!({
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["statefulsets/status"],
        });
        let advances = "object.spec.updateStrategy.type == 'RollingUpdate' \
            && object.status.?currentRevision != oldObject.status.?currentRevision";
        Self::of_rule(world, NAME, writes, advances).await
    }

    /// Creates the webhook of this name for requests in the world's namespace that meet the rule
    /// and the condition. Several may stand side by side.
    pub(crate) async fn of_rule(
        world: &World,
        webhook: &str,
        rule: Value,
        condition: &str,
    ) -> Result<Self> {
        let namespace = world.namespace();
        let (first, _) = webhook.split_once('.').unwrap_or((webhook, ""));
        let name = format!("{first}-{namespace}");
        let configuration = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"testbed.quorumgate.io/namespace": namespace}},
            "webhooks": [{
                "name": webhook,
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "matchConditions": [{"name": "who", "expression": condition}],
                "sideEffects": "None",
                "timeoutSeconds": 5,
                "admissionReviewVersions": ["v1"],
            }],
        }))?;
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(world.sandbox.client());
        configurations
            .create(&PostParams::default(), &configuration)
            .await?;
        Ok(Self {
            configurations,
            name,
        })
    }

    /// Deletes the webhook.
    pub(crate) async fn remove(self) -> Result<()> {
        self.configurations
            .delete(&self.name, &DeleteParams::default())
            .await?;
        Ok(())
    }
}
