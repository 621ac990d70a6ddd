//! What is true of a made-up cluster, counted from its states and not from any evidence.

use quorumgate_core::quorum::Grants;

use super::clusters::Cluster;

/// Members that serve, without `target` and without those that have a grant.
pub(super) fn serving_without(cluster: &Cluster, grants: &Grants, target: &str) -> u32 {
    let left = cluster
        .named()
        .filter(|(_, state)| state.serves())
        .filter(|(name, _)| name != target && !grants.holds(&name.as_str().into()));
    u32::try_from(left.count()).unwrap()
}

/// Voters that count: listed ones, and learners that may be promoted while their grant is open.
pub(super) fn voters(cluster: &Cluster, grants: &Grants, target: &str) -> u32 {
    let promotable = cluster
        .named()
        .filter(|(_, state)| state.is_learner())
        .filter(|(name, _)| name != target && grants.holds(&name.as_str().into()));
    cluster.voters + u32::try_from(promotable.count()).unwrap()
}
