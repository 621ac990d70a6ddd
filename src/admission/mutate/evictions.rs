//! `/mutate/evictions`: ties an eviction to the incarnation that is judged, so that no newer one
//! goes in its place.
//!
//! An existing precondition is never changed. If the pod does not exist, the eviction stays as it
//! is, and the validating webhook refuses it.

use futures::future::BoxFuture;
use json_patch::Patch;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::patch::set;
use crate::admission::asked::{Context, ParsedReview, ReviewAction};
use crate::admission::evictions::{Evicted, Eviction};
use crate::admission::hook::Hook;
use crate::admission::malformed::Malformed;
use crate::admission::reads::Reads;
use crate::admission::room::Readable;
use crate::api::names::{GATED, TRUE};
use crate::named;
use crate::quorum::{PodName, PodUid};

/// A source of the UIDs of pods.
pub trait Incarnations: Send + Sync + 'static {
    /// The UID of the pod, read uncached. `None` if the pod does not exist, or its namespace has no
    /// webhooks, which is not read if `is_gated`. The error is a sentence.
    fn uid_of<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        is_gated: bool,
    ) -> BoxFuture<'a, Result<Option<PodUid>, String>>;
}

/// The UIDs that the API server holds, for gated namespaces only. An API server asks about no other
/// namespaces; any other caller that reaches the port learns nothing about them.
#[derive(Clone)]
pub struct ApiServer(pub Client);

impl Incarnations for ApiServer {
    fn uid_of<'a>(
        &'a self,
        namespace: &'a str,
        pod: &'a str,
        is_gated: bool,
    ) -> BoxFuture<'a, Result<Option<PodUid>, String>> {
        Box::pin(async move {
            let namespaces = Api::<Namespace>::all(self.0.clone());
            let pods = Api::<Pod>::namespaced(self.0.clone(), namespace);
            let has_webhooks = async {
                if is_gated {
                    return Ok(true);
                }
                let around = named::get_metadata_opt(&namespaces, named::OF_OBJECT, namespace);
                let around = around.await?;
                Ok(around.is_some_and(|around| has_label(&around.metadata)))
            };
            // Without a resourceVersion the API server reads from etcd, and not from its cache.
            let found = named::get_metadata_opt(&pods, named::OF_OBJECT, pod);
            let (has_webhooks, found) = tokio::try_join!(has_webhooks, found)
                .map_err(|error: kube::Error| format!("the pod could not be read: {error}"))?;
            let found = found.filter(|_| has_webhooks);
            Ok(found.and_then(|pod| pod.metadata.uid).map(PodUid::new))
        })
    }
}

fn has_label(namespace: &ObjectMeta) -> bool {
    let labels = namespace.labels.as_ref();
    labels
        .and_then(|labels| labels.get(GATED))
        .is_some_and(|value| value == TRUE)
}

/// The patch for the eviction in a review.
pub(in crate::admission) async fn asked(
    body: Readable<'_>,
    context: Context<'_>,
    incarnations: &dyn Incarnations,
    reads: Reads<'_>,
) -> Result<ParsedReview, Malformed> {
    let mut evicted = body.read(|body| Evicted::read(Hook::MutateEvictions, body))?;
    let patch = tied(&evicted, context.deadline, incarnations, reads).await;
    Ok(ParsedReview {
        about: evicted.about(context),
        what: ReviewAction::Patch(patch),
    })
}

/// The patch that ties the eviction to the incarnation that exists now. The error is a sentence.
async fn tied(
    evicted: &Evicted,
    deadline: Instant,
    incarnations: &dyn Incarnations,
    reads: Reads<'_>,
) -> Result<Option<Patch>, String> {
    let (namespace, pod) = (&*evicted.namespace, &*evicted.pod);
    // A watch may be behind. But a cluster that it does not show yet is new, and no member of it
    // goes before its ledger is trusted.
    let is_foreign = || (reads.is_foreign)(namespace, &PodName::new(pod));
    if evicted.precondition().is_some() || is_foreign() {
        return Ok(None);
    }
    let may_read = reads.allowed_in(namespace).map_err(|why| why.to_string())?;
    let uid = incarnations.uid_of(namespace, pod, may_read.is_gated);
    let late = |_| "the pod could not be read in time".to_owned();
    let uid = timeout_at(deadline, uid).await.map_err(late)??;
    Ok(uid.map(|uid| tie(&evicted.eviction, &uid)))
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
            server.uid_of("db", "etcd-0", false).await,
            Ok(Some("of-db".into()))
        );
        for elsewhere in ["kube-system", "default", "nowhere"] {
            assert_eq!(
                server.uid_of(elsewhere, "etcd-0", false).await,
                Ok(None),
                "{elsewhere}"
            );
        }
        assert_eq!(server.uid_of("db", "etcd-1", false).await, Ok(None));
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
