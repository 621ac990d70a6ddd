//! Pods that nobody guards, and the reviews about them.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt as _};
use quorumgate::api::names;
use quorumgate_testbed::Bed;
use serde_json::{Value, json};

/// A DELETE as the API server sends it, with managed fields.
const REVIEW: &str = include_str!("foreign_pod.json");

/// A Deployment's pod and one that is named as a StatefulSet's are, which exist and run nowhere.
pub(crate) struct Foreign {
    pub(crate) namespace: String,
    /// The name of the Deployment's pod.
    pub(crate) pod: String,
    /// The name of the other.
    pub(crate) numbered: String,
    /// The review of the DELETE of the Deployment's pod.
    pub(crate) delete: Value,
    /// The review of its eviction.
    pub(crate) eviction: Value,
    /// The review of the other's eviction.
    pub(crate) of_numbered: Value,
}

impl Foreign {
    /// Creates both, in a namespace of their own.
    pub(crate) async fn create(bed: &Bed) -> Result<Self> {
        let delete: Value = serde_json::from_str(REVIEW)?;
        let pod = existing_pod(bed, &delete).await?;
        let delete = of_pod(delete, &pod)?;
        let name = pod.name_any();
        let namespace = pod.namespace().context("no namespace")?;
        let numbered = numbered(bed, pod).await?.name_any();
        Ok(Self {
            eviction: eviction(&delete, &name)?,
            of_numbered: eviction(&delete, &numbered)?,
            namespace,
            pod: name,
            numbered,
            delete,
        })
    }
}

/// The pod of the review, created on this control plane. No scheduler takes it, so that it stays.
async fn existing_pod(bed: &Bed, review: &Value) -> Result<Pod> {
    let old = review
        .pointer("/request/oldObject")
        .context("no old object")?;
    let mut pod: Pod = serde_json::from_value(old.clone())?;
    let namespace = pod.metadata.namespace.clone().context("no namespace")?;
    let home = Namespace {
        metadata: ObjectMeta {
            name: Some(namespace.clone()),
            // The API server asks about no other namespace.
            labels: Some([(names::GATED.into(), names::TRUE.into())].into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces: Api<Namespace> = Api::all(bed.client());
    namespaces.create(&PostParams::default(), &home).await?;
    pod.metadata = ObjectMeta {
        name: pod.metadata.name,
        labels: pod.metadata.labels,
        annotations: pod.metadata.annotations,
        ..ObjectMeta::default()
    };
    let spec = pod.spec.as_mut().context("no spec")?;
    spec.scheduler_name = Some("nobody".into());
    spec.node_name = None;
    spec.service_account_name = None;
    spec.service_account = None;
    spec.automount_service_account_token = Some(false);
    pod.status = None;
    let pods: Api<Pod> = Api::namespaced(bed.client(), &namespace);
    Ok(pods.create(&PostParams::default(), &pod).await?)
}

/// The same review about the pod that exists.
fn of_pod(mut review: Value, pod: &Pod) -> Result<Value> {
    let uid = review
        .pointer_mut("/request/oldObject/metadata/uid")
        .context("no uid")?;
    *uid = json!(pod.metadata.uid);
    Ok(review)
}

/// The same pod once more, under a name that a StatefulSet might have given it.
async fn numbered(bed: &Bed, pod: Pod) -> Result<Pod> {
    let namespace = pod.namespace().context("no namespace")?;
    let metadata = ObjectMeta {
        name: Some("web-0".to_owned()),
        labels: pod.metadata.labels,
        ..ObjectMeta::default()
    };
    let numbered = Pod {
        metadata,
        status: None,
        ..pod
    };
    let pods: Api<Pod> = Api::namespaced(bed.client(), &namespace);
    Ok(pods.create(&PostParams::default(), &numbered).await?)
}

/// The eviction of the pod `name` beside the one that is deleted, as the API server asks about it:
/// the review has no pod.
fn eviction(delete: &Value, name: &str) -> Result<Value> {
    let mut review = delete.clone();
    let request = review
        .pointer_mut("/request")
        .and_then(Value::as_object_mut)
        .context("no request")?;
    let kind = json!({"group": "policy", "version": "v1", "kind": "Eviction"});
    let resource = json!({"group": "", "version": "v1", "resource": "pods"});
    let object = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": request.get("namespace")},
    });
    for (field, value) in [
        ("name", json!(name)),
        ("kind", kind.clone()),
        ("requestKind", kind),
        ("resource", resource.clone()),
        ("requestResource", resource),
        ("subResource", json!("eviction")),
        ("requestSubResource", json!("eviction")),
        ("operation", json!("CREATE")),
        ("object", object),
        ("oldObject", Value::Null),
        (
            "options",
            json!({"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"}),
        ),
    ] {
        request.insert(field.to_owned(), value);
    }
    Ok(review)
}
