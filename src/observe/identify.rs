//! Which cluster a pod belongs to (rule 1).

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::core::SelectorExt as _;

use super::enrolment::{are_of_druid, is_enrolled};
use super::scope::{self, Belonging};
use super::{ObserveError, Observer, selector};
use crate::api::QuorumDisruptionBudget;
use crate::ledger::{LedgerError, Page};
use crate::quorum::{ClusterRef, PodName};

/// Which cluster a pod belongs to.
#[derive(Debug)]
pub enum Identity {
    /// There is no such pod.
    NoSuchPod,
    /// None that the gate guards.
    Foreign,
    /// One whose budget was read just now.
    Guarded(Box<Found>),
    /// An enrolled one that has no budget yet.
    NoLedger(ClusterRef),
    /// The definition of budgets is missing, so nobody can say.
    NoDefinition,
    /// It has no owner, and several budgets' selectors match it.
    Ambiguous(Vec<ClusterRef>),
}

/// A pod of a guarded cluster, and the reading of its ledger.
#[derive(Debug)]
pub struct Found {
    /// The pod, as the request showed it or as it was read. Not fresh: a judgement looks at the pods again, after the ledger.
    pub pod: Pod,
    /// The ledger.
    pub page: Page,
}

impl Observer {
    /// Finds out which cluster a pod belongs to. `shown` is the pod as the request brought it, where it did. A pod of a Job or
    /// a Deployment costs no call; a pod of a foreign StatefulSet two.
    pub async fn identify(
        &self,
        namespace: &str,
        pod: &PodName,
        shown: Option<&Pod>,
    ) -> Result<Identity, ObserveError> {
        let pod = match shown {
            Some(pod) => pod.clone(),
            None => match self.pod(namespace, pod).await? {
                Some(pod) => pod,
                None => return Ok(Identity::NoSuchPod),
            },
        };
        match scope::belonging(&pod) {
            Belonging::Foreign => Ok(Identity::Foreign),
            Belonging::ToSet { name, uid: _ } => {
                self.of_set(ClusterRef::new(namespace, name), pod).await
            }
            Belonging::Orphan => self.of_selector(namespace, pod).await,
        }
    }

    async fn of_set(&self, cluster: ClusterRef, pod: Pod) -> Result<Identity, ObserveError> {
        match self.ledger().read(&cluster).await {
            Ok(Some(page)) => return Ok(Identity::Guarded(Box::new(Found { pod, page }))),
            Ok(None) if pod.metadata.labels.as_ref().is_some_and(are_of_druid) => {
                return Ok(Identity::NoLedger(cluster));
            }
            Ok(None) => {}
            // Whoever is enrolled by a budget alone cannot be told from a foreign one now.
            Err(LedgerError::NoDefinition) => return Ok(Identity::NoDefinition),
            Err(error) => return Err(ObserveError::Ledger(error)),
        }
        let enrolled = self.enrolled(&cluster).await?;
        Ok(if enrolled {
            Identity::NoLedger(cluster)
        } else {
            Identity::Foreign
        })
    }

    async fn enrolled(&self, cluster: &ClusterRef) -> Result<bool, ObserveError> {
        let sets: Api<StatefulSet> = Api::namespaced(self.client().clone(), &cluster.namespace);
        let set = sets.get_opt(&cluster.name).await;
        let set = set.map_err(ObserveError::StatefulSet)?;
        Ok(set.as_ref().is_some_and(is_enrolled))
    }

    async fn of_selector(&self, namespace: &str, pod: Pod) -> Result<Identity, ObserveError> {
        let budgets = match self.ledger().in_namespace(namespace).await {
            Ok(budgets) => budgets,
            Err(LedgerError::NoDefinition) => return Ok(Identity::NoDefinition),
            Err(error) => return Err(ObserveError::Ledger(error)),
        };
        let mut clusters = claimants(&pod, &budgets);
        let Some(cluster) = clusters.pop() else {
            return Ok(Identity::Foreign);
        };
        if !clusters.is_empty() {
            clusters.push(cluster);
            return Ok(Identity::Ambiguous(clusters));
        }
        let page = self.ledger().read(&cluster).await;
        match page.map_err(ObserveError::Ledger)? {
            Some(page) => Ok(Identity::Guarded(Box::new(Found { pod, page }))),
            None => Ok(Identity::NoLedger(cluster)),
        }
    }
}

/// The clusters whose budgets claim a pod without owner: by the selector they recorded, or, while they have none, by its name.
pub(super) fn claimants(pod: &Pod, budgets: &[QuorumDisruptionBudget]) -> Vec<ClusterRef> {
    let claiming = budgets.iter().filter(|budget| claims(budget, pod));
    claiming.map(QuorumDisruptionBudget::cluster).collect()
}

fn claims(budget: &QuorumDisruptionBudget, pod: &Pod) -> bool {
    let recorded = budget.status.as_ref().and_then(|s| s.selector.as_deref());
    match recorded.map(selector::parse) {
        Some(Some(selector)) => {
            let none = std::collections::BTreeMap::new();
            selector.matches(pod.metadata.labels.as_ref().unwrap_or(&none))
        }
        Some(None) | None => scope::ordinal(&budget.cluster().name, &scope::name(pod)).is_some(),
    }
}
