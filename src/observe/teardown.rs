//! Whether a pod goes because its cluster does (rule 3).

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::scope::{self, Belonging};
use crate::api::{QuorumDisruptionBudgetStatus, RecordedDeletes, StatefulSetStatus, names};
use crate::quorum::Teardown;

/// The state of the object that controls a StatefulSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// There is none.
    None,
    /// It is there, or goes without taking its dependents along.
    Lives,
    /// It is gone, or goes and takes its dependents along.
    Goes,
    /// It could not be asked. That proves nothing.
    Unknown,
}

/// What is known around a pod.
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) namespace_terminating: bool,
    /// The StatefulSet of the cluster's name, whichever incarnation it is.
    pub(super) set: Option<&'a StatefulSet>,
    /// The owner of the StatefulSet the pod refers to: as that says, or as the budget recorded it where it is gone.
    pub(super) owner: Owner,
    /// The budget's status.
    pub(super) status: Option<&'a QuorumDisruptionBudgetStatus>,
    /// For how long this replica has known that a StatefulSet is gone: the one that the budget last saw, or the one that the pod refers to where there
    /// is no budget.
    pub(super) set_gone_for: Duration,
    /// After how long that needs no record any more.
    pub(super) settle_time: Duration,
}

/// What of the pod's surroundings is being torn down, if anything.
pub(super) fn of_pod(pod: &Pod, around: &Around<'_>) -> Option<Teardown> {
    if around.namespace_terminating {
        return Some(Teardown::Namespace);
    }
    // A pod without a StatefulSet was orphaned on purpose: it stays.
    let Belonging::ToSet { name, uid } = scope::belonging(&pod.metadata) else {
        return None;
    };
    let referred = around
        .set
        .filter(|set| set.metadata.uid.as_deref() == Some(uid.as_str()));
    match referred {
        Some(set) => with_set(pod, &name, &uid, set, around),
        None => without_set(pod, &uid, around),
    }
}

fn with_set(
    pod: &Pod,
    name: &str,
    uid: &str,
    set: &StatefulSet,
    around: &Around<'_>,
) -> Option<Teardown> {
    if around.owner == Owner::Goes {
        return Some(Teardown::Owner);
    }
    let admitted = around.owner == Owner::None || is_recorded(around, uid);
    if goes_with_dependents(&set.metadata) && admitted {
        return Some(Teardown::StatefulSet);
    }
    let replicas = replicas(set);
    if replicas == 0 {
        return Some(Teardown::Hibernation);
    }
    let index = index(set, scope::ordinal(name, &scope::name(pod))?.0)?;
    let recorded = recorded(around).and_then(|r| r.scale_in.as_ref());
    let scaled_in = recorded.is_some_and(|scale_in| scale_in.lets_go(uid, index, replicas));
    scaled_in.then_some(Teardown::ScaleIn)
}

/// The StatefulSet is gone and the pod still refers to it: it was not orphaned, or the reference would be gone too. What a pod says of
/// itself is no proof that there ever was such a StatefulSet: the budget has to have seen it. Without a budget nobody has; then no
/// other one of its name may stand. Nor is it a proof that the pod was that one's: whatever the pod refers to, it is its successor's unless it
/// was there before.
fn without_set(pod: &Pod, uid: &str, around: &Around<'_>) -> Option<Teardown> {
    if !around.set.is_none_or(|set| precedes(pod, set)) {
        return None;
    }
    if around.owner == Owner::Goes {
        return Some(Teardown::Owner);
    }
    let admitted = around.owner == Owner::None || is_recorded(around, uid);
    let was_there = match around.status {
        Some(status) => recorded_set(Some(status), uid).is_some(),
        None => around.set.is_none(),
    };
    let for_long = around.set_gone_for >= around.settle_time;
    (admitted || (was_there && for_long)).then_some(Teardown::StatefulSet)
}

/// The StatefulSets whose recorded deletes may still take pods along, while this one stands: itself, and those that pods refer to which were there
/// before. One that terminates needs no record any more. `None`: nobody can tell.
pub(super) fn unfinished(set: &StatefulSet, pods: &[Pod]) -> Option<BTreeSet<String>> {
    let current = set.metadata.uid.clone()?;
    let staying = pods.iter().filter(|pod| {
        let terminates = pod.metadata.deletion_timestamp.is_some();
        !terminates && precedes(pod, set)
    });
    let referred = staying.filter_map(|pod| scope::set_uid(&pod.metadata));
    Some(referred.chain([current]).collect())
}

/// Whether the pod was there before the StatefulSet. Nobody can change when an object was made. A pod that the StatefulSet adopted was there before
/// too; so the record of a delete does not outlive the pods that it was for.
fn precedes(pod: &Pod, set: &StatefulSet) -> bool {
    let made = |metadata: &ObjectMeta| metadata.creation_timestamp.as_ref().map(|at| at.0);
    made(&pod.metadata)
        .zip(made(&set.metadata))
        .is_some_and(|(pod, set)| pod < set)
}

/// What the budget recorded of the StatefulSet with this UID, where it is the one it last saw.
pub(super) fn recorded_set<'a>(
    status: Option<&'a QuorumDisruptionBudgetStatus>,
    uid: &str,
) -> Option<&'a StatefulSetStatus> {
    let set = status?.stateful_set.as_ref()?;
    (set.uid == uid).then_some(set)
}

/// Whether an object is terminating and takes its dependents along.
pub(super) fn goes_with_dependents(metadata: &ObjectMeta) -> bool {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    metadata.deletion_timestamp.is_some() && !finalizers.iter().any(|f| f == names::ORPHAN)
}

/// `spec.replicas`; the API server's default where it says nothing.
pub(super) fn replicas(set: &StatefulSet) -> u32 {
    let spec = set.spec.as_ref().and_then(|spec| spec.replicas);
    u32::try_from(spec.unwrap_or(1)).unwrap_or_default()
}

/// The ordinal of the set's first pod.
pub(super) fn first_ordinal(set: &StatefulSet) -> u32 {
    let ordinals = set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref());
    let start = ordinals.and_then(|ordinals| ordinals.start);
    u32::try_from(start.unwrap_or_default()).unwrap_or_default()
}

/// How many pods of the set come before the one with this ordinal.
fn index(set: &StatefulSet, ordinal: u32) -> Option<u32> {
    ordinal.checked_sub(first_ordinal(set))
}

fn is_recorded(around: &Around<'_>, uid: &str) -> bool {
    recorded(around).is_some_and(|r| r.stateful_sets.iter().any(|set| set.uid == uid))
}

fn recorded<'a>(around: &Around<'a>) -> Option<&'a RecordedDeletes> {
    around.status.map(|status| &status.recorded_deletes)
}
