//! Which `EtcdMember`s are to exist (DEP-04, "Lifecycle of an `EtcdMember`").

use std::collections::BTreeSet;

use super::input::Listing;
use crate::quorum::{PodName, Snapshot};

/// The `EtcdMember`s to create and to delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// The `EtcdMember`s to create.
    pub create: Vec<NewMember>,
    /// The names of the `EtcdMember`s to delete.
    pub delete: Vec<PodName>,
}

/// An `EtcdMember` to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMember {
    /// The name of the member's pod. The `EtcdMember` is named like the member, which may have a
    /// prefix before it (etcd-druid's `memberNamePrefix`).
    pub member: PodName,
    /// Whether the `EtcdMember` gets the annotation
    /// [`CREATE_AS_LEARNER`](super::CREATE_AS_LEARNER).
    pub create_as_learner: bool,
}

/// Compares the `EtcdMember`s that exist with those of `replicas`, the pods that the StatefulSet is
/// to have.
///
/// There is one per replica. At 0 replicas there is none, because the status would be stale. One
/// of a higher ordinal stays while etcd still lists its member. A member is added to a running
/// cluster if a confirmed list does not have it. While that list cannot be read and others have
/// their `EtcdMember` already, a missing one is left for later: nobody knows whether it grows.
pub fn resources(
    snapshot: &Snapshot,
    replicas: &[PodName],
    existing: &BTreeSet<PodName>,
) -> Resources {
    let listing = |member: &PodName| Listing::from_snapshot(snapshot, member);
    let is_postponed = |member: &PodName| {
        snapshot.formed && !existing.is_empty() && listing(member) == Listing::Unknown
    };
    let create = replicas
        .iter()
        .filter(|member| !existing.contains(member) && !is_postponed(member))
        .map(|member| NewMember {
            member: member.clone(),
            create_as_learner: snapshot.formed && listing(member) == Listing::No,
        });
    let delete = existing
        .iter()
        .filter(|member| !replicas.contains(member))
        .filter(|member| replicas.is_empty() || listing(member) == Listing::No);
    Resources {
        create: create.collect(),
        delete: delete.cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quorum::evidence::{Probe, Unanswered};
    use crate::quorum::{Observation, example};

    fn names(ordinals: std::ops::Range<u32>) -> Vec<PodName> {
        let name = |n| PodName::new(format!("etcd-{n}"));
        ordinals.map(name).collect()
    }

    fn of(observation: &Observation, replicas: u32, existing: u32) -> Resources {
        let existing = names(0..existing).into_iter().collect();
        resources(
            &Snapshot::assemble(observation),
            &names(0..replicas),
            &existing,
        )
    }

    fn created(resources: &Resources) -> Vec<(&str, bool)> {
        let created = resources.create.iter();
        created
            .map(|new| (new.member.as_str(), new.create_as_learner))
            .collect()
    }

    #[test]
    fn a_new_cluster_gets_one_per_replica_before_any_pod_exists() {
        let fresh = Observation::before_any_look(example::healthy("etcd", 3).cluster, 3);
        let resources = of(&fresh, 3, 0);
        let plain = [("etcd-0", false), ("etcd-1", false), ("etcd-2", false)];
        assert_eq!(created(&resources), plain);
    }

    #[test]
    fn members_of_a_running_cluster_are_not_taken_for_new_ones() {
        let resources = of(&example::healthy("etcd", 3), 3, 0);
        assert!(resources.create.iter().all(|new| !new.create_as_learner));
        assert_eq!(resources.create.len(), 3);
    }

    #[test]
    fn a_member_added_by_growth_is_created_as_a_learner() {
        let resources = of(&example::healthy("etcd", 1), 3, 1);
        assert_eq!(created(&resources), [("etcd-1", true), ("etcd-2", true)]);
    }

    #[test]
    fn while_nobody_gives_a_list_growth_is_left_for_later() {
        let mut silent = example::healthy("etcd", 1);
        for probe in &mut silent.round.probes {
            *probe = Probe::unanswered(probe.target.clone(), Unanswered::Deadline);
        }
        assert_eq!(of(&silent, 3, 1), Resources::default());
    }

    #[test]
    fn at_0_replicas_none_is_left_and_after_a_scale_in_none_of_a_removed_member() {
        let cluster = example::healthy("etcd", 3);
        assert_eq!(of(&cluster, 0, 3).delete, names(0..3));
        assert_eq!(of(&cluster, 1, 3).delete, [], "etcd still lists them");
        assert_eq!(of(&example::healthy("etcd", 1), 1, 3).delete, names(1..3));
    }
}
