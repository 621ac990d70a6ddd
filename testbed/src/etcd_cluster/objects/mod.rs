//! The Kubernetes objects of a cluster, as JSON that reads like a manifest.

mod container;
mod druid;
mod labels;
mod network;
mod secrets;
mod stateful_set;
mod volumes;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::spec::{Shape, Spec};

pub(super) use container::{CONTAINER, arguments};
pub(super) use labels::cluster_selector;
pub(super) use secrets::{
    CA_CERTIFICATE, CERTIFICATE, KEY, client_request, client_secret, issuer, root_secret,
    write_member_certificates, write_tls,
};
pub(crate) use stateful_set::INITIALISER;
pub(super) use stateful_set::SPEC_ANNOTATION;

/// The field manager of all objects of the test bed.
const FIELD_MANAGER: &str = "testbed";

/// Applies all objects, the StatefulSet last.
pub(super) async fn apply(client: &kube::Client, namespace: &str, spec: &Spec) -> Result<()> {
    secrets::apply(client, namespace, spec).await?;
    server_side::<ConfigMap>(client, namespace, join_config(spec, &json!({}))).await?;
    server_side::<Service>(client, namespace, network::headless_service(spec)).await?;
    if spec.shape == Shape::Druid {
        druid::apply(client, namespace, spec).await?;
    }
    server_side::<StatefulSet>(
        client,
        namespace,
        stateful_set::stateful_set(namespace, spec)?,
    )
    .await
}

/// The ConfigMap that makes a pod with an empty volume join an existing cluster: for each pod name
/// the value of `--initial-cluster`. It replaces a part of druid's sidecar.
pub(super) fn join_config(spec: &Spec, entries: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": join_config_name(spec)},
        "data": entries,
    })
}

/// The name of the ConfigMap.
pub(super) fn join_config_name(spec: &Spec) -> String {
    format!("{}-join", spec.name)
}

/// Applies a namespaced object by server-side apply.
pub(super) async fn server_side<K>(
    client: &kube::Client,
    namespace: &str,
    object: Value,
) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    Api::<K>::namespaced(client.clone(), namespace)
        .patch(name, &parameters, &Patch::Apply(&object))
        .await
        .with_context(|| format!("cannot apply {} {namespace}/{name}", K::kind(&())))?;
    Ok(())
}
