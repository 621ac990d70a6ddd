//! The Eviction API's answer for a pod, as far as it depends on the `PodDisruptionBudget`s that
//! select the pod (rule 10).
//!
//! The API server checks them after its webhooks. So a grant for an eviction that they refuse would
//! block the ledger for nothing. The rules are those of `EvictionREST` in the API server.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::core::{Selector, SelectorExt as _};

use super::pods;
use crate::quorum::EvictionBudget;

/// The number of disrupted pods of a budget from which on the API server evicts no more.
const MOST_DISRUPTED_PODS: usize = 2000;

/// The present answer of these budgets to an eviction of the pod.
pub(super) fn verdict(pod: &Pod, budgets: &[PodDisruptionBudget]) -> EvictionBudget {
    if is_beyond_disruption(pod) {
        return EvictionBudget::Permits;
    }
    let selecting: Vec<_> = budgets.iter().filter(|b| selects(b, pod)).collect();
    match selecting.as_slice() {
        [] => EvictionBudget::Permits,
        [one] if permits(one, pod) => EvictionBudget::Permits,
        [one] => EvictionBudget::Refuses { name: name(one) },
        several => EvictionBudget::Several {
            names: several.iter().map(|budget| name(budget)).collect(),
        },
    }
}

/// Whether the pod is evicted without a check of any budget.
fn is_beyond_disruption(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Pending" | "Succeeded" | "Failed"))
        || pod.metadata.deletion_timestamp.is_some()
}

/// Whether the budget selects the pod. An empty selector selects all pods. A missing or invalid one
/// selects none.
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
