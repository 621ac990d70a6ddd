//! Changes of the StatefulSet after it was applied.

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::objects::{self, SPEC_ANNOTATION};
use super::spec::{Initialisation, Tls};
use super::{EtcdCluster, MARKER};

impl EtcdCluster {
    /// The API of StatefulSets in the cluster's namespace.
    pub fn stateful_set_api(&self) -> Api<StatefulSet> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// The StatefulSet, read uncached.
    pub async fn stateful_set(&self) -> Result<StatefulSet> {
        let found = self.stateful_set_api().get(&self.spec.name).await;
        found.with_context(|| format!("cannot read the StatefulSet of {self:?}"))
    }

    /// The present `spec.replicas`.
    pub async fn replicas(&self) -> Result<i32> {
        let spec = self.stateful_set().await?.spec;
        Ok(spec.and_then(|spec| spec.replicas).unwrap_or(1))
    }

    /// Sets `spec.replicas` through the scale subresource, as `kubectl scale` does.
    pub async fn scale(&self, replicas: u32) -> Result<(), kube::Error> {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let parameters = PatchParams::default();
        self.stateful_set_api()
            .patch_scale(&self.spec.name, &parameters, &patch)
            .await?;
        Ok(())
    }

    /// Sets the annotation [`MARKER`] of the pod template. A new value makes a new revision.
    pub async fn change_template(&self, marker: &str) -> Result<(), kube::Error> {
        let annotations = json!({"metadata": {"annotations": {MARKER: marker}}});
        self.patch_stateful_set(json!({"spec": {"template": annotations}}))
            .await
    }

    /// Changes the image of the etcd container, for example to one whose etcd cannot start.
    pub async fn change_image(&self, image: &str) -> Result<(), kube::Error> {
        let container = json!({"name": objects::CONTAINER, "image": image});
        let template = json!({"spec": {"containers": [container]}});
        self.patch_stateful_set(json!({"spec": {"template": template}}))
            .await
    }

    /// Changes the initialisation of members that have one.
    pub async fn change_initialisation(&self, to: &Initialisation) -> Result<(), kube::Error> {
        let container = json!({"name": objects::INITIALISER, "args": to.arguments()});
        let template = json!({"spec": {"containers": [container]}});
        self.patch_stateful_set(json!({"spec": {"template": template}}))
            .await
    }

    /// Switches TLS between members on or off, as an owner has to do it: first the members get
    /// their new peer URLs, while they can still agree on anything, and then the template changes.
    /// Members with the new template cannot talk to members with the old one.
    pub async fn switch_peer_tls(&mut self, tls: Tls) -> Result<()> {
        let members = self.members().await?;
        self.spec.peer_tls = Some(tls);
        for pod in self.pod_names() {
            let name = self.spec.member_name(&pod);
            let member = members.iter().find(|member| member.name == name);
            let id = member.with_context(|| format!("no member {name}"))?.id;
            let url = self.spec.peer_url(&self.namespace, &pod);
            self.connect().await?.member_update(id, [url]).await?;
        }
        let annotations = json!({SPEC_ANNOTATION: serde_json::to_string(&self.spec)?});
        let arguments = objects::arguments(&self.namespace, &self.spec);
        let container = json!({"name": objects::CONTAINER, "args": arguments});
        let template = json!({"spec": {"containers": [container]}});
        let patch = json!({
            "metadata": {"annotations": annotations}, "spec": {"template": template},
        });
        Ok(self.patch_stateful_set(patch).await?)
    }

    async fn patch_stateful_set(&self, patch: Value) -> Result<(), kube::Error> {
        let parameters = PatchParams::default();
        let patch = Patch::Strategic(patch);
        self.stateful_set_api()
            .patch(&self.spec.name, &parameters, &patch)
            .await?;
        Ok(())
    }
}
