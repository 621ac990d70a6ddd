//! The delete of a pod that was looked at, which passes the webhook like anybody's.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Preconditions};

use super::operation::{Applied, OperationContext};
use crate::causes::causes;
use crate::quorum::{PodName, PodUid};

/// Deletes the pod, as it was seen.
pub(super) async fn delete_pod(
    context: &OperationContext<'_>,
    name: &PodName,
    uid: &PodUid,
) -> Applied {
    let Some(pod) = context.look.view.pod(name) else {
        return Applied::Done;
    };
    let only_this = DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.to_string()),
        resource_version: pod.metadata.resource_version.clone(),
    });
    let deleted = pods(context).delete(name.as_str(), &only_this).await;
    done(deleted.map(drop))
}

/// The end of a request to the API server. What is gone or was changed is looked at again.
pub(super) fn done(answer: Result<(), kube::Error>) -> Applied {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => {
            Applied::Done
        }
        Err(kube::Error::Api(status)) => Applied::Failed(status.message),
        Err(error) => Applied::Failed(causes(&error)),
        Ok(()) => Applied::Done,
    }
}

/// The pods of the cluster.
pub(super) fn pods(context: &OperationContext<'_>) -> Api<Pod> {
    Api::namespaced(context.run.client.clone(), &context.cluster.namespace)
}
