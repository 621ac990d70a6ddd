//! Deletion of a sandbox's objects, in an order in which none delays another.

use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use crate::node::NAMESPACE_LABEL;

/// An object in a namespace.
pub(crate) trait Namespaced:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug
{
}

impl<K> Namespaced for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + Debug
{
}

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

/// Deletes the StatefulSets, pods and claims, and fails while pods or claims are left.
pub(crate) async fn empty(client: &Client, namespace: &str) -> Result<()> {
    delete_all::<StatefulSet>(client, namespace).await?;
    end_pods(client, namespace).await?;
    delete_all::<PersistentVolumeClaim>(client, namespace).await?;
    none_left::<Pod>(client, namespace).await?;
    none_left::<PersistentVolumeClaim>(client, namespace).await
}

/// Deletes all pods with a grace period of 0. Their agents see them gone and end their processes.
pub(crate) async fn end_pods(client: &Client, namespace: &str) -> Result<()> {
    delete_within::<Pod>(client, namespace, &DeleteParams::default().grace_period(0)).await
}

async fn delete_all<K: Namespaced>(client: &Client, namespace: &str) -> Result<()> {
    delete_within::<K>(client, namespace, &DeleteParams::background()).await
}

async fn delete_within<K: Namespaced>(
    client: &Client,
    namespace: &str,
    how: &DeleteParams,
) -> Result<()> {
    Api::<K>::namespaced(client.clone(), namespace)
        .delete_collection(how, &ListParams::default())
        .await
        .map(drop)
        .with_context(|| format!("cannot delete the {} of {namespace}", K::plural(&())))
}

async fn none_left<K: Namespaced>(client: &Client, namespace: &str) -> Result<()> {
    let objects = Api::<K>::namespaced(client.clone(), namespace);
    let left = objects.list_metadata(&ListParams::default()).await?.items;
    let names: Vec<String> = left.iter().map(kube::ResourceExt::name_any).collect();
    ensure!(
        names.is_empty(),
        "{} are left: {}",
        K::plural(&()),
        names.join(", ")
    );
    Ok(())
}

async fn delete_labelled<K>(client: &Client, namespace: &str) -> Result<()>
where
    K: Resource<Scope = k8s_openapi::ClusterResourceScope> + Clone + DeserializeOwned + Debug,
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
