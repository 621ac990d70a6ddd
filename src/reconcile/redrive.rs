//! Deletes that the taint eviction controller asked for and gave up: it drops a denied one and does not come back until the
//! taints change. So the gate asks again, like anyone, through its own webhook, once the cluster can spare the member.
//!
//! Only while the taint stands: a node that came back keeps its pods. Whether a pod's time on it is over is read from the taint
//! and the pod's tolerations, or from the condition that the taint eviction controller leaves on the pod.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Client, Error, ResourceExt as _};
use tracing::{info, warn};

use crate::quorum::{
    Actor, Disruption, Grace, Grants, Kind, PodName, PodUid, Snapshot, TargetPod, Verdict, decide,
};

/// The taint eviction controller comes first: its delete is on its way for a moment, and clocks differ.
const ITS_TURN: SignedDuration = SignedDuration::from_secs(10);

/// How often a refused delete is asked for again where the evidence here says that it would pass.
pub(super) const AGAIN: Duration = Duration::from_secs(15);

/// Whether the pod was to leave its node because of a taint, and has not.
pub(super) fn is_due(pod: &Pod, node: &Node, now: Timestamp) -> bool {
    if pod.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref());
    let evicting: Vec<&Taint> = taints
        .unwrap_or_default()
        .iter()
        .filter(|taint| taint.effect == "NoExecute")
        .collect();
    !evicting.is_empty() && (was_asked(pod) || is_over(pod, &evicting, now))
}

/// The condition that the taint eviction controller sets right before its delete. It is reset after two minutes.
fn was_asked(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|condition| {
        condition.type_ == "DisruptionTarget"
            && condition.status == "True"
            && condition.reason.as_deref() == Some("DeletionByTaintManager")
    })
}

/// Whether a taint is not tolerated, or no longer.
fn is_over(pod: &Pod, taints: &[&Taint], now: Timestamp) -> bool {
    let spec = pod.spec.as_ref();
    let tolerations = spec.and_then(|spec| spec.tolerations.as_deref());
    let tolerations = tolerations.unwrap_or_default();
    taints.iter().any(|taint| {
        let mut matching = tolerations
            .iter()
            .filter(|t| tolerates(t, taint))
            .peekable();
        let Some(since) = taint.time_added.as_ref() else {
            return matching.peek().is_none();
        };
        let allowed = match matching.peek() {
            None => Some(0),
            // Without seconds it is tolerated for ever; of several, the shortest counts.
            Some(_) => matching.filter_map(|t| t.toleration_seconds).min(),
        };
        allowed.is_some_and(|seconds| {
            // Any number is a toleration to the API server: some write the largest there is for "for ever".
            let allowed = SignedDuration::from_secs(seconds.max(0)).saturating_add(ITS_TURN);
            now.duration_since(since.0) >= allowed
        })
    })
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let any_value = toleration.operator.as_deref() == Some("Exists");
    let value = toleration.value.as_deref().unwrap_or_default();
    (effect.is_empty() || effect == taint.effect)
        && (key.is_empty() || key == taint.key)
        && (any_value || value == taint.value.as_deref().unwrap_or_default())
}

/// Whether the gate would let it go now, by evidence that is at hand. The webhook decides with its own.
pub(super) fn may_go(pod: &Pod, snapshot: &Snapshot, grants: &Grants) -> bool {
    let name = PodName::new(pod.name_any());
    // A permission is open: its delete may still be on its way.
    if grants.holds(&name) {
        return false;
    }
    let disruption = Disruption {
        target: TargetPod {
            name,
            uid: PodUid::new(pod.uid().unwrap_or_default()),
        },
        kind: Kind::Delete,
        actor: Actor::Gate,
        grace: Grace::Graceful,
        precondition: None,
    };
    matches!(decide(snapshot, grants, &disruption), Verdict::Allow(_))
}

/// Asks the API server to delete this incarnation of the pod.
pub(super) async fn ask(client: &Client, pod: &Pod) {
    let namespace = pod.namespace().unwrap_or_default();
    let name = pod.name_any();
    let only_this = DeleteParams::default().preconditions(Preconditions {
        uid: pod.uid(),
        // What may go because it does not run may run by then: then the look no longer holds.
        resource_version: pod.resource_version(),
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    match pods.delete(&name, &only_this).await {
        Ok(_) => info!(namespace, pod = name, "asked again for a taint eviction"),
        Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(Error::Api(status)) if status.code == 429 || status.is_forbidden() => {
            info!(namespace, pod = name, answer = %status.message, "a taint eviction has to wait");
        }
        Err(error) => {
            warn!(namespace, pod = name, %error, "could not ask again for a taint eviction");
        }
    }
}

#[cfg(test)]
mod tests;
