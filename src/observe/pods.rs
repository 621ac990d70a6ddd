//! Facts about a pod, from its object.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod as PodObject, PodCondition};

use super::{belonging, containers};
use crate::api::names;
use crate::ledger::Page;
use crate::quorum::pod::{LeaseRole, Node, Pod};
use crate::quorum::{Ordinal, PodUid};

/// The facts about a pod, with its node's state, the role in its member's Lease, and the budget's
/// record of its member.
pub(super) fn facts(
    pod: &PodObject,
    node: Node,
    lease_role: Option<LeaseRole>,
    page: Option<&Page>,
) -> Pod {
    let name = belonging::name(pod);
    let uid = uid(pod);
    let named = page.and_then(Page::etcd_container);
    Pod {
        ordinal: Ordinal::from_pod(&name),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        has_address: address(pod).is_some(),
        node,
        containers: containers::reported(pod, named),
        etcd_ready: containers::etcd_status(pod, named).is_some_and(|status| status.ready),
        up_for: None,
        etcd_age: None,
        sidecar_failing: containers::sidecar_failing(pod, named),
        ready: is_ready(pod),
        ready_for: None,
        revision: revision(pod),
        lease_role,
        recorded_id: page.and_then(|page| page.recorded_id(&name, &uid)),
        name,
        uid,
    }
}

/// The UID of the pod's incarnation.
pub(super) fn uid(pod: &PodObject) -> PodUid {
    PodUid::new(pod.metadata.uid.clone().unwrap_or_default())
}

/// Whether the pod waits for the gate's scheduling gate.
pub fn is_held(pod: &PodObject) -> bool {
    let gates = pod.spec.as_ref().and_then(|s| s.scheduling_gates.as_ref());
    gates.is_some_and(|gates| gates.iter().any(|gate| gate.name == names::IDENTITY))
}

/// The pod's address, if it has one.
pub(super) fn address(pod: &PodObject) -> Option<&str> {
    let address = pod.status.as_ref()?.pod_ip.as_deref()?;
    (!address.is_empty()).then_some(address)
}

/// The name of the pod's node, if it is bound to one.
pub(super) fn node_name(pod: &PodObject) -> Option<&str> {
    let name = pod.spec.as_ref()?.node_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

/// Whether the API server removes the pod without a grace period unless the request states one: its
/// spec has a grace period of 0, or its phase is final. A pod without a node runs nothing, so it
/// does not count.
pub(super) fn goes_at_once(pod: &PodObject) -> bool {
    let spec = pod.spec.as_ref();
    let asks_for_none = spec.is_some_and(|s| s.termination_grace_period_seconds == Some(0));
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    let is_final = matches!(phase, Some("Failed" | "Succeeded"));
    node_name(pod).is_some() && (asks_for_none || is_final)
}

/// Whether the pod's `Ready` condition is true.
pub(super) fn is_ready(pod: &PodObject) -> bool {
    ready(pod).is_some()
}

/// The time for which the pod has been Ready at `now`, by its node's clock.
pub(super) fn ready_for(pod: &PodObject, now: Timestamp) -> Option<Duration> {
    let since = ready(pod)?.last_transition_time.as_ref()?.0;
    Some(Duration::try_from(now.duration_since(since)).unwrap_or_default())
}

/// The pod's condition `Ready`, where it is true.
fn ready(pod: &PodObject) -> Option<&PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let mut ready = conditions.iter().filter(|c| c.type_ == "Ready");
    ready.find(|condition| condition.status == "True")
}

/// The revision of the StatefulSet by which its controller made the pod.
pub(super) fn revision(pod: &PodObject) -> Option<String> {
    pod.metadata.labels.as_ref()?.get(names::REVISION).cloned()
}
