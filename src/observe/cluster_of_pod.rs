//! The cluster of a pod (rule 1).

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::belonging::{giver_of, named_after};
use super::enrolment::{are_of_druid, is_enrolled, opts_out};
use super::error::ObserveError;
use super::observer::Observer;
use crate::ledger::{LedgerError, Page};
use crate::quorum::{ClusterRef, PodName};

/// The cluster of a pod.
#[derive(Debug)]
pub enum Identity {
    /// The pod does not exist.
    NoSuchPod,
    /// The pod belongs to no cluster that the gate guards.
    Foreign,
    /// The pod belongs to a cluster whose budget was just read.
    Guarded(Box<Page>),
    /// The pod belongs to a cluster for which nothing can be recorded: it has no budget yet, or the
    /// budget cannot be used for this reason.
    Unrecorded(ClusterRef, Option<LedgerError>),
}

impl Observer {
    /// Finds the cluster of a pod. `shown` is the pod's metadata from the request, if the request
    /// has it. With it a pod of a Job or a Deployment costs no call. Without it (an eviction) the
    /// name tells: a pod whose name does not end in a number costs no call, as the webhooks' match
    /// conditions leave it out. Any other pod costs the call for the budget. A pod without a budget
    /// costs more only where the watches do not show that it is nobody's: the call for its
    /// StatefulSet, and for an eviction that for the pod.
    pub async fn identify(
        &self,
        namespace: &str,
        pod: &PodName,
        shown: Option<&ObjectMeta>,
    ) -> Result<Identity, ObserveError> {
        let set = shown.map_or_else(|| giver_of(pod), named_after);
        let cluster = set.map(|set| ClusterRef::new(namespace, set));
        // Boxed, so that a pod that needs no call costs no memory for one.
        match (cluster, shown) {
            (Some(cluster), Some(shown)) => Box::pin(self.of_shown(cluster, shown)).await,
            (Some(cluster), None) => Box::pin(self.of_name(cluster, pod)).await,
            (None, None) if ends_in_a_number(pod) => {
                Box::pin(self.of_odd_name(namespace, pod)).await
            }
            (None, _) => Ok(Identity::Foreign),
        }
    }

    /// Whether the watches show that a pod of a namespace is nobody's.
    pub fn shows_foreign(&self, namespace: &str, pod: &PodName) -> bool {
        let Some((sights, set)) = self.sights().zip(giver_of(pod)) else {
            return false;
        };
        let is_druids = (sights.is_druids)(namespace, pod);
        sights.show_foreign(&ClusterRef::new(namespace, set), is_druids)
    }

    async fn of_shown(
        &self,
        cluster: ClusterRef,
        pod: &ObjectMeta,
    ) -> Result<Identity, ObserveError> {
        if let Some(known) = self.by_budget(&cluster).await? {
            return Ok(known);
        }
        let is_druids = pod.labels.as_ref().is_some_and(are_of_druid);
        let sights = self.sights();
        if sights.is_some_and(|sights| sights.show_foreign(&cluster, Some(is_druids))) {
            return Ok(Identity::Foreign);
        }
        let set = self.set(&cluster).await?;
        Ok(by_set(cluster, set.as_ref(), pod))
    }

    async fn of_name(&self, cluster: ClusterRef, pod: &PodName) -> Result<Identity, ObserveError> {
        if let Some(known) = self.by_budget(&cluster).await? {
            return Ok(known);
        }
        if self.shows_foreign(&cluster.namespace, pod) {
            return Ok(Identity::Foreign);
        }
        let pod = self.pod(&cluster.namespace, pod);
        let (pod, set) = tokio::try_join!(pod, self.set(&cluster))?;
        let Some(pod) = pod else {
            return Ok(Identity::NoSuchPod);
        };
        let set = match set {
            Some(set) => Some(set),
            // Both may have been created after this read.
            None => self.set(&cluster).await?,
        };
        Ok(by_set(cluster, set.as_ref(), &pod.metadata))
    }

    /// The cluster of a pod whose name ends in a number that is no ordinal, such as `etcd-007`. A
    /// StatefulSet gives no such name, but one may control the pod.
    async fn of_odd_name(&self, namespace: &str, pod: &PodName) -> Result<Identity, ObserveError> {
        let Some(pod) = self.pod(namespace, pod).await? else {
            return Ok(Identity::NoSuchPod);
        };
        match named_after(&pod.metadata) {
            Some(set) => {
                let cluster = ClusterRef::new(namespace, set);
                self.of_shown(cluster, &pod.metadata).await
            }
            None => Ok(Identity::Foreign),
        }
    }

    /// The cluster as its budget shows it. `None` if the cluster has no budget.
    async fn by_budget(&self, cluster: &ClusterRef) -> Result<Option<Identity>, ObserveError> {
        match self.ledger().read(cluster).await {
            Ok(page) => Ok(page.map(Box::new).map(Identity::Guarded)),
            // Without the definition a cluster that only a budget enrols cannot be told from a
            // foreign one.
            Err(error @ (LedgerError::NoDefinition | LedgerError::Unreadable { .. })) => {
                Ok(Some(Identity::Unrecorded(cluster.clone(), Some(error))))
            }
            Err(error) => Err(ObserveError::Ledger(error)),
        }
    }
}

/// The cluster without a budget as its StatefulSet shows it, which may be enrolled or opt out. If
/// the StatefulSet is gone, the pod's labels say it.
fn by_set(cluster: ClusterRef, set: Option<&StatefulSet>, pod: &ObjectMeta) -> Identity {
    let druids = pod.labels.as_ref().is_some_and(are_of_druid);
    let enrolled = match set {
        Some(set) => is_enrolled(set) || (druids && !opts_out(set)),
        None => druids,
    };
    if enrolled {
        Identity::Unrecorded(cluster, None)
    } else {
        Identity::Foreign
    }
}

/// Whether the webhooks' match conditions let an eviction of a pod with this name through:
/// `-[0-9]+$`.
fn ends_in_a_number(pod: &PodName) -> bool {
    let last = pod.as_str().rsplit_once('-').map(|(_, last)| last);
    last.is_some_and(|last| !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
}
