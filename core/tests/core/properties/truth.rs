//! The truth about a random cluster, counted from the states of its members without any evidence.

use quorumgate_core::quorum::Grants;

use super::clusters::Cluster;

/// The number of serving members, without `target` and without those that have a grant.
pub(super) fn serving_without(cluster: &Cluster, grants: &Grants, target: &str) -> u32 {
    let left = cluster
        .named()
        .filter(|(_, state)| state.serves())
        .filter(|(name, _)| name != target && !grants.holds(&name.as_str().into()));
    u32::try_from(left.count()).unwrap()
}

/// The number of voters that count: the listed ones, and the learners that may be promoted while
/// their grant is open.
pub(super) fn voters(cluster: &Cluster, grants: &Grants, target: &str) -> u32 {
    let promotable = cluster
        .named()
        .filter(|(_, state)| state.is_learner())
        .filter(|(name, _)| name != target && grants.holds(&name.as_str().into()));
    cluster.voters + u32::try_from(promotable.count()).unwrap()
}
