//! Whose a pod is, as far as the pod itself says.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::quorum::{Ordinal, PodName};

/// Whose a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Belonging {
    /// A StatefulSet's.
    ToSet {
        /// Name of the StatefulSet.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Nobody's, but it has a name that a StatefulSet gives: orphaned on purpose, or released because somebody changed its labels.
    Orphan {
        /// The StatefulSet that gives such names.
        of: String,
    },
    /// Somebody else's (a Job's, a Deployment's), or it never was a StatefulSet's.
    Foreign,
}

/// Whose the pod is. Its labels do not matter: druid's compaction Jobs carry those of the members.
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

/// Whether an owner is a StatefulSet of Kubernetes: `OpenKruise` has another kind of this name.
pub fn is_stateful_set(api_version: &str, kind: &str) -> bool {
    kind == "StatefulSet" && api_version.starts_with("apps/")
}

/// Whose an ownerless pod was, by its name: that cannot be changed while it runs, as labels can.
fn orphan(pod: &str) -> Belonging {
    match (pod.rsplit_once('-'), Ordinal::of(&pod.into())) {
        (Some((set, _)), Some(_)) => Belonging::Orphan { of: set.to_owned() },
        _ => Belonging::Foreign,
    }
}

/// The UID of the StatefulSet that the pod says it belongs to.
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

/// The name of a pod.
pub(super) fn name(pod: &Pod) -> PodName {
    PodName::new(pod.metadata.name.clone().unwrap_or_default())
}

/// The ordinal of a pod in the StatefulSet `set`; `None` where its name is not one that the set gives.
pub(super) fn ordinal(set: &str, pod: &PodName) -> Option<Ordinal> {
    let of_set = pod
        .as_str()
        .rsplit_once('-')
        .is_some_and(|(prefix, _)| prefix == set);
    of_set.then(|| Ordinal::of(pod)).flatten()
}

/// The name of the set whose member runs in the pod, if one does: the set that gives such names. Only of a pod that no set would name like
/// this, the one that controls it. Owner references can be changed under a running member, its name cannot.
pub fn named_after(pod: &ObjectMeta) -> Option<String> {
    match (
        orphan(pod.name.as_deref().unwrap_or_default()),
        belonging(pod),
    ) {
        (Belonging::Orphan { of: name }, _) | (_, Belonging::ToSet { name, .. }) => Some(name),
        _ => None,
    }
}
