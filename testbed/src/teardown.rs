//! Deletion of a sandbox's objects, in an order in which none delays another.

use std::fmt::Debug;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::node::NAMESPACE_LABEL;

/// Deletes the cluster-wide objects with the label of `namespace`, webhooks first, and begins to
/// delete the namespace.
pub(crate) async fn begin(client: &Client, namespace: &str) -> Result<()> {
    let labelled = ListParams::default().labels(&format!("{NAMESPACE_LABEL}={namespace}"));
    let how = DeleteParams::default();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    delete_all(&validating, &how, &labelled).await?;
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    delete_all(&mutating, &how, &labelled).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    delete_all(&bindings, &how, &labelled).await?;
    let roles: Api<ClusterRole> = Api::all(client.clone());
    delete_all(&roles, &how, &labelled).await?;
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
    let (how, every) = (DeleteParams::background(), ListParams::default());
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), namespace);
    delete_all(&sets, &how, &every).await?;
    end_pods(client, namespace).await?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), namespace);
    delete_all(&claims, &how, &every).await?;
    none_left::<Pod>(&Api::namespaced(client.clone(), namespace)).await?;
    none_left(&claims).await
}

/// Deletes all pods with a grace period of 0. Their agents see them gone and end their processes.
pub(crate) async fn end_pods(client: &Client, namespace: &str) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let now = DeleteParams::default().grace_period(0);
    delete_all(&pods, &now, &ListParams::default()).await
}

async fn delete_all<K>(objects: &Api<K>, how: &DeleteParams, which: &ListParams) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let deleted = objects.delete_collection(how, which).await;
    deleted
        .map(drop)
        .with_context(|| format!("cannot delete all of {}", objects.resource_url()))
}

async fn none_left<K>(objects: &Api<K>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let left = objects.list_metadata(&ListParams::default()).await?.items;
    let names: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
    let names = names.join(", ");
    ensure!(
        names.is_empty(),
        "{names} left in {}",
        objects.resource_url()
    );
    Ok(())
}
