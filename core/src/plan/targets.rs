//! The pods that a StatefulSet is to have: which ordinals, what their pods are called, and which of them exist.

use crate::quorum::pod::Pod;
use crate::quorum::{Ordinal, PodName, Snapshot};

/// One target ordinal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'a> {
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// What its pod is called, whether it exists or not.
    pub name: PodName,
    /// Its pod, where it exists.
    pub pod: Option<&'a Pod>,
}

/// Nothing is planned for a StatefulSet of more replicas. Etcd is run with five members and was never meant for more than some dozens, and the
/// API server takes any number: one that is a slip of the hand must cost neither memory nor time.
pub const MOST_REPLICAS: u32 = 1000;

/// The target ordinals, from the lowest: as many as there are replicas, from `spec.ordinals.start` on, but never more than
/// [`MOST_REPLICAS`].
pub fn targets(snapshot: &Snapshot, first: Ordinal) -> impl Iterator<Item = Target<'_>> {
    (0..snapshot.replicas.min(MOST_REPLICAS)).map(move |index| {
        let ordinal = Ordinal(first.0.saturating_add(index));
        let pod = snapshot.pods.iter().find(|p| p.ordinal == Some(ordinal));
        let name = pod.map_or_else(
            || pod_name(&snapshot.cluster.name, ordinal),
            |pod| pod.name.clone(),
        );
        Target { ordinal, name, pod }
    })
}

/// What the StatefulSet controller calls the pod of an ordinal.
pub fn pod_name(set: &str, ordinal: Ordinal) -> PodName {
    PodName::new(format!("{set}-{}", ordinal.0))
}
