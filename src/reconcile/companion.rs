//! The companion `PodDisruptionBudget`. Autoscalers plan by such budgets and know nothing of
//! webhooks.
//!
//! A companion is created only if no other `PodDisruptionBudget` selects the members, because the
//! API server refuses every eviction of a pod that two of them select. The companion is deleted
//! when another one appears. Its minimum is a plain number. A percentage, or `maxUnavailable`,
//! would change with members that are lost by accident.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions};
use kube::core::{Selector, SelectorExt as _};
use kube::{Client, Error, Resource as _, ResourceExt as _};
use tracing::info;

use super::run::MANAGER;
use crate::api::{QuorumDisruptionBudget, Removal, names};
use crate::lists;
use crate::quorum::{ClusterRef, Policy, SmallCluster};

/// The action that the companion needs.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Nothing,
    Create(Box<PodDisruptionBudget>),
    Replace(Box<PodDisruptionBudget>),
    Delete(Preconditions),
}

/// The name of a cluster's companion. It differs from the cluster's name, which operators use for
/// their own budgets.
fn name_of(cluster: &ClusterRef) -> String {
    format!("{PREFIX}{}", cluster.name)
}

/// The beginning of every companion's name.
const PREFIX: &str = "quorumgate-";

/// Whether a `PodDisruptionBudget` is the companion of any cluster.
pub(super) fn is_companion(pdb: &PodDisruptionBudget) -> bool {
    let name = pdb.name_any();
    name.starts_with(PREFIX) && is_ours(pdb, &name)
}

/// Evictions that the companion must permit in addition to those of planners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evictions {
    /// None.
    None,
    /// The evictions of a rollout that is under way and whose owner chose removal by eviction. The
    /// rollout respects `PodDisruptionBudget`s, and would wait for this one for ever.
    Rollout,
}

impl Evictions {
    /// The evictions of the present rollout, if there is one.
    pub(super) fn from_budget(budget: &QuorumDisruptionBudget) -> Self {
        let told = budget.status.as_ref().and_then(|s| s.rollout.as_ref());
        let under_way = told.is_some_and(|rollout| rollout.completion_time.is_none());
        match budget.spec.rollout.removal {
            Some(Removal::EvictHealthy) if under_way => Self::Rollout,
            Some(Removal::EvictHealthy | Removal::Delete) | None => Self::None,
        }
    }

    /// Whether the policy for small clusters permits these evictions.
    fn are_let(self, policy: SmallCluster) -> bool {
        match policy {
            SmallCluster::Allow => true,
            SmallCluster::AllowRollout => self == Self::Rollout,
            SmallCluster::Never => false,
        }
    }
}

/// The number of members that must stay Ready for the gate to permit an eviction.
///
/// The number is the majority, less the voters that have no pod here; it is 0 if the budget's
/// policy lets the only member go, and 1 if the policy lets one of two members go.
pub(super) fn min_available(
    voters: u32,
    majority: u32,
    elsewhere: u32,
    policy: &Policy,
    evictions: Evictions,
) -> u32 {
    let needed = match voters {
        0 => 0,
        1 if evictions.are_let(policy.single_member) => 0,
        2 if evictions.are_let(policy.two_members) => 1,
        _ => majority,
    };
    needed.saturating_sub(elsewhere)
}

/// The facts that the companion is derived from.
pub(super) struct Wanted<'a> {
    pub(super) budget: &'a QuorumDisruptionBudget,
    /// The StatefulSet's selector. `None` if there is no StatefulSet.
    pub(super) selector: Option<&'a LabelSelector>,
    pub(super) min_available: u32,
}

impl Wanted<'_> {
    fn object(&self, selector: &LabelSelector) -> PodDisruptionBudget {
        let cluster = self.budget.cluster();
        let mut selector = selector.clone();
        // Other pods may have the labels of members (druid's compaction Jobs do), and must not
        // count as members.
        let members = LabelSelectorRequirement {
            key: names::POD_NAME.into(),
            operator: "Exists".into(),
            values: None,
        };
        selector
            .match_expressions
            .get_or_insert_default()
            .push(members);
        let minimum = i32::try_from(self.min_available).unwrap_or(i32::MAX);
        PodDisruptionBudget {
            metadata: ObjectMeta {
                name: Some(name_of(&cluster)),
                namespace: Some(cluster.namespace.clone()),
                labels: Some(BTreeMap::from([(names::MANAGED_BY.into(), MANAGER.into())])),
                owner_references: self.budget.controller_owner_ref(&()).map(|o| vec![o]),
                ..ObjectMeta::default()
            },
            spec: Some(PodDisruptionBudgetSpec {
                min_available: Some(IntOrString::Int(minimum)),
                unhealthy_pod_eviction_policy: Some("AlwaysAllow".into()),
                selector: Some(selector),
                ..PodDisruptionBudgetSpec::default()
            }),
            ..PodDisruptionBudget::default()
        }
    }

    /// The action that the budgets of the namespace and the members' pods call for.
    fn step<'p>(
        &self,
        existing: impl Iterator<Item = &'p PodDisruptionBudget> + Clone,
        members: &[Pod],
    ) -> Step {
        let name = name_of(&self.budget.cluster());
        let ours = existing.clone().find(|pdb| is_ours(pdb, &name));
        let taken = existing
            .clone()
            .any(|pdb| pdb.name_any() == name && !is_ours(pdb, &name));
        let mut others = existing.filter(|pdb| !is_ours(pdb, &name));
        let selected = others.any(|pdb| selects_any(pdb, members));
        // In `Warn` the gate only reports refusals, so the API server must not refuse for the
        // companion either.
        let selector = self.selector.filter(|_| !self.budget.only_warns());
        match (ours, selector) {
            (Some(ours), None) => delete(ours),
            (Some(ours), Some(_)) if selected => delete(ours),
            (Some(ours), Some(selector)) => {
                let mut wanted = self.object(selector);
                if same(ours, &wanted) {
                    return Step::Nothing;
                }
                wanted.metadata.resource_version = ours.resource_version();
                Step::Replace(Box::new(wanted))
            }
            // Without a member it is unknown whether another budget will select the members.
            (None, Some(selector)) if !selected && !taken && !members.is_empty() => {
                Step::Create(Box::new(self.object(selector)))
            }
            (None, _) => Step::Nothing,
        }
    }

    /// Whether an action is needed, by the cached budgets.
    pub(super) fn is_due(&self, existing: &[Arc<PodDisruptionBudget>], members: &[Pod]) -> bool {
        self.step(existing.iter().map(AsRef::as_ref), members) != Step::Nothing
    }

    /// Takes the action that is needed, based on objects that are read now.
    pub(super) async fn apply(&self, client: &Client, members: &[Pod]) -> Result<(), Error> {
        let cluster = self.budget.cluster();
        let pdbs: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &cluster.namespace);
        let existing = lists::kept(&pdbs, &ListParams::default(), |_| true).await?;
        let name = name_of(&cluster);
        let done = match self.step(existing.iter(), members) {
            Step::Nothing => return Ok(()),
            Step::Create(pdb) => {
                info!(%cluster, min_available = self.min_available, "PodDisruptionBudget for planners created");
                pdbs.create(&PostParams::default(), &pdb).await.map(drop)
            }
            Step::Replace(pdb) => {
                info!(%cluster, min_available = self.min_available, "PodDisruptionBudget for planners updated");
                let params = PostParams::default();
                pdbs.replace(&name, &params, &pdb).await.map(drop)
            }
            Step::Delete(only) => {
                info!(%cluster, "PodDisruptionBudget for planners deleted: another one selects the members");
                let params = DeleteParams::default().preconditions(only);
                pdbs.delete(&name, &params).await.map(drop)
            }
        };
        match done {
            // Another client was faster. Its write wakes the observer.
            Err(Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
            other => other,
        }
    }
}

fn delete(pdb: &PodDisruptionBudget) -> Step {
    Step::Delete(Preconditions {
        uid: pdb.uid(),
        resource_version: None,
    })
}

fn is_ours(pdb: &PodDisruptionBudget, name: &str) -> bool {
    pdb.name_any() == name
        && pdb.labels().get(names::MANAGED_BY).map(String::as_str) == Some(MANAGER)
}

fn selects_any(pdb: &PodDisruptionBudget, members: &[Pod]) -> bool {
    let going = pdb.meta().deletion_timestamp.is_some();
    let selector = pdb.spec.as_ref().and_then(|spec| spec.selector.clone());
    // A missing selector selects nothing. An empty selector selects every pod of the namespace.
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    !going
        && selector.is_some_and(|selector| members.iter().any(|pod| selector.matches(pod.labels())))
}

fn same(one: &PodDisruptionBudget, other: &PodDisruptionBudget) -> bool {
    let owners = |pdb: &PodDisruptionBudget| -> Vec<String> {
        let owners = pdb.owner_references().iter();
        owners.map(|owner| owner.uid.clone()).collect()
    };
    one.spec == other.spec && owners(one) == owners(other)
}

#[cfg(test)]
mod tests;
