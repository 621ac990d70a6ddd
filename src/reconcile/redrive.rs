//! Repeated deletes for the taint eviction controller. That controller gives a refused delete up
//! until the taints change. So the gate asks again through its own webhook, as every client does,
//! once the cluster can spare the member.
//!
//! The gate asks only while the taint stands, since a node that came back keeps its pods. Whether a
//! pod's time on the node is over follows from the taint and the pod's tolerations, or from the
//! condition that the taint eviction controller leaves on the pod.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Client, Error, ResourceExt as _};
use tracing::{info, warn};

use crate::quorum::{
    Actor, Disruption, Grace, Grants, Kind, PodName, PodUid, Snapshot, TargetPod, Verdict, decide,
};

/// The time that the taint eviction controller has for its own delete. Clocks differ, and the
/// delete is under way for a moment.
const ITS_TURN: SignedDuration = SignedDuration::from_secs(10);

/// The time until the next look while deletes are due.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// The pause before a refused delete is repeated, if the evidence here says that it would pass.
pub(super) const AGAIN: Duration = Duration::from_secs(15);

/// Whether the pod should have left its node because of a taint.
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

/// Whether the pod has the condition that the taint eviction controller sets right before its
/// delete. The condition is reset after two minutes.
fn was_asked(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    conditions.unwrap_or_default().iter().any(|condition| {
        condition.type_ == "DisruptionTarget"
            && condition.status == "True"
            && condition.reason.as_deref() == Some("DeletionByTaintManager")
    })
}

/// Whether the pod does not tolerate one of the taints, or does not tolerate it any longer.
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
            // A toleration without seconds lasts for ever. Of several tolerations the shortest
            // counts.
            Some(_) => matching.filter_map(|t| t.toleration_seconds).min(),
        };
        allowed.is_some_and(|seconds| {
            // The API server accepts any number of seconds. Some tolerations have the largest
            // number for "for ever".
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

/// Whether the gate would permit the delete now, by the present evidence. The webhook decides with
/// its own evidence.
pub(super) fn may_go(pod: &Pod, snapshot: &Snapshot, grants: &Grants) -> bool {
    let name = PodName::new(pod.name_any());
    // A grant is open, so its delete may still be under way.
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
        // A pod that may go because its member does not run must not go if the member has started
        // since the look.
        resource_version: pod.resource_version(),
    });
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    match pods.delete(&name, &only_this).await {
        Ok(_) => info!(namespace, pod = name, "taint eviction repeated"),
        Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => {}
        Err(Error::Api(status)) if status.code == 429 || status.is_forbidden() => {
            info!(namespace, pod = name, answer = %status.message, "taint eviction waits");
        }
        Err(error) => {
            warn!(namespace, pod = name, %error, "cannot repeat a taint eviction");
        }
    }
}

#[cfg(test)]
mod tests;
