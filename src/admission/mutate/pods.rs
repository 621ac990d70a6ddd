//! `/mutate/pods`: members carry `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"`, so that cluster-autoscaler plans
//! around them instead of starting drains that wait. An owner's own word on it stays.

use futures::future::BoxFuture;
use json_patch::Patch;
use serde::Deserialize;
use serde_json::json;

use crate::api::names::SAFE_TO_EVICT;
use crate::observe::{Observer, is_stateful_set};
use crate::quorum::ClusterRef;

use super::super::actor;
use super::super::deadline::Deadline;
use super::super::handle::{Admission, Answered};
use super::super::hook::Hook;
use super::super::malformed::Malformed;
use super::super::report::Subject;
use super::super::review::{Metadata, Request};
use super::super::room::Readable;
use super::super::ruling::Ruling;
use super::set;

/// Tells whether a StatefulSet is an etcd cluster that the gate keeps.
pub trait Enrolment: Send + Sync + 'static {
    /// Whether it is; a sentence where that could not be found out. Advice only, so a cache will do.
    fn is_enrolled<'a>(
        &'a self,
        namespace: &'a str,
        stateful_set: &'a str,
    ) -> BoxFuture<'a, Result<bool, String>>;
}

/// By what the API server says now.
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

pub(in super::super) async fn answer(
    admission: &Admission,
    body: Readable<'_>,
    deadline: Deadline,
) -> Result<Answered, Malformed> {
    let mut request = body.read(|body| Request::<Pod>::read(Hook::MutatePods, body))?;
    let pod = request
        .object
        .take()
        .ok_or_else(|| request.incomplete("has no object"))?;
    let (namespace, name) = request.place(&pod.metadata)?;
    let subject = Subject::pod(namespace, name, None);
    let patch = match stateful_set_of(&pod.metadata) {
        Some(set) if needs_word(&pod.metadata) => {
            let enrolled = admission.enrolment.is_enrolled(namespace, set);
            match tokio::time::timeout_at(deadline.judge, enrolled).await {
                Ok(Ok(true)) => Some(keep(&pod.metadata)),
                // The pod is created either way: the annotation is advice, a missing member is harm.
                Ok(Ok(false) | Err(_)) | Err(_) => None,
            }
        }
        Some(_) | None => None,
    };
    let dry_run = request.dry_run();
    Ok(Answered {
        subject,
        asker: actor::asker(request.user_info, &admission.own_username),
        review: request.uid,
        dry_run,
        ruling: Ruling::change(patch),
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
