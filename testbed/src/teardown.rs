//! Deletion of a sandbox's objects, in an order in which none delays another.

use anyhow::{Context as _, Result};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::node::NAMESPACE_LABEL;

/// Deletes the cluster-wide objects with the label of `namespace`, webhooks first, and begins to
/// delete the namespace.
pub(crate) async fn begin(client: &Client, namespace: &str) -> Result<()> {
    delete_labelled::<ValidatingWebhookConfiguration>(client, namespace).await?;
    delete_labelled::<MutatingWebhookConfiguration>(client, namespace).await?;
    delete_labelled::<ClusterRoleBinding>(client, namespace).await?;
    delete_labelled::<ClusterRole>(client, namespace).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    match namespaces.delete(namespace, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other
            .map(drop)
            .with_context(|| format!("cannot delete namespace {namespace}")),
    }
}

/// Deletes all pods with a grace period of 0. Their agents see them gone and end their processes.
pub(crate) async fn end_pods(client: &Client, namespace: &str) -> Result<()> {
    Api::<Pod>::namespaced(client.clone(), namespace)
        .delete_collection(
            &DeleteParams::default().grace_period(0),
            &ListParams::default(),
        )
        .await
        .map(drop)
        .with_context(|| format!("cannot delete the pods of {namespace}"))
}

/// The reason why a namespace still exists, in the words of the namespace controller.
pub(crate) fn what_remains(namespace: &Namespace) -> String {
    let conditions = namespace
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let remains: Vec<_> = conditions
        .into_iter()
        .flatten()
        .filter(|condition| condition.status == "True")
        .filter_map(|condition| condition.message.clone())
        .collect();
    if remains.is_empty() {
        "it is still terminating".into()
    } else {
        remains.join("; ")
    }
}

async fn delete_labelled<K>(client: &Client, namespace: &str) -> Result<()>
where
    K: Resource<Scope = k8s_openapi::ClusterResourceScope>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
    K::DynamicType: Default,
{
    let labelled = ListParams::default().labels(&format!("{NAMESPACE_LABEL}={namespace}"));
    Api::<K>::all(client.clone())
        .delete_collection(&DeleteParams::default(), &labelled)
        .await
        .map(drop)
        .with_context(|| {
            format!(
                "cannot delete the {} of {namespace}",
                K::plural(&K::DynamicType::default())
            )
        })
}
