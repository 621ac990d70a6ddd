//! The wishes for a rollout, from the StatefulSet, from the budget, and from measured durations.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{
    RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetUpdateStrategy,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api::{self, Amount, BadField, QuorumDisruptionBudget, names};
use crate::observe::{ClusterView, first_ordinal};
use crate::plan::{
    Desired, Finding, Generation, Handover, MaxUnavailable, NonServing, Obstacle, PodManagement,
    Removal, Sidecars,
};
use crate::quorum::PodName;
use crate::reconcile::strategy::kind;
use crate::strategy::ON_DELETE;

/// The facts that were watched and found beside the snapshot.
pub(super) struct Watched {
    /// The findings of the preflight.
    pub(super) findings: Vec<Finding>,
    /// For each pod the time for which it has not served.
    pub(super) out_for: BTreeMap<PodName, Duration>,
    /// The time for which leadership still has to rest after a move.
    pub(super) leadership_rests: Option<Duration>,
}

/// The desired state of this StatefulSet.
pub(super) fn desired(
    set: &StatefulSet,
    budget: &QuorumDisruptionBudget,
    view: &ClusterView,
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
        sidecars: match rollout.sidecars {
            api::Sidecars::Ignore => Sidecars::Ignore,
            api::Sidecars::Hold => Sidecars::Hold,
        },
        soak: rollout.soak.max(min_ready(set)),
        obstacle: view.switches_peer_tls().map(Obstacle::PeerTls),
        findings: watched.findings,
        accepted_findings: accepted_findings(budget),
        handover: watched
            .leadership_rests
            .map_or(Handover::Possible, |remaining| Handover::Resting {
                remaining,
            }),
        out_for: watched.out_for,
    })
}

/// The strategy that the StatefulSet's owner wrote before the gate replaced it by `OnDelete`. A
/// staged rollout stays staged.
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

/// The number of pods that the partition leaves to a rollout. `None` if the budget's wishes are
/// unreadable.
pub(super) fn target_count(set: &StatefulSet, budget: &QuorumDisruptionBudget) -> Option<u32> {
    let wished = budget.spec.rollout().ok()?.partition;
    let replicas = set.spec.as_ref()?.replicas.unwrap_or(1);
    let replicas = u32::try_from(replicas).ok()?;
    Some(replicas.saturating_sub(partition(set, budget, wished)))
}

/// The number of the lowest ordinals that keep their revision. `wished` is the partition in the
/// budget's spec.
fn partition(set: &StatefulSet, budget: &QuorumDisruptionBudget, wished: u32) -> u32 {
    match (kind(set), budget.spec.partition) {
        (ON_DELETE, Some(_)) => wished,
        (ON_DELETE, None) => owners_partition(set).unwrap_or_default(),
        // The StatefulSet controller knows only its own partition.
        _ => live_partition(set).unwrap_or_default(),
    }
}

/// The partition that the StatefulSet controller uses. Without one in the spec, that controller
/// creates pods of low ordinals with their old revision.
pub(super) fn live_partition(set: &StatefulSet) -> Option<u32> {
    let strategy = set.spec.as_ref()?.update_strategy.as_ref()?;
    let partition = strategy.rolling_update.as_ref()?.partition?;
    u32::try_from(partition).ok()
}

/// The revision that a person lets go on with what the preflight found.
fn accepted_findings(budget: &QuorumDisruptionBudget) -> Option<String> {
    let annotations = budget.metadata.annotations.as_ref()?;
    annotations.get(names::PROCEED).cloned()
}

/// `spec.minReadySeconds` of the StatefulSet.
fn min_ready(set: &StatefulSet) -> Duration {
    let seconds = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
    let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    Duration::from_secs(seconds.unwrap_or_default())
}

fn generation(set: &StatefulSet) -> Generation {
    let observed = set.status.as_ref().and_then(|s| s.observed_generation);
    Generation {
        desired: set.metadata.generation.unwrap_or_default(),
        observed: observed.unwrap_or_default(),
    }
}

/// The pod management policy. The API server's default is `OrderedReady`.
pub(in crate::reconcile) fn management(set: &StatefulSet) -> PodManagement {
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
    fn the_owners_strategy_counts_where_the_budget_has_none() {
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
