//! Which cluster a pod belongs to (rule 1).

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;

use super::enrolment::{are_of_druid, is_enrolled, opts_out};
use super::scope::named_after;
use super::{ObserveError, Observer};
use crate::ledger::{LedgerError, Page};
use crate::quorum::{ClusterRef, PodName, Reason};

/// Which cluster a pod belongs to.
#[derive(Debug)]
pub enum Identity {
    /// There is no such pod.
    NoSuchPod,
    /// None that the gate guards.
    Foreign,
    /// One whose budget was read just now.
    Guarded(Box<Page>),
    /// One that nothing can be recorded for.
    Unrecorded(ClusterRef, Reason),
}

impl Observer {
    /// Finds out which cluster a pod belongs to. `shown` is the pod's metadata as the request brought it, where it did. A pod of a
    /// Job or a Deployment then costs no call; a pod of a foreign StatefulSet two.
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
            // Whoever is enrolled by a budget alone cannot be told from a foreign one now.
            Err(LedgerError::NoDefinition) => {
                return Ok(Identity::Unrecorded(cluster, Reason::NoDefinition));
            }
            Err(error @ LedgerError::Unreadable { .. }) => {
                let what = error.to_string();
                return Ok(Identity::Unrecorded(cluster, Reason::Unavailable { what }));
            }
            Err(error) => return Err(ObserveError::Ledger(error)),
        }
        Ok(if self.enrolled(&cluster, druids).await? {
            Identity::Unrecorded(cluster, Reason::NoLedger)
        } else {
            Identity::Foreign
        })
    }

    /// As the StatefulSet says, which may opt out; where it is gone, as its pods' labels say.
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
