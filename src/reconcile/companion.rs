//! The companion `PodDisruptionBudget`: autoscalers plan from those and know nothing of webhooks.
//!
//! Made only where no other selects the members, because the API server refuses every eviction of a pod that two of them select;
//! taken away when another appears. It says how many members must stay as a plain number: a percentage, or a number that may be
//! missing, would follow members that leave by accident.

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

use crate::api::{QuorumDisruptionBudget, Removal, names};
use crate::quorum::{ClusterRef, Policy, SmallCluster};

/// The value of [`names::MANAGED_BY`] on what the gate made.
const MANAGER: &str = "quorumgate";

/// What there is to do about the companion.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    Nothing,
    Create(Box<PodDisruptionBudget>),
    Replace(Box<PodDisruptionBudget>),
    Delete(Preconditions),
}

/// The name of a cluster's companion. Not the cluster's own name, which operators use for theirs.
fn name_of(cluster: &ClusterRef) -> String {
    format!("quorumgate-{}", cluster.name)
}

/// Whose evictions it is not to keep from happening, besides those of planners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Evictions {
    /// Nobody's.
    None,
    /// Those of a rollout that is under way, which goes by `PodDisruptionBudget`s as its owner wished, and would wait for this one for ever.
    Rollout,
}

impl Evictions {
    /// What a rollout evicts now.
    pub(super) fn of(budget: &QuorumDisruptionBudget) -> Self {
        let told = budget.status.as_ref().and_then(|s| s.rollout.as_ref());
        let under_way = told.is_some_and(|rollout| rollout.finished.is_none());
        match budget.spec.rollout.removal {
            Some(Removal::EvictHealthy) if under_way => Self::Rollout,
            Some(Removal::EvictHealthy | Removal::Delete) | None => Self::None,
        }
    }

    /// Whether a policy lets one go by eviction.
    fn are_let(self, policy: SmallCluster) -> bool {
        match policy {
            SmallCluster::Allow => true,
            SmallCluster::AllowRollout => self == Self::Rollout,
            SmallCluster::Never => false,
        }
    }
}

/// How many members must stay ready for the gate to let one go.
///
/// The majority, less the voters that have no pod here; but nothing where the budget's policy lets the only member go, and one of
/// two where it lets the other go.
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

/// What the companion is made from.
pub(super) struct Wanted<'a> {
    pub(super) budget: &'a QuorumDisruptionBudget,
    /// The StatefulSet's selector; `None` where there is no StatefulSet.
    pub(super) selector: Option<&'a LabelSelector>,
    pub(super) min_available: u32,
}

impl Wanted<'_> {
    fn object(&self, selector: &LabelSelector) -> PodDisruptionBudget {
        let cluster = self.budget.cluster();
        let mut selector = selector.clone();
        // Other pods may carry the labels of the members (druid's compaction Jobs do), and must not count as such.
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

    /// What the budgets of the namespace and the members' pods call for.
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
        // Where refusals are only reported, the API server is not to refuse for the gate either.
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
            // Without a member nobody can tell whether another one will select it.
            (None, Some(selector)) if !selected && !taken && !members.is_empty() => {
                Step::Create(Box::new(self.object(selector)))
            }
            (None, _) => Step::Nothing,
        }
    }

    /// Whether there is something to do, by cached budgets.
    pub(super) fn is_due(&self, existing: &[Arc<PodDisruptionBudget>], members: &[Pod]) -> bool {
        self.step(existing.iter().map(AsRef::as_ref), members) != Step::Nothing
    }

    /// Brings the companion in line, by objects read just now.
    pub(super) async fn apply(&self, client: &Client, members: &[Pod]) -> Result<(), Error> {
        let cluster = self.budget.cluster();
        let pdbs: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &cluster.namespace);
        let existing = pdbs.list(&ListParams::default()).await?;
        let name = name_of(&cluster);
        let done = match self.step(existing.items.iter(), members) {
            Step::Nothing => return Ok(()),
            Step::Create(pdb) => {
                info!(%cluster, min_available = self.min_available, "created a PodDisruptionBudget for planners");
                pdbs.create(&PostParams::default(), &pdb).await.map(drop)
            }
            Step::Replace(pdb) => {
                info!(%cluster, min_available = self.min_available, "brought the PodDisruptionBudget for planners up to date");
                let params = PostParams::default();
                pdbs.replace(&name, &params, &pdb).await.map(drop)
            }
            Step::Delete(only) => {
                info!(%cluster, "another PodDisruptionBudget selects the members: deleted the one for planners");
                let params = DeleteParams::default().preconditions(only);
                pdbs.delete(&name, &params).await.map(drop)
            }
        };
        match done {
            // Somebody was faster; their write wakes the observer.
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
    // None selects nothing; an empty one selects every pod of the namespace.
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
