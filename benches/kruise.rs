//! The objects of OpenKruise: what it needs to start, its budgets, and pods that it counts as
//! ready.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use quorumgate_testbed::Bed;
use serde_json::{Value, json};

/// The annotation by which OpenKruise finds the budget of a pod. Its webhook sets it when a pod is
/// created; the API server does not ask that webhook here.
const BUDGET: &str = "kruise.io/related-pub";

/// OpenKruise's own namespace.
pub(crate) const NAMESPACE: &str = "kruise-system";

/// The name of the budget that keeps a pod for good.
pub(crate) const KEPT: &str = "kept";

/// The objects that OpenKruise needs besides its CRDs, and a budget in `namespace` that lets no pod
/// go. The webhook configurations are empty, so that the API server asks nothing of it.
pub(crate) fn objects(namespace: &str) -> [Value; 4] {
    let configuration = |kind: &str, name: &str| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "webhooks": [],
        })
    };
    [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        configuration(
            "MutatingWebhookConfiguration",
            "kruise-mutating-webhook-configuration",
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            "kruise-validating-webhook-configuration",
        ),
        budget(namespace, KEPT, 0),
    ]
}

/// Makes a review about a pod that the budget [`KEPT`] never lets go.
pub(crate) fn about_kept_pod(review: &mut Value) -> Result<()> {
    let pod = review.pointer_mut("/request/oldObject/metadata");
    let pod = pod.and_then(Value::as_object_mut).context("no pod")?;
    pod.insert("annotations".to_owned(), json!({ BUDGET: KEPT }));
    Ok(())
}

/// A budget that lets so many of the pods with its label go, which are one more.
pub(crate) fn budget(namespace: &str, name: &str, may_go: usize) -> Value {
    json!({
        "apiVersion": "policy.kruise.io/v1alpha1", "kind": "PodUnavailableBudget",
        "metadata": {
            "name": name, "namespace": namespace,
            // The pods have no owner that would say how many there are to be.
            "annotations": {"pub.kruise.io/protect-total-replicas": (may_go + 1).to_string()},
        },
        "spec": {"selector": {"matchLabels": {"budget": name}}, "maxUnavailable": may_go},
    })
}

/// A pod of this budget that says it is ready. No node runs it.
pub(crate) async fn ready_pod(
    bed: &Bed,
    namespace: &str,
    (budget, name): (&str, &str),
) -> Result<Pod> {
    let pod = json!({
        "metadata": {
            "name": name, "labels": {"budget": budget}, "annotations": {BUDGET: budget},
        },
        "spec": {
            "schedulerName": "nobody", "automountServiceAccountToken": false,
            "containers": [{"name": "etcd", "image": "etcd:3.7"}],
        },
    });
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let pods: Api<Pod> = Api::namespaced(bed.client(), namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
        .await?;
    let parameters = PatchParams::default();
    Ok(pods
        .patch_status(name, &parameters, &Patch::Merge(&status))
        .await?)
}
