//! Whether a rollout may have something to do, by the caches. This only saves looks.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt as _;

use super::desired::{live_partition, target_count};
use crate::api::{QuorumDisruptionBudget, RolloutStatus};
use crate::observe::first_ordinal;
use crate::plan::{MOST_REPLICAS, pod_name};
use crate::quorum::{Ordinal, PodName};
use crate::reconcile::watches::CachedPod;

/// Whether a pod is outdated, or the budget does not report the present state yet. `ours` says
/// whether the gate replaces pods.
pub(super) fn is_there<P: AsRef<CachedPod>>(
    set: &StatefulSet,
    budget: Option<&QuorumDisruptionBudget>,
    ours: bool,
    pod: impl Fn(&str) -> Option<P>,
) -> bool {
    let status = set.status.as_ref();
    let target = status.and_then(|status| status.update_revision.as_deref());
    let unread = status.and_then(|s| s.observed_generation) < set.metadata.generation;
    unread
        || !is_told(budget, target, ours)
        || has_outdated(set, target, ours, &pod)
        || (ours && is_miscounted(set, budget, &pod))
}

fn is_told(budget: Option<&QuorumDisruptionBudget>, target: Option<&str>, ours: bool) -> bool {
    match budget.and_then(told) {
        Some(told) => ours && told.completion_time.is_some() && told.target.as_deref() == target,
        None => !ours,
    }
}

/// Whether all pods of a finished rollout exist, and the report has another count. The replica that
/// made the last step may have died before it could report that step and the new wish.
fn is_miscounted<P: AsRef<CachedPod>>(
    set: &StatefulSet,
    budget: Option<&QuorumDisruptionBudget>,
    pod: impl Fn(&str) -> Option<P>,
) -> bool {
    let Some(budget) = budget else {
        return false;
    };
    let count = target_count(set, budget).map(i64::from);
    let counted = told(budget).map(|told| i64::from(told.targets));
    count.is_some() && counted != count && names(set, 0).all(|name| pod(name.as_str()).is_some())
}

fn told(budget: &QuorumDisruptionBudget) -> Option<&RolloutStatus> {
    budget.status.as_ref()?.rollout.as_deref()
}

fn has_outdated<P: AsRef<CachedPod>>(
    set: &StatefulSet,
    target: Option<&str>,
    ours: bool,
    pod: impl Fn(&str) -> Option<P>,
) -> bool {
    // A pod that the StatefulSet controller leaves alone needs no help.
    let kept = live_partition(set).filter(|_| !ours).unwrap_or_default();
    names(set, kept)
        .filter_map(|name| pod(name.as_str()))
        .any(|pod| pod.as_ref().revision() != target)
}

/// The pods of a StatefulSet, without the `kept` lowest.
fn names(set: &StatefulSet, kept: u32) -> impl Iterator<Item = PodName> {
    let name = set.name_any();
    let replicas = set.spec.as_ref().and_then(|spec| spec.replicas);
    let replicas = u32::try_from(replicas.unwrap_or(1)).unwrap_or_default();
    let Ordinal(first) = first_ordinal(set);
    (first.saturating_add(kept)..first.saturating_add(replicas))
        .take(MOST_REPLICAS as usize)
        .map(move |ordinal| pod_name(&name, Ordinal(ordinal)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::api::names as label;
    use crate::reconcile::watches::SlimPod;

    fn cached(pod: Value) -> CachedPod {
        serde_json::from_value::<SlimPod>(pod).unwrap().into()
    }

    fn set(first: u32) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {"name": "etcd", "generation": 2},
            "spec": {
                "replicas": 2, "ordinals": {"start": first},
                "serviceName": "etcd", "selector": {}, "template": {},
            },
            "status": {"replicas": 2, "observedGeneration": 2, "updateRevision": "new"},
        }))
        .unwrap()
    }

    fn told(target: &str) -> QuorumDisruptionBudget {
        serde_json::from_value(json!({
            "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
            "metadata": {"name": "etcd"}, "spec": {"statefulSetName": "etcd"},
            "status": {"rollout": {
                "target": target, "updated": 2, "targets": 2, "completionTime": "2026-01-01T00:00:00Z",
            }},
        }))
        .unwrap()
    }

    /// Whether there is work with these pods and their revisions.
    fn with(first: u32, pods: &[(&str, &str)]) -> bool {
        let pod = |name: &str| {
            let (_, revision) = pods.iter().find(|(pod, _)| *pod == name)?;
            let labels = json!({"metadata": {"labels": {label::REVISION: revision}}});
            Some(Arc::new(cached(labels)))
        };
        is_there(&set(first), Some(&told("new")), true, pod)
    }

    #[test]
    fn only_outdated_pods_of_its_own_ordinals_are_work() {
        assert!(!with(0, &[("etcd-0", "new"), ("etcd-1", "new")]));
        assert!(with(0, &[("etcd-0", "new"), ("etcd-1", "old")]));
        // The StatefulSet controller removes the pods beyond the replicas.
        assert!(!with(0, &[("etcd-0", "new"), ("etcd-2", "old")]));
        assert!(with(3, &[("etcd-3", "new"), ("etcd-4", "old")]));
        assert!(!with(3, &[("etcd-0", "old"), ("etcd-3", "new")]));
    }

    #[test]
    fn pods_that_a_staged_rolling_update_keeps_are_no_work() {
        let mut staged = set(0);
        let spec = staged.spec.as_mut().unwrap();
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
        spec.update_strategy = Some(serde_json::from_value(strategy).unwrap());
        let outdated = |which: &'static str| {
            move |name: &str| {
                let revision = if name == which { "old" } else { "new" };
                let pod = json!({"metadata": {"labels": {label::REVISION: revision}}});
                Some(Arc::new(cached(pod)))
            }
        };
        assert!(!is_there(&staged, None, false, outdated("etcd-0")));
        assert!(is_there(&staged, None, false, outdated("etcd-1")));
    }

    #[test]
    fn a_rollout_that_is_told_of_with_another_number_of_pods_is_work_once_all_are_there() {
        let mut set = set(0);
        let on_delete = serde_json::from_value(json!({"type": "OnDelete"})).unwrap();
        set.spec.as_mut().unwrap().update_strategy = Some(on_delete);
        let there = |pods: &'static [&str]| {
            move |name: &str| {
                let labels = json!({"metadata": {"labels": {label::REVISION: "new"}}});
                let pod = || Arc::new(cached(labels));
                pods.contains(&name).then(pod)
            }
        };
        let mut budget = told("new");
        let both = &["etcd-0", "etcd-1"];
        assert!(!is_there(&set, Some(&budget), true, there(both)));
        budget.spec.partition = Some(1);
        assert!(is_there(&set, Some(&budget), true, there(both)));
        // A scale-out alone is no rollout.
        assert!(!is_there(&set, Some(&budget), true, there(&["etcd-0"])));
    }

    #[test]
    fn an_unreported_rollout_is_work() {
        let nobody = |_: &str| None::<Arc<CachedPod>>;
        let other = told("other");
        assert!(is_there(&set(0), Some(&other), true, nobody));
        assert!(is_there(&set(0), None, true, nobody));
        assert!(!is_there(&set(0), None, false, nobody));
        // The gate does not roll out any more, and has to remove its report.
        assert!(is_there(&set(0), Some(&told("new")), false, nobody));
        let mut unread = set(0);
        unread.metadata.generation = Some(3);
        assert!(is_there(&unread, Some(&told("new")), true, nobody));
    }
}
