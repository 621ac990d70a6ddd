//! The owner of a pod, as far as the pod itself shows it.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::quorum::{Ordinal, PodName};

/// The owner of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Belonging {
    /// A StatefulSet.
    ToSet {
        /// The name of the StatefulSet.
        name: String,
        /// The UID of the StatefulSet.
        uid: String,
    },
    /// None, but the pod's name is one that a StatefulSet gives: the pod was orphaned on purpose,
    /// or released after a change of its labels.
    Orphan {
        /// The name of that StatefulSet.
        of: String,
    },
    /// Another owner (such as a Job or a Deployment), or none for a pod that never was a
    /// StatefulSet's.
    Foreign,
}

/// The owner of the pod. Its labels do not matter: druid's compaction Jobs have those of the
/// members.
pub(super) fn belonging(pod: &ObjectMeta) -> Belonging {
    match controller(pod) {
        Some(owner) if is_stateful_set(&owner.api_version, &owner.kind) => Belonging::ToSet {
            name: owner.name.clone(),
            uid: owner.uid.clone(),
        },
        Some(_) => Belonging::Foreign,
        None => orphan(pod.name.as_deref().unwrap_or_default()),
    }
}

/// Whether a StatefulSet that is gone left all of these pods, of which there are some.
pub(super) fn are_orphans(pods: &[Pod]) -> bool {
    let is_orphan = |pod: &Pod| matches!(belonging(&pod.metadata), Belonging::Orphan { .. });
    !pods.is_empty() && pods.iter().all(is_orphan)
}

/// Whether the kind is the StatefulSet of Kubernetes. `OpenKruise` has another kind of this name.
pub fn is_stateful_set(api_version: &str, kind: &str) -> bool {
    kind == "StatefulSet" && api_version.starts_with("apps/")
}

/// The former owner of a pod without one, from its name. A name cannot be changed while the pod
/// runs; labels can.
fn orphan(pod: &str) -> Belonging {
    match (pod.rsplit_once('-'), Ordinal::from_pod(&pod.into())) {
        (Some((set, _)), Some(_)) => Belonging::Orphan { of: set.to_owned() },
        _ => Belonging::Foreign,
    }
}

/// The UID of the StatefulSet that the pod refers to.
pub(super) fn set_uid(pod: &ObjectMeta) -> Option<String> {
    match belonging(pod) {
        Belonging::ToSet { uid, .. } => Some(uid),
        Belonging::Orphan { .. } | Belonging::Foreign => None,
    }
}

/// The reference to the object that controls this one.
pub(super) fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|owner| owner.controller == Some(true))
}

/// The kind and the name of the object that controls the StatefulSet.
pub fn controlled_by(set: &StatefulSet) -> Option<String> {
    let owner = controller(&set.metadata)?;
    Some(format!("{} {}", owner.kind, owner.name))
}

/// The name of a pod.
pub(super) fn name(pod: &Pod) -> PodName {
    PodName::new(pod.metadata.name.clone().unwrap_or_default())
}

/// The ordinal of a pod in the StatefulSet `set`. `None` if its name is not one that the
/// StatefulSet gives.
pub(super) fn ordinal(set: &str, pod: &PodName) -> Option<Ordinal> {
    let of_set = pod
        .as_str()
        .rsplit_once('-')
        .is_some_and(|(prefix, _)| prefix == set);
    of_set.then(|| Ordinal::from_pod(pod)).flatten()
}

/// The StatefulSet that gives its pods such names, if one does.
pub fn giver_of(pod: &PodName) -> Option<String> {
    match orphan(pod.as_str()) {
        Belonging::Orphan { of } => Some(of),
        Belonging::ToSet { .. } | Belonging::Foreign => None,
    }
}

/// The name of the StatefulSet whose member runs in the pod, if one does: the StatefulSet that
/// gives such names. For a pod with any other name, the StatefulSet that controls it. Owner
/// references can be changed under a running member; its name cannot.
pub fn named_after(pod: &ObjectMeta) -> Option<String> {
    match (
        orphan(pod.name.as_deref().unwrap_or_default()),
        belonging(pod),
    ) {
        (Belonging::Orphan { of: name }, _) | (_, Belonging::ToSet { name, .. }) => Some(name),
        _ => None,
    }
}
