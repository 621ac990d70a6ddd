//! The surroundings of a pod or of a claim for whose cluster nothing can be recorded, because its
//! budget or the definition of budgets is missing or unreadable. What belongs to a teardown goes
//! all the same, and so does what has an override.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod as PodObject;

use super::belonging;
use super::error::ObserveError;
use super::observer::Observer;
use super::teardown::{self, Around, Owner};
use super::{nodes, overrides, owner, pods};
use crate::api::RecordedEtcd;
use crate::ledger::Page;
use crate::quorum::pod::Pod;
use crate::quorum::stateful_set::TeardownPolicy;
use crate::quorum::{Circumstances, ClusterRef, Override, PodName};

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

/// The objects that are read without a ledger.
struct Few {
    pod: Option<PodObject>,
    set: Option<StatefulSet>,
    namespace_terminating: bool,
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
        let few = self.few(cluster, pod).await?;
        let Some(pod) = &few.pod else {
            return Ok(None);
        };
        let node = pods::node_name(pod).map(str::to_owned);
        let (nodes, owner) = tokio::join!(self.nodes(node.iter()), self.owner_of(&few, page));
        let around = self.around(cluster, &few, owner, page);
        Ok(Some(Ledgerless {
            pod: pods::facts(pod, nodes::of_pod(pod, &nodes), None, page),
            circumstances: Circumstances {
                teardown: teardown::of_pod(pod, &around),
                valid_override: self.valid_override(&few, page),
                ..Circumstances::ordinary()
            },
            goes_at_once: pods::goes_at_once(pod),
        }))
    }

    /// Reads the surroundings of a member's claim: only the pod, its namespace and its StatefulSet.
    /// `page` is the ledger of its cluster, if it could be read.
    pub async fn claim_without_ledger(
        &self,
        cluster: &ClusterRef,
        member: &PodName,
        page: Option<&Page>,
    ) -> Result<Circumstances, ObserveError> {
        let few = self.few(cluster, member).await?;
        let owner = self.owner_of(&few, page).await;
        let around = self.around(cluster, &few, owner, page);
        Ok(Circumstances {
            teardown: teardown::of_claim(member, few.pod.as_ref(), &around),
            valid_override: self.valid_override(&few, page),
            ..Circumstances::ordinary()
        })
    }

    async fn few(&self, cluster: &ClusterRef, pod: &PodName) -> Result<Few, ObserveError> {
        let (pod, set, namespace_terminating) = tokio::try_join!(
            self.pod(&cluster.namespace, pod),
            self.set(cluster),
            self.namespace_terminating(cluster),
        )?;
        Ok(Few {
            pod,
            set,
            namespace_terminating,
        })
    }

    fn around<'a>(
        &self,
        cluster: &ClusterRef,
        few: &'a Few,
        owner: Owner,
        page: Option<&'a Page>,
    ) -> Around<'a> {
        let set = few.set.as_ref();
        let set_gone_for = match (page, &few.pod) {
            (Some(page), _) => self.recorded_set_gone_for(page, set),
            (None, Some(pod)) => self.set_gone_for(&cluster.namespace, pod, set),
            (None, None) => Duration::ZERO,
        };
        Around {
            namespace_terminating: few.namespace_terminating,
            set,
            owner,
            status: page.and_then(Page::status),
            set_gone_for,
            settle_time: self.settle_time(),
            policy: page.map_or_else(TeardownPolicy::default, |page| {
                page.budget().spec.policy.teardown()
            }),
            etcd: page.map_or_else(RecordedEtcd::default, Page::etcd),
            now: self.clock().now(),
        }
    }

    fn valid_override(&self, few: &Few, page: Option<&Page>) -> Option<Override> {
        let (pod, set) = (few.pod.as_ref(), few.set.as_ref());
        overrides::of_pod(pod, set, page.map(Page::budget), self.clock().now())
    }

    /// The owners of the StatefulSet that the pod refers to, or without a pod of the StatefulSet
    /// with the cluster's name. Without a record of them nothing is known.
    async fn owner_of(&self, few: &Few, page: Option<&Page>) -> Owner {
        let pod = few.pod.as_ref();
        let set = few.set.as_ref();
        let set = set.filter(|set| pod.is_none_or(|pod| is_referred(pod, set)));
        let (Some(set), Some(page)) = (set, page) else {
            return Owner::Unknown;
        };
        let named = owner::named(&set.metadata);
        let states = self.owners(&page.cluster, named.iter()).await;
        let states: Vec<_> = states
            .iter()
            .map(|(owner, state)| (owner, *state))
            .collect();
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        owner::together(&states, teardown::recorded_set(page.status(), uid))
    }
}

fn is_referred(pod: &PodObject, set: &StatefulSet) -> bool {
    let uid = belonging::set_uid(&pod.metadata);
    uid.is_some() && uid == set.metadata.uid
}
