//! The cluster of a pod (rule 1).

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;

use super::belonging::{giver_of, named_after};
use super::enrolment::{are_of_druid, is_enrolled, opts_out};
use super::{ObserveError, Observer};
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
    /// has it. With it a pod of a Job or a Deployment costs no call, and a pod of a foreign
    /// StatefulSet costs two. Without it (an eviction) the name tells: a pod whose name has no
    /// ordinal costs no call, as the webhooks' match conditions leave it out, and a member of a
    /// guarded cluster costs one, since its pod is not read.
    pub async fn identify(
        &self,
        namespace: &str,
        pod: &PodName,
        shown: Option<&ObjectMeta>,
    ) -> Result<Identity, ObserveError> {
        let Some(set) = shown.map_or_else(|| giver_of(pod), named_after) else {
            return Ok(Identity::Foreign);
        };
        let cluster = ClusterRef::new(namespace, set);
        // Boxed, so that a pod that needs no call costs no memory for one.
        match shown {
            Some(shown) => Box::pin(self.of_shown(cluster, shown)).await,
            None => Box::pin(self.of_name(cluster, pod)).await,
        }
    }

    async fn of_shown(
        &self,
        cluster: ClusterRef,
        pod: &ObjectMeta,
    ) -> Result<Identity, ObserveError> {
        let ledger = self.ledger().read(&cluster).await;
        self.of_set(cluster, ledger, are_druids(pod)).await
    }

    async fn of_name(&self, cluster: ClusterRef, pod: &PodName) -> Result<Identity, ObserveError> {
        let ledger = match self.ledger().read(&cluster).await {
            Ok(Some(page)) => return Ok(Identity::Guarded(Box::new(page))),
            unguarded => unguarded,
        };
        match self.pod(&cluster.namespace, pod).await? {
            Some(pod) => {
                let druids = are_druids(&pod.metadata);
                self.of_set(cluster, ledger, druids).await
            }
            None => Ok(Identity::NoSuchPod),
        }
    }

    /// The cluster of a StatefulSet's pod. `ledger` is what was read at the place of its budget, and
    /// `druids` says that the pod has the labels of etcd-druid's members.
    async fn of_set(
        &self,
        cluster: ClusterRef,
        ledger: Result<Option<Page>, LedgerError>,
        druids: bool,
    ) -> Result<Identity, ObserveError> {
        match ledger {
            Ok(Some(page)) => return Ok(Identity::Guarded(Box::new(page))),
            Ok(None) => {}
            // Without the definition a cluster that only a budget enrols cannot be told from a
            // foreign one.
            Err(error @ (LedgerError::NoDefinition | LedgerError::Unreadable { .. })) => {
                return Ok(Identity::Unrecorded(cluster, Some(error)));
            }
            Err(error) => return Err(ObserveError::Ledger(error)),
        }
        Ok(if self.enrolled(&cluster, druids).await? {
            Identity::Unrecorded(cluster, None)
        } else {
            Identity::Foreign
        })
    }

    /// Whether the cluster is enrolled: by the StatefulSet, which may opt out, or by its pods'
    /// labels if the StatefulSet is gone.
    async fn enrolled(&self, cluster: &ClusterRef, druids: bool) -> Result<bool, ObserveError> {
        let sets: Api<StatefulSet> = Api::namespaced(self.client().clone(), &cluster.namespace);
        let set = sets.get_opt(&cluster.name).await;
        let set = set.map_err(ObserveError::StatefulSet)?;
        Ok(match &set {
            Some(set) => is_enrolled(set) || (druids && !opts_out(set)),
            None => druids,
        })
    }
}

/// Whether the pod's labels are those of etcd-druid's members.
fn are_druids(pod: &ObjectMeta) -> bool {
    pod.labels.as_ref().is_some_and(are_of_druid)
}
