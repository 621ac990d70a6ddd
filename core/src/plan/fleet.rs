//! The next of many rollouts, where only so many go on at one time over all clusters.

use std::collections::BTreeMap;

use crate::quorum::ClusterRef;

/// The cluster whose rollout begins next: one of the namespace with the fewest rollouts under way,
/// and of these the one that has waited longest. So a namespace with many clusters gets no more
/// turns than others. `waiting` is in the order in which they came.
///
/// ```
/// use quorumgate_core::plan::next_cluster;
/// use quorumgate_core::quorum::ClusterRef;
///
/// let of = |namespace: &str, name: &str| ClusterRef::new(namespace, name);
/// let waiting = [of("a", "1"), of("a", "2"), of("b", "3")];
/// assert_eq!(next_cluster([], &waiting), Some(&of("a", "1")));
/// assert_eq!(next_cluster([&of("a", "0")], &waiting), Some(&of("b", "3")));
/// ```
pub fn next_cluster<'a, 'w>(
    under_way: impl IntoIterator<Item = &'a ClusterRef>,
    waiting: impl IntoIterator<Item = &'w ClusterRef>,
) -> Option<&'w ClusterRef> {
    let mut busy: BTreeMap<&str, usize> = BTreeMap::new();
    for cluster in under_way {
        *busy.entry(&cluster.namespace).or_default() += 1;
    }
    waiting
        .into_iter()
        .min_by_key(|cluster| busy.get(cluster.namespace.as_str()).copied().unwrap_or(0))
}
