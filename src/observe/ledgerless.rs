//! The surroundings of a pod for whose cluster nothing can be recorded, because its budget or the
//! definition of budgets is missing or unreadable. Pods of a teardown go all the same, and so do
//! pods with an override.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod as PodObject;

use super::scope;
use super::teardown::{self, Around, Owner};
use super::{ObserveError, Observer, nodes, overrides, owner, pods};
use crate::ledger::Page;
use crate::quorum::pod::Pod;
use crate::quorum::{Circumstances, ClusterRef, PodName};

/// A pod and its surroundings.
#[derive(Debug)]
pub struct Ledgerless {
    /// The facts about the pod.
    pub pod: Pod,
    /// The surroundings of the pod.
    pub circumstances: Circumstances,
    /// Whether the API server removes the pod without a grace period unless the request states one.
    pub goes_at_once: bool,
}

impl Observer {
    /// Reads a pod and its surroundings: only the pod, its namespace and its StatefulSet. `page` is
    /// the ledger of its cluster, if it could be read. `None` if there is no such pod.
    pub async fn without_ledger(
        &self,
        cluster: &ClusterRef,
        pod: &PodName,
        page: Option<&Page>,
    ) -> Result<Option<Ledgerless>, ObserveError> {
        let (pod, set, namespace_terminating) = tokio::try_join!(
            self.pod(&cluster.namespace, pod),
            self.set(cluster),
            self.namespace_terminating(cluster),
        )?;
        let Some(pod) = pod else {
            return Ok(None);
        };
        let node = pods::node_name(&pod).map(str::to_owned);
        let (nodes, owner) = tokio::join!(
            self.nodes(node.iter()),
            self.owner_of(cluster, &pod, set.as_ref()),
        );
        let set_gone_for = match page {
            Some(page) => self.recorded_set_gone_for(page, set.as_ref()),
            None => self.set_gone_for(&cluster.namespace, &pod, set.as_ref()),
        };
        let around = Around {
            namespace_terminating,
            set: set.as_ref(),
            owner,
            status: page.and_then(Page::status),
            set_gone_for,
            settle_time: self.settle_time(),
        };
        let circumstances = Circumstances {
            teardown: teardown::of_pod(&pod, &around),
            lifted: overrides::of_pod(
                &pod,
                set.as_ref(),
                page.map(Page::budget),
                self.clock().now(),
            ),
            ..Circumstances::ordinary()
        };
        Ok(Some(Ledgerless {
            pod: pods::facts(&pod, nodes::of_pod(&pod, &nodes), None, page),
            circumstances,
            goes_at_once: pods::goes_at_once(&pod),
        }))
    }

    /// The owner of the StatefulSet that the pod refers to, from the StatefulSet itself. No other
    /// object has it.
    async fn owner_of(
        &self,
        cluster: &ClusterRef,
        pod: &PodObject,
        set: Option<&StatefulSet>,
    ) -> Owner {
        let Some(set) = set.filter(|set| is_referred(pod, set)) else {
            return Owner::Unknown;
        };
        let Some(owner) = scope::controller(&set.metadata).map(owner::recorded) else {
            return Owner::None;
        };
        self.owner_states().state(&cluster.namespace, &owner).await
    }
}

fn is_referred(pod: &PodObject, set: &StatefulSet) -> bool {
    let uid = scope::set_uid(&pod.metadata);
    uid.is_some() && uid == set.metadata.uid
}
