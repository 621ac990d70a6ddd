//! The effect of a step: the delete or the eviction, which passes the webhook like any other.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams, Preconditions};
use kube::{Error, ResourceExt as _};
use serde_json::json;

use crate::plan::{Departure, Step};
use crate::reconcile::operation::Applied;
use crate::reconcile::run::Run;

/// Lets the pod of a step go. A leader has handed over by now, since the judge makes that happen
/// before it permits.
pub(super) async fn carry_out(run: &Run, pod: &Pod, step: &Step) -> Applied {
    let namespace = pod.namespace().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(run.client.clone(), &namespace);
    let gone = match step.action.departure() {
        Departure::Delete => delete(&pods, pod).await,
        Departure::Evict => evict(&pods, pod).await,
    };
    match gone {
        Ok(()) => Applied::Done,
        Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Applied::Outdated
        }
        Err(Error::Api(status)) => Applied::Failed(status.message),
        Err(error) => Applied::Failed(error.to_string()),
    }
}

/// The preconditions for exactly the incarnation and version that were seen. A member that did not
/// run may run by now.
fn as_seen(pod: &Pod) -> Preconditions {
    Preconditions {
        uid: pod.uid(),
        resource_version: pod.resource_version(),
    }
}

async fn delete(pods: &Api<Pod>, pod: &Pod) -> Result<(), Error> {
    let only_this = DeleteParams::default().preconditions(as_seen(pod));
    pods.delete(&pod.name_any(), &only_this).await.map(drop)
}

async fn evict(pods: &Api<Pod>, pod: &Pod) -> Result<(), Error> {
    let Preconditions {
        uid,
        resource_version,
    } = as_seen(pod);
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name_any(), "namespace": pod.namespace()},
        "deleteOptions": {"preconditions": {"uid": uid, "resourceVersion": resource_version}},
    });
    pods.create_subresource::<_, serde_json::Value>(
        "eviction",
        &pod.name_any(),
        &PostParams::default(),
        &eviction,
    )
    .await
    .map(drop)
}
