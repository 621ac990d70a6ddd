//! `/mutate/pods`: members carry `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"`, so that
//! cluster-autoscaler plans around them instead of starting drains that wait. An existing value
//! stays.

use futures::future::BoxFuture;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::json;
use tokio::time::timeout_at;

use super::patch::set;
use crate::admission::asked::{About, Asked, Context, Subject, What};
use crate::admission::hook::Hook;
use crate::admission::malformed::Malformed;
use crate::admission::review::{Metadata, Request};
use crate::admission::room::Readable;
use crate::api::names::SAFE_TO_EVICT;
use crate::observe::{Observer, is_stateful_set};
use crate::quorum::ClusterRef;

/// A source of the enrolment of StatefulSets.
pub trait Enrolment: Send + Sync + 'static {
    /// Whether the StatefulSet is an etcd cluster that the gate guards. The error is a sentence.
    /// The answer is advice, so it may come from a cache.
    fn is_enrolled<'a>(
        &'a self,
        namespace: &'a str,
        stateful_set: &'a str,
    ) -> BoxFuture<'a, Result<bool, String>>;
}

/// The enrolment that the API server shows now.
impl Enrolment for Observer {
    fn is_enrolled<'a>(
        &'a self,
        namespace: &'a str,
        stateful_set: &'a str,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let set = ClusterRef::new(namespace, stateful_set);
            self.is_guarded(&set)
                .await
                .map_err(|error| error.to_string())
        })
    }
}

/// A pod that would be created.
#[derive(Debug, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
}

/// The patch for the pod in a review.
pub(in crate::admission) async fn asked(
    body: Readable<'_>,
    context: Context<'_>,
    enrolment: &dyn Enrolment,
) -> Result<Asked, Malformed> {
    let mut request = body.read(|body| Request::<Pod>::read(Hook::MutatePods, body))?;
    let pod = request.take_object()?;
    let (namespace, name) = request.place(&pod.metadata)?;
    let subject = Subject::pod(namespace, name, None);
    let patch = match stateful_set_of(&pod.metadata) {
        Some(set) if needs_word(&pod.metadata) => {
            let enrolled = enrolment.is_enrolled(namespace, set);
            match timeout_at(context.deadline, enrolled).await {
                Ok(Ok(true)) => Some(keep(&pod.metadata)),
                // The pod is created in any case: the annotation is advice, and a missing member
                // does harm.
                Ok(Ok(false) | Err(_)) | Err(_) => None,
            }
        }
        Some(_) | None => None,
    };
    Ok(Asked {
        about: About::of(&mut request, subject, context),
        what: What::Patch(Ok(patch)),
    })
}

/// The StatefulSet that manages the pod.
fn stateful_set_of(pod: &Metadata) -> Option<&str> {
    let owners = pod.owner_references.as_deref().unwrap_or_default();
    let set = owners
        .iter()
        .find(|owner| owner.controller && is_stateful_set(&owner.api_version, &owner.kind))?;
    Some(set.name.as_str())
}

fn needs_word(pod: &Metadata) -> bool {
    let annotations = pod.annotations.as_ref();
    !annotations.is_some_and(|all| all.contains_key(SAFE_TO_EVICT))
}

fn keep(pod: &Metadata) -> Patch {
    match &pod.annotations {
        None => set(["metadata", "annotations"], json!({SAFE_TO_EVICT: "false"})),
        Some(_) => set(["metadata", "annotations", SAFE_TO_EVICT], json!("false")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotated(mut pod: serde_json::Value) -> serde_json::Value {
        let read: Pod = serde_json::from_value(pod.clone()).unwrap();
        if needs_word(&read.metadata) {
            json_patch::patch(&mut pod, &keep(&read.metadata)).unwrap();
        }
        pod["metadata"]["annotations"].clone()
    }

    #[test]
    fn the_annotation_is_added_beside_others_and_an_owners_own_word_stays() {
        let alone = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"});
        assert_eq!(annotated(json!({"metadata": {}})), alone);
        assert_eq!(annotated(json!({"metadata": {"annotations": null}})), alone);
        assert_eq!(
            annotated(json!({"metadata": {"annotations": {"a": "b"}}})),
            json!({"a": "b", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
        );
        let own = json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"});
        assert_eq!(annotated(json!({"metadata": {"annotations": own}})), own);
    }
}
