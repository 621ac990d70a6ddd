//! The target ordinals of a StatefulSet: the pods that it should have, and which of them exist.

use crate::quorum::pod::Pod;
use crate::quorum::{Ordinal, PodName, Snapshot};

/// A target ordinal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target<'a> {
    /// The ordinal.
    pub ordinal: Ordinal,
    /// The name of its pod, whether that exists or not.
    pub name: PodName,
    /// The pod, if it exists.
    pub pod: Option<&'a Pod>,
}

/// The most replicas for which steps are planned. etcd is run with five members and never with more
/// than some dozens. The API server accepts any number, and a mistyped one must cost neither memory
/// nor time.
pub const MOST_REPLICAS: u32 = 1000;

/// The target ordinals, the lowest first: as many as `spec.replicas`, from `first`
/// (`spec.ordinals.start`) on, but never more than [`MOST_REPLICAS`].
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

/// The name that the StatefulSet controller gives the pod of an ordinal.
pub fn pod_name(set: &str, ordinal: Ordinal) -> PodName {
    PodName::new(format!("{set}-{}", ordinal.0))
}
