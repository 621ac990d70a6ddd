//! What a rollout is asked to do: by the StatefulSet, by the budget, and by what was watched.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{
    RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetUpdateStrategy,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::{self, Amount, BadField, QuorumDisruptionBudget, names};
use crate::observe::World;
use crate::plan::{
    Desired, Generation, Handover, MaxUnavailable, NonServing, Obstacle, PodManagement, Removal,
};
use crate::quorum::{Ordinal, PodName};
use crate::reconcile::strategy::kind;
use crate::strategy::ON_DELETE;

/// What only time shows.
pub(super) struct Watched {
    /// For how long each pod has not served.
    pub(super) out_for: BTreeMap<PodName, Duration>,
    /// For how long leadership is still left alone, where it was moved a moment ago.
    pub(super) leadership_rests: Option<Duration>,
}

/// What there is to do about this StatefulSet.
pub(super) fn desired(
    set: &StatefulSet,
    budget: &QuorumDisruptionBudget,
    world: &World,
    watched: Watched,
) -> Result<Desired, BadField> {
    let rollout = budget.spec.rollout()?;
    Ok(Desired {
        generation: generation(set),
        first_ordinal: first_ordinal(set),
        management: management(set),
        partition: partition(set, budget, rollout.partition),
        paused: rollout.paused,
        max_unavailable: match (
            budget.spec.max_unavailable.as_ref(),
            owners_max_unavailable(set),
        ) {
            (None, Some(owners)) => owners,
            (_, _) => match rollout.max_unavailable {
                Amount::Members(members) => MaxUnavailable::Members(members),
                Amount::Percent(percent) => MaxUnavailable::Percent(percent),
            },
        },
        removal: match rollout.removal {
            api::Removal::Delete => Removal::Delete,
            api::Removal::EvictHealthy => Removal::EvictHealthy,
        },
        non_serving: match rollout.non_serving {
            api::NonServing::OneAtATime => NonServing::OneAtATime,
            api::NonServing::AllAtOnce => NonServing::AllAtOnce,
        },
        sidecar_first: rollout.sidecar_first,
        obstacle: world.switches_peer_tls().map(Obstacle::PeerTls),
        handover: watched
            .leadership_rests
            .map_or(Handover::Possible, |remaining| Handover::Resting {
                remaining,
            }),
        out_for: watched.out_for,
    })
}

/// What the StatefulSet's owner wrote before the gate put `OnDelete` in its place: a staged rollout stays one.
fn owners(set: &StatefulSet) -> Option<RollingUpdateStatefulSetStrategy> {
    let annotations = set.metadata.annotations.as_ref()?;
    let written = annotations.get(names::PREVIOUS_UPDATE_STRATEGY)?;
    let strategy: StatefulSetUpdateStrategy = serde_json::from_str(written).ok()?;
    strategy.rolling_update
}

fn owners_partition(set: &StatefulSet) -> Option<u32> {
    u32::try_from(owners(set)?.partition?).ok()
}

fn owners_max_unavailable(set: &StatefulSet) -> Option<MaxUnavailable> {
    match owners(set)?.max_unavailable? {
        IntOrString::Int(members) => u32::try_from(members).ok().map(MaxUnavailable::Members),
        IntOrString::String(share) => {
            let percent = share.strip_suffix('%')?.parse().ok()?;
            Some(MaxUnavailable::Percent(percent))
        }
    }
}

/// How many pods the partition leaves to a rollout; `None` where the budget's wishes cannot be read.
pub(super) fn target_count(set: &StatefulSet, budget: &QuorumDisruptionBudget) -> Option<u32> {
    let wished = budget.spec.rollout().ok()?.partition;
    let replicas = set.spec.as_ref()?.replicas.unwrap_or(1);
    let replicas = u32::try_from(replicas).ok()?;
    Some(replicas.saturating_sub(partition(set, budget, wished)))
}

/// How many of the lowest ordinals keep their revision; `wished` is what the budget's spec comes to.
fn partition(set: &StatefulSet, budget: &QuorumDisruptionBudget, wished: u32) -> u32 {
    match (kind(set), budget.spec.partition) {
        (ON_DELETE, Some(_)) => wished,
        (ON_DELETE, None) => owners_partition(set).unwrap_or_default(),
        // The StatefulSet controller knows no other.
        _ => live_partition(set).unwrap_or_default(),
    }
}

/// The partition that the StatefulSet controller goes by. Where it is not written out, that controller creates pods of low ordinals with the
/// revision that they had.
pub(super) fn live_partition(set: &StatefulSet) -> Option<u32> {
    let strategy = set.spec.as_ref()?.update_strategy.as_ref()?;
    let partition = strategy.rolling_update.as_ref()?.partition?;
    u32::try_from(partition).ok()
}

fn generation(set: &StatefulSet) -> Generation {
    let observed = set.status.as_ref().and_then(|s| s.observed_generation);
    Generation {
        desired: set.metadata.generation.unwrap_or_default(),
        observed: observed.unwrap_or_default(),
    }
}

/// `spec.ordinals.start`.
pub(super) fn first_ordinal(set: &StatefulSet) -> Ordinal {
    let ordinals = set.spec.as_ref().and_then(|spec| spec.ordinals.as_ref());
    let start = ordinals.and_then(|ordinals| ordinals.start);
    Ordinal(u32::try_from(start.unwrap_or_default()).unwrap_or_default())
}

/// The API server's default is `OrderedReady`.
fn management(set: &StatefulSet) -> PodManagement {
    let policy = set
        .spec
        .as_ref()
        .and_then(|s| s.pod_management_policy.as_deref());
    match policy {
        Some("Parallel") => PodManagement::Parallel,
        _ => PodManagement::OrderedReady,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn remembering(strategy: &str) -> StatefulSet {
        serde_json::from_value(json!({"metadata": {
            "annotations": {names::PREVIOUS_UPDATE_STRATEGY: strategy},
        }}))
        .unwrap()
    }

    #[test]
    fn what_the_owner_had_written_counts_where_the_budget_says_nothing() {
        let staged = remembering(
            r#"{"type":"RollingUpdate","rollingUpdate":{"partition":2,"maxUnavailable":"40%"}}"#,
        );
        assert_eq!(owners_partition(&staged), Some(2));
        assert_eq!(
            owners_max_unavailable(&staged),
            Some(MaxUnavailable::Percent(40))
        );
        let plain = remembering(r#"{"type":"RollingUpdate"}"#);
        assert_eq!(owners_partition(&plain), None);
        assert_eq!(owners_max_unavailable(&plain), None);
        assert_eq!(owners_partition(&StatefulSet::default()), None);
    }

    #[test]
    fn the_statefulset_controller_goes_by_the_partition_that_is_written_out() {
        let with = |strategy: serde_json::Value| -> StatefulSet {
            let spec = json!({
                "serviceName": "etcd", "selector": {}, "template": {}, "updateStrategy": strategy,
            });
            serde_json::from_value(json!({"spec": spec})).unwrap()
        };
        let rolling = |partition: u32| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
        assert_eq!(live_partition(&with(rolling(2))), Some(2));
        assert_eq!(
            live_partition(&with(json!({"type": "RollingUpdate"}))),
            None
        );
        let budget: QuorumDisruptionBudget = serde_json::from_value(json!({
            "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
            "metadata": {"name": "etcd"}, "spec": {"statefulSetName": "etcd", "partition": 1},
        }))
        .unwrap();
        assert_eq!(partition(&with(rolling(2)), &budget, 1), 2);
        let on_delete = with(json!({"type": "OnDelete"}));
        assert_eq!(partition(&on_delete, &budget, 1), 1);
    }
}
