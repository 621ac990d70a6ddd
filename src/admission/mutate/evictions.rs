//! `/mutate/evictions`: ties an eviction to the incarnation that is judged, so that no newer one goes in its place.
//!
//! A precondition that is there is never changed. Where there is no such pod nothing is: the validating webhook says so.

use futures::future::BoxFuture;
use json_patch::Patch;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use serde_json::json;

use crate::api::names::{GATED, TRUE};
use crate::quorum::PodUid;

use super::super::actor;
use super::super::deadline::Deadline;
use super::super::evictions::{Evicted, Eviction};
use super::super::handle::{Admission, Answered};
use super::super::hook::Hook;
use super::super::malformed::Malformed;
use super::super::room::Readable;
use super::super::ruling::Ruling;
use super::set;

/// Tells which incarnation of a pod there is.
pub trait Incarnations: Send + Sync + 'static {
    /// The UID of the pod, read uncached; `None` where there is no such pod or its namespace is not under the webhooks, a sentence where
    /// it could not be read.
    fn uid_of<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
    ) -> BoxFuture<'a, Result<Option<PodUid>, String>>;
}

/// The API server's word. An API server asks about gated namespaces only; anybody else who reaches the port might ask about any, and learns
/// nothing of the others.
#[derive(Clone)]
pub struct ApiServer(pub Client);

impl Incarnations for ApiServer {
    fn uid_of<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
    ) -> BoxFuture<'a, Result<Option<PodUid>, String>> {
        Box::pin(async move {
            let namespaces = Api::<Namespace>::all(self.0.clone());
            let pods = Api::<Pod>::namespaced(self.0.clone(), namespace);
            // A get without a resourceVersion is answered from etcd, not from the API server's cache.
            let (around, found) = tokio::try_join!(
                namespaces.get_metadata_opt(namespace),
                pods.get_metadata_opt(pod)
            )
            .map_err(|error| format!("the pod could not be read: {error}"))?;
            let found = found.filter(|_| around.is_some_and(|around| is_gated(&around.metadata)));
            Ok(found.and_then(|pod| pod.metadata.uid).map(PodUid::new))
        })
    }
}

fn is_gated(namespace: &ObjectMeta) -> bool {
    let labels = namespace.labels.as_ref();
    labels
        .and_then(|labels| labels.get(GATED))
        .is_some_and(|value| value == TRUE)
}

pub(in super::super) async fn answer(
    admission: &Admission,
    body: Readable<'_>,
    deadline: Deadline,
) -> Result<Answered, Malformed> {
    let evicted = body.read(|body| Evicted::read(Hook::MutateEvictions, body))?;
    let ruling = if evicted.precondition().is_some() {
        Ruling::change(None)
    } else {
        let uid = admission
            .incarnations
            .uid_of(&evicted.namespace, &evicted.pod);
        let what = format!("pod {}/{}", evicted.namespace, evicted.pod);
        match tokio::time::timeout_at(deadline.judge, uid).await {
            Ok(Ok(uid)) => Ruling::change(uid.map(|uid| tie(&evicted.eviction, &uid))),
            Ok(Err(why)) => Ruling::unavailable(&what, why),
            Err(_) => Ruling::unavailable(&what, "the pod could not be read in time"),
        }
    };
    Ok(Answered {
        subject: evicted.subject(),
        asker: actor::asker(evicted.request.user_info, &admission.own_username),
        review: evicted.request.uid,
        dry_run: evicted.dry_run,
        ruling,
    })
}

/// The patch that ties an eviction without such a precondition to one incarnation.
fn tie(eviction: &Eviction, uid: &PodUid) -> Patch {
    let uid = uid.as_str();
    match eviction.delete_options.as_ref().map(|o| &o.preconditions) {
        None => set(["deleteOptions"], json!({"preconditions": {"uid": uid}})),
        Some(None) => set(["deleteOptions", "preconditions"], json!({"uid": uid})),
        Some(Some(_)) => set(["deleteOptions", "preconditions", "uid"], json!(uid)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::fake_api::FakeApi;

    #[tokio::test]
    async fn the_uid_of_a_pod_is_given_for_gated_namespaces_only() {
        let api = FakeApi::default();
        for (namespace, labels) in [
            ("db", json!({"quorumgate.io/gated": "true"})),
            ("kube-system", json!({"quorumgate.io/gated": "false"})),
            ("default", Value::Null),
        ] {
            api.put(
                &format!("/api/v1/namespaces/{namespace}"),
                json!({"metadata": {"name": namespace, "labels": labels}}),
            );
            api.put(
                &format!("/api/v1/namespaces/{namespace}/pods/etcd-0"),
                json!({"metadata": {"name": "etcd-0", "uid": format!("of-{namespace}")}}),
            );
        }
        let server = ApiServer(api.client());
        assert_eq!(
            server.uid_of("db", "etcd-0").await,
            Ok(Some("of-db".into()))
        );
        for elsewhere in ["kube-system", "default", "nowhere"] {
            assert_eq!(
                server.uid_of(elsewhere, "etcd-0").await,
                Ok(None),
                "{elsewhere}"
            );
        }
        assert_eq!(server.uid_of("db", "etcd-1").await, Ok(None));
    }

    #[test]
    fn the_uid_is_added_to_whatever_the_eviction_has_and_nothing_else_changes() {
        for (mut before, after) in [
            (
                json!({"metadata": {"name": "etcd-0"}}),
                json!({"metadata": {"name": "etcd-0"}, "deleteOptions": {"preconditions": {"uid": "u"}}}),
            ),
            (
                json!({"deleteOptions": null}),
                json!({"deleteOptions": {"preconditions": {"uid": "u"}}}),
            ),
            (
                json!({"deleteOptions": {"gracePeriodSeconds": 5, "dryRun": ["All"]}}),
                json!({"deleteOptions": {"gracePeriodSeconds": 5, "dryRun": ["All"], "preconditions": {"uid": "u"}}}),
            ),
            (
                json!({"deleteOptions": {"preconditions": {"resourceVersion": "7"}}}),
                json!({"deleteOptions": {"preconditions": {"resourceVersion": "7", "uid": "u"}}}),
            ),
        ] {
            let eviction: Eviction = serde_json::from_value(before.clone()).unwrap();
            let patch = tie(&eviction, &"u".into());
            json_patch::patch(&mut before, &patch).unwrap();
            let expected: Value = after;
            assert_eq!(before, expected);
        }
    }
}
