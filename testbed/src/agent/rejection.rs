//! Pods that the node does not admit, like a kubelet without free CPUs: the pod has failed, and
//! none of its containers is ever started.
//!
//! The status is that of kubelets since Kubernetes 1.28 (`rejectPod` in `pkg/kubelet/kubelet.go`).
//! It has phase, reason and message, and none of the other fields that kubelets write. After a
//! reboot that removes the earlier container statuses and addresses.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::container;
use super::layout::{NodeDir, PodDir};
use super::retry::Retry;
use super::status::{CONDITIONS, time};
use super::termination;

/// The beginning of a kubelet's message.
const REJECTED: &str = "Pod was rejected: ";
/// The reason, in a kubelet's words.
const REASON: &str = "OutOfcpu";
/// The message after the beginning, in a kubelet's words.
const MESSAGE: &str =
    "Node didn't have enough resource: cpu, requested: 100, used: 1900, capacity: 2000";

/// Whether the pod has been rejected. A rejection is final.
pub(super) fn is_rejected(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let message = status.and_then(|status| status.message.as_deref());
    is_over(pod) && message.is_some_and(|message| message.starts_with(REJECTED))
}

/// Whether the node has yet to admit the pod: the pod is new here, or all its containers went down
/// with the node.
pub(super) fn is_to_be_admitted(pod: &Pod, dir: &PodDir) -> bool {
    let runs = |container| matches!(container::running(container), Ok(Some(_)));
    let containers = dir.containers().unwrap_or_default();
    !is_over(pod) && pod.metadata.deletion_timestamp.is_none() && !containers.iter().any(runs)
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Rejects a pod, unless it has been rejected before, and waits for its end.
pub(super) async fn reject(
    api: &Api<Pod>,
    mut follow: watch::Receiver<Arc<Pod>>,
    (node, dir): (&NodeDir, &PodDir),
    gone: &CancellationToken,
) {
    termination::clean_up(node, dir);
    let pod = follow.borrow_and_update().clone();
    tokio::select! {
        () = report(api, &pod) => {}
        () = gone.cancelled() => return,
    }
    loop {
        if follow
            .borrow_and_update()
            .metadata
            .deletion_timestamp
            .is_some()
        {
            return termination::delete(api, &pod, gone).await;
        }
        tokio::select! {
            changed = follow.changed() => if changed.is_err() {
                return;
            },
            () = gone.cancelled() => return,
        }
    }
}

/// Writes the status. Tries until the API server accepts it, or the pod is another one.
async fn report(api: &Api<Pod>, pod: &Pod) {
    if is_rejected(pod) {
        return;
    }
    let name = pod.metadata.name.clone().unwrap_or_default();
    let patch = Patch::Strategic(patch(pod, Timestamp::now()));
    let mut retry = Retry::default();
    loop {
        match api
            .patch_status(&name, &PatchParams::default(), &patch)
            .await
        {
            Ok(_) => return,
            Err(kube::Error::Api(error)) if matches!(error.code, 404 | 409) => return,
            Err(error) => tracing::debug!(%name, %error, "rejection"),
        }
        retry.wait().await;
    }
}

/// The patch of the status. Fields of kubelets that are not set any more are removed, and
/// conditions of other writers stay.
fn patch(pod: &Pod, now: Timestamp) -> Value {
    let conditions = CONDITIONS.map(|kind| json!({"type": kind, "$patch": "delete"}));
    let begun = pod.status.as_ref().and_then(|s| s.start_time.clone());
    json!({
        "metadata": {"uid": pod.metadata.uid},
        "status": {
            "phase": "Failed",
            "reason": REASON,
            "message": format!("{REJECTED}{MESSAGE}"),
            "startTime": begun.unwrap_or_else(|| time(now)),
            "observedGeneration": pod.metadata.generation,
            "conditions": conditions,
            "containerStatuses": null,
            "initContainerStatuses": null,
            "podIP": null,
            "podIPs": null,
            "hostIP": null,
            "hostIPs": null,
        },
    })
}
