//! The cluster of a pod (rule 1).

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;

use super::belonging::named_after;
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
    /// StatefulSet costs two.
    pub async fn identify(
        &self,
        namespace: &str,
        pod: &PodName,
        shown: Option<&ObjectMeta>,
    ) -> Result<Identity, ObserveError> {
        let metadata = match shown {
            Some(metadata) => Cow::Borrowed(metadata),
            None => match self.pod(namespace, pod).await? {
                Some(pod) => Cow::Owned(pod.metadata),
                None => return Ok(Identity::NoSuchPod),
            },
        };
        let Some(set) = named_after(&metadata) else {
            return Ok(Identity::Foreign);
        };
        let druids = metadata.labels.as_ref().is_some_and(are_of_druid);
        self.of_set(ClusterRef::new(namespace, set), druids).await
    }

    async fn of_set(&self, cluster: ClusterRef, druids: bool) -> Result<Identity, ObserveError> {
        match self.ledger().read(&cluster).await {
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
