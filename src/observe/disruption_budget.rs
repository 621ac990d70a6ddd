//! What the Eviction API would say of a pod, by the `PodDisruptionBudget`s that select it (rule 10).
//!
//! The API server asks them after its webhooks, so a grant for an eviction that they refuse would hold the ledger for nothing.
//! The rules are those of `EvictionREST` in the API server.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Selector, SelectorExt as _};

use super::pods;
use crate::quorum::DisruptionBudget;

/// How many pods a budget may have on their way out before the API server evicts no more.
const MOST_DISRUPTED_PODS: usize = 2000;

/// What they would say to the pod's eviction now.
pub(super) fn verdict(pod: &Pod, budgets: &[PodDisruptionBudget]) -> DisruptionBudget {
    if is_beyond_disruption(pod) {
        return DisruptionBudget::Permits;
    }
    let selecting: Vec<_> = budgets.iter().filter(|b| selects(b, pod)).collect();
    match selecting.as_slice() {
        [] => DisruptionBudget::Permits,
        [one] if permits(one, pod) => DisruptionBudget::Permits,
        [one] => DisruptionBudget::Refuses { name: name(one) },
        several => DisruptionBudget::Several {
            names: several.iter().map(|budget| name(budget)).collect(),
        },
    }
}

/// Pods that are evicted without asking any budget.
fn is_beyond_disruption(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Pending" | "Succeeded" | "Failed"))
        || pod.metadata.deletion_timestamp.is_some()
}

/// Whether the budget selects the pod. An empty selector selects all, a missing one none, one that is not valid none.
fn selects(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|s| s.selector.clone());
    let Some(selector) = selector.and_then(|s| Selector::try_from(s).ok()) else {
        return false;
    };
    let none = std::collections::BTreeMap::new();
    selector.matches(pod.metadata.labels.as_ref().unwrap_or(&none))
}

fn permits(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let status = budget.status.clone().unwrap_or_default();
    if !pods::is_ready(pod) {
        let policy = budget.spec.as_ref();
        let policy = policy.and_then(|s| s.unhealthy_pod_eviction_policy.as_deref());
        let has_enough =
            status.current_healthy >= status.desired_healthy && status.desired_healthy > 0;
        if policy == Some("AlwaysAllow") || has_enough {
            return true;
        }
    }
    let seen = status.observed_generation.unwrap_or_default();
    let is_current = seen >= budget.metadata.generation.unwrap_or_default();
    let on_their_way = status.disrupted_pods.unwrap_or_default().len();
    is_current && on_their_way <= MOST_DISRUPTED_PODS && status.disruptions_allowed > 0
}

fn name(budget: &PodDisruptionBudget) -> String {
    budget.metadata.name.clone().unwrap_or_default()
}
