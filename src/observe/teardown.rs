//! Whether a pod goes because its cluster does (rule 3).

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::belonging::{self, Belonging};
use super::intents::Intents;
use super::retention::goes_with_pods;
use crate::api::{
    QuorumDisruptionBudgetStatus, RecordedDeletes, RecordedEtcd, StatefulSetStatus, names,
};
use crate::quorum::Intent;
use crate::quorum::stateful_set::{Ordinals, TeardownPolicy};
use crate::quorum::{ClusterRef, Ordinal, OutsideOrdinals, PodName, Teardown, TeardownBy};

/// The state of the object that controls a StatefulSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// There is none.
    None,
    /// The owner exists, or is being deleted without its dependents.
    Lives,
    /// The owner is gone, or is being deleted with its dependents.
    Goes,
    /// The owner could not be read, which proves nothing.
    Unknown,
}

/// The surroundings of a pod.
#[derive(Debug)]
pub(super) struct Around<'a> {
    pub(super) namespace_terminating: bool,
    /// The StatefulSet with the cluster's name, in any incarnation.
    pub(super) set: Option<&'a StatefulSet>,
    /// The owner of the StatefulSet that the pod refers to: from the StatefulSet, or from the
    /// budget's record if the StatefulSet is gone.
    pub(super) owner: Owner,
    /// The budget's status.
    pub(super) status: Option<&'a QuorumDisruptionBudgetStatus>,
    /// The time for which this replica has known that a StatefulSet is gone: the one in the
    /// budget's record, or without a budget the one that the pod refers to.
    pub(super) set_gone_for: Duration,
    /// The time after which a lost StatefulSet needs no recorded delete any more.
    pub(super) settle_time: Duration,
    /// Whether the budget allows a teardown that nobody announced.
    pub(super) policy: TeardownPolicy,
    /// The record of etcd in the cluster's pods.
    pub(super) etcd: RecordedEtcd<'a>,
    pub(super) now: Timestamp,
}

impl Around<'_> {
    /// The announcement without which no pod goes that the StatefulSet does not keep.
    fn needs(&self, set: &StatefulSet) -> Intent {
        match replicas(set) {
            0 => TeardownBy::Hibernation.announced_by(goes_with_pods(set, self.etcd)),
            _ => Intent::ScaleIn,
        }
    }

    /// Whether this change of the StatefulSet needs no record: the budget allows it, or somebody
    /// announced it.
    fn passes_unrecorded(&self, set: Option<&StatefulSet>, intent: Intent) -> bool {
        let announced =
            || set.and_then(|set| Intents::of_set(set, self.status).announced(self.now));
        self.policy == TeardownPolicy::Allow || announced() == Some(intent)
    }
}

/// The part of the pod's surroundings that is being torn down, if there is one.
pub(super) fn of_pod(pod: &Pod, around: &Around<'_>) -> Option<Teardown> {
    if around.namespace_terminating {
        return Some(Teardown::Namespace);
    }
    // A pod without a StatefulSet was orphaned on purpose, so it stays.
    let Belonging::ToSet { name, uid } = belonging::belonging(&pod.metadata) else {
        return None;
    };
    let referred = around
        .set
        .filter(|set| set.metadata.uid.as_deref() == Some(uid.as_str()));
    match referred {
        Some(set) => with_set(&belonging::name(pod), &name, &uid, set, around),
        None => without_set(pod, &uid, around),
    }
}

/// The part of the surroundings of a member's data that is being torn down, if there is one. The
/// pod of the member tells that, if it exists. Otherwise the StatefulSet with the cluster's name
/// does, and if that is gone, the budget's record of it: a StatefulSet that went without a record
/// may have left its claims on purpose. A delete that passed because no member served is no
/// announcement, so it takes no claim.
pub(super) fn of_claim(
    member: &PodName,
    pod: Option<&Pod>,
    around: &Around<'_>,
) -> Option<Teardown> {
    let teardown = of_member(member, pod, around)?;
    // Its pod may be one of a StatefulSet before the one that is there.
    let of_pod = pod.and_then(|pod| belonging::set_uid(&pod.metadata));
    let here = || around.set.and_then(|set| set.metadata.uid.clone());
    let gone = || Some(around.status?.stateful_set.as_ref()?.uid.clone());
    let uid = of_pod.or_else(here).or_else(gone);
    let keep = |uid: String| recorded(around).is_some_and(|r| r.keep_claims(&uid));
    (teardown != Teardown::StatefulSet || !uid.is_some_and(keep)).then_some(teardown)
}

fn of_member(member: &PodName, pod: Option<&Pod>, around: &Around<'_>) -> Option<Teardown> {
    if let Some(pod) = pod {
        return of_pod(pod, around);
    }
    if around.namespace_terminating {
        return Some(Teardown::Namespace);
    }
    if let Some(set) = around.set {
        let metadata = &set.metadata;
        let (name, uid) = (metadata.name.as_deref()?, metadata.uid.as_deref()?);
        return with_set(member, name, uid, set, around);
    }
    let gone = around
        .status
        .and_then(|status| status.stateful_set.as_ref());
    if around.owner == Owner::Goes && !gone.is_some_and(|gone| gone.orphaned) {
        return Some(Teardown::Owner);
    }
    let gone = gone?;
    is_recorded(around, &gone.uid).then_some(Teardown::StatefulSet)
}

fn with_set(
    pod: &PodName,
    name: &str,
    uid: &str,
    set: &StatefulSet,
    around: &Around<'_>,
) -> Option<Teardown> {
    if around.owner == Owner::Goes {
        return Some(Teardown::Owner);
    }
    let is_deleted = || {
        is_recorded(around, uid)
            || around.passes_unrecorded(Some(set), Intent::Delete)
            || terminating_for(&set.metadata, around.now) >= around.settle_time
    };
    if goes_with_dependents(&set.metadata) && is_deleted() {
        return Some(Teardown::StatefulSet);
    }
    let replicas = replicas(set);
    let recorded = recorded(around);
    let hibernation = recorded.and_then(|r| r.hibernation.as_ref());
    let hibernates = || {
        hibernation.is_some_and(|hibernation| hibernation.uid == uid)
            || around.passes_unrecorded(Some(set), around.needs(set))
    };
    if replicas == 0 && hibernates() {
        return Some(Teardown::Hibernation);
    }
    let ordinal = belonging::ordinal(name, pod)?;
    let kept = Ordinals {
        start: Some(first_ordinal(set).0),
        count: replicas,
    };
    let recorded = recorded.and_then(|r| r.scale_in.as_ref());
    let scaled_in = recorded.is_some_and(|scale_in| scale_in.lets_go(uid, ordinal, kept));
    scaled_in.then_some(Teardown::ScaleIn)
}

/// Whether the StatefulSet of the pod keeps none for its ordinal, and nobody announced that.
pub(super) fn outside_ordinals(pod: &Pod, around: &Around<'_>) -> Option<OutsideOrdinals> {
    let Belonging::ToSet { name, uid } = belonging::belonging(&pod.metadata) else {
        return None;
    };
    let set = around.set?;
    let ordinal = belonging::ordinal(&name, &belonging::name(pod))?;
    let is_of_it = set.metadata.uid.as_deref() == Some(uid.as_str());
    if !is_of_it || kept_ordinals(set).contains(&ordinal.0) {
        return None;
    }
    let needs = around.needs(set);
    let said = Intents::of_set(set, around.status);
    (said.announced(around.now) != Some(needs)).then(|| OutsideOrdinals {
        set: ClusterRef::new(set.metadata.namespace.clone().unwrap_or_default(), name),
        needs,
        ignored: said.ignored(around.now),
    })
}

/// The time for which an object has been terminating. A delete cannot be taken back, so one that
/// nobody recorded holds nothing up for longer than a settle time.
fn terminating_for(metadata: &ObjectMeta, now: Timestamp) -> Duration {
    let since = metadata.deletion_timestamp.as_ref();
    let age = since.map(|since| now.duration_since(since.0));
    age.and_then(|age| age.try_into().ok()).unwrap_or_default()
}

/// Whether the pod goes because its StatefulSet is gone.
///
/// The pod still refers to the StatefulSet, so it was not orphaned: then the reference would be
/// gone too. A reference does not prove that the StatefulSet existed, so the budget has to have
/// recorded it, and must not have seen a pod without it. Without a budget there is no record, and
/// then no other StatefulSet of this name may exist. A reference does not prove either that the pod
/// belonged to that StatefulSet: a pod that is not older than the present StatefulSet belongs to
/// that one.
fn without_set(pod: &Pod, uid: &str, around: &Around<'_>) -> Option<Teardown> {
    if !around.set.is_none_or(|set| precedes(pod, set)) {
        return None;
    }
    let is_orphaned = recorded_set(around.status, uid).is_some_and(|gone| gone.orphaned);
    if around.owner == Owner::Goes && !is_orphaned {
        return Some(Teardown::Owner);
    }
    let admitted = is_recorded(around, uid) || around.passes_unrecorded(None, Intent::Delete);
    let was_there = match around.status {
        Some(status) => recorded_set(Some(status), uid).is_some() && !is_orphaned,
        None => around.set.is_none(),
    };
    let for_long = around.set_gone_for >= around.settle_time;
    (admitted || (was_there && for_long)).then_some(Teardown::StatefulSet)
}

/// The StatefulSets whose recorded deletes may still remove pods while this one exists: itself, and
/// those that older pods refer to. A pod that terminates needs no record any more. `None` if that
/// is unknown.
pub(super) fn unfinished(set: &StatefulSet, pods: &[Pod]) -> Option<BTreeSet<String>> {
    let current = set.metadata.uid.clone()?;
    let staying = pods.iter().filter(|pod| {
        let terminates = pod.metadata.deletion_timestamp.is_some();
        !terminates && precedes(pod, set)
    });
    let referred = staying.filter_map(|pod| belonging::set_uid(&pod.metadata));
    Some(referred.chain([current]).collect())
}

/// The ordinals of the StatefulSet whose pods exist.
pub(super) fn ordinals_here(set: &StatefulSet, pods: &[Pod]) -> BTreeSet<Ordinal> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let names = pods.iter().map(belonging::name);
    names
        .filter_map(|pod| belonging::ordinal(name, &pod))
        .collect()
}

/// Whether the pod is older than the StatefulSet. No client can change the creation time of an
/// object. A pod that the StatefulSet adopted is older too, so the record of a delete does not
/// outlive the pods it was for.
fn precedes(pod: &Pod, set: &StatefulSet) -> bool {
    let made = |metadata: &ObjectMeta| metadata.creation_timestamp.as_ref().map(|at| at.0);
    made(&pod.metadata)
        .zip(made(&set.metadata))
        .is_some_and(|(pod, set)| pod < set)
}

/// The budget's record of the StatefulSet with this UID, if that is the last recorded one.
pub(super) fn recorded_set<'a>(
    status: Option<&'a QuorumDisruptionBudgetStatus>,
    uid: &str,
) -> Option<&'a StatefulSetStatus> {
    let set = status?.stateful_set.as_ref()?;
    (set.uid == uid).then_some(set)
}

/// Whether an object is being deleted with its dependents.
pub(super) fn goes_with_dependents(metadata: &ObjectMeta) -> bool {
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    metadata.deletion_timestamp.is_some() && !finalizers.iter().any(|f| f == names::ORPHAN)
}

/// `spec.replicas`, with the API server's default.
pub fn replicas(set: &StatefulSet) -> u32 {
    let spec = set.spec.as_ref().and_then(|spec| spec.replicas);
    u32::try_from(spec.unwrap_or(1)).unwrap_or_default()
}

/// The ordinal of the StatefulSet's first pod, from `spec.ordinals.start`.
pub fn first_ordinal(set: &StatefulSet) -> Ordinal {
    let ordinals = set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref());
    let start = ordinals.and_then(|ordinals| ordinals.start);
    Ordinal(u32::try_from(start.unwrap_or_default()).unwrap_or_default())
}

/// The ordinals of the pods that the StatefulSet asks for.
pub fn kept_ordinals(set: &StatefulSet) -> Range<u32> {
    let Ordinal(first) = first_ordinal(set);
    first..first.saturating_add(replicas(set))
}

/// The most members of an etcd cluster that are looked for by the ordinals of a StatefulSet.
const MOST_MEMBERS: usize = 100;

/// The pods that the StatefulSet asks for and that may be members. It may ask for any number.
pub(super) fn kept_pods(set: &StatefulSet) -> impl Iterator<Item = PodName> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let kept = kept_ordinals(set).take(MOST_MEMBERS);
    kept.map(move |ordinal| PodName::new(format!("{name}-{ordinal}")))
}

fn is_recorded(around: &Around<'_>, uid: &str) -> bool {
    recorded(around).is_some_and(|r| r.stateful_sets.iter().any(|set| set.uid == uid))
}

fn recorded<'a>(around: &Around<'a>) -> Option<&'a RecordedDeletes> {
    around.status.map(|status| &status.recorded_deletes)
}
