//! A pod that its node does not admit, as a kubelet does whose CPUs are taken: it has failed, and nothing of it is ever started.
//!
//! The status is that of kubelets since Kubernetes 1.28 (`rejectPod` in `pkg/kubelet/kubelet.go`): phase, reason and message, and nothing of what
//! only kubelets write. After a reboot that takes away what was said of the containers and addresses before.

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

/// How a kubelet's message begins.
const REJECTED: &str = "Pod was rejected: ";
/// Why, in a kubelet's words.
const REASON: &str = "OutOfcpu";
/// The same for people.
const MESSAGE: &str =
    "Node didn't have enough resource: cpu, requested: 100, used: 1900, capacity: 2000";

/// Whether the pod has been rejected. Nothing takes that back.
pub(super) fn is_rejected(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let message = status.and_then(|status| status.message.as_deref());
    is_over(pod) && message.is_some_and(|message| message.starts_with(REJECTED))
}

/// Whether the node has yet to admit the pod: it is new here, or all that ran of it went down with the node.
pub(super) fn is_to_be_admitted(pod: &Pod, dir: &PodDir) -> bool {
    let runs = |container| matches!(container::running(container), Ok(Some(_)));
    let containers = dir.containers().unwrap_or_default();
    !is_over(pod) && pod.metadata.deletion_timestamp.is_none() && !containers.iter().any(runs)
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Rejects a pod, unless that has been done, and sees it to its end.
pub(super) async fn reject(
    api: &Api<Pod>,
    mut follow: watch::Receiver<Arc<Pod>>,
    (node, dir): (&NodeDir, &PodDir),
    gone: &CancellationToken,
) {
    termination::clean_up(node, dir);
    let pod = follow.borrow_and_update().clone();
    tokio::select! {
        () = tell(api, &pod) => {}
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

/// Writes the status. Tries until it is accepted, or the pod is another.
async fn tell(api: &Api<Pod>, pod: &Pod) {
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

/// The patch. What a kubelet owns and does not say any more goes; the conditions of others stay.
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
