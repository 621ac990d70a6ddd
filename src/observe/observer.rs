//! The readings behind one judgement, as few after one another as can be.
//!
//! The first wave asks for everything that was needed the last time; the second for what turns out to be needed besides. So a
//! cluster that has not changed costs one wave, and one that has is still read right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;

use super::ObserveError;
use super::hints::{Hint, Hints};
use super::owner::Owners;
use super::patience::in_time;
use super::reach::reach;
use super::secrets::Identities;
use super::teardown::Owner;
use super::volumes::TlsSecrets;
use super::world::{Objects, World};
use super::{pods, scope, wants};
use crate::api::OwnerStatus;
use crate::clock::Clock;
use crate::etcd::{Endpoint, TlsIdentity};
use crate::ledger::{Ledger, Page, temperature};
use crate::quorum::pod::Node;
use crate::quorum::{ClusterRef, Kind, PodName, Policy};

pub(super) type Tls = Result<Option<Arc<TlsIdentity>>, String>;

/// Reads what the Kubernetes API says of clusters. Meant to be shared: it remembers what to ask for.
pub struct Observer {
    client: Client,
    ledger: Ledger,
    clock: Clock,
    settle_time: Duration,
    owners: Owners,
    identities: Identities,
    hints: Hints,
}

/// What the first wave brought.
struct FirstWave {
    set: Option<StatefulSet>,
    namespace_terminating: bool,
    pods: Option<Vec<Pod>>,
    disruption_budgets: Vec<PodDisruptionBudget>,
    leases: Vec<Lease>,
    sharing: Vec<ClusterRef>,
    nodes: BTreeMap<String, Node>,
    owners: Vec<(OwnerStatus, Owner)>,
    tls: Option<(TlsSecrets, Tls)>,
}

impl Observer {
    /// Reads through this client. `settle_time`: how long a ledger is watched before it is trusted.
    pub fn new(client: Client, ledger: Ledger, clock: Clock, settle_time: Duration) -> Self {
        Self {
            owners: Owners::new(client.clone()),
            identities: Identities::new(client.clone()),
            hints: Hints::default(),
            client,
            ledger,
            clock,
            settle_time,
        }
    }

    /// The ledgers it reads.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How long a ledger is watched before it is trusted.
    pub fn settle_time(&self) -> Duration {
        self.settle_time
    }

    /// Where the members of a cluster were reached the last time, so that a round can start while the pods are still being
    /// read. Its answers count only where [`World::confirms`] these endpoints.
    pub fn likely_endpoints(&self, cluster: &ClusterRef) -> Vec<Endpoint> {
        self.hints.of(cluster).endpoints
    }

    /// Forgets a cluster that is no longer guarded.
    pub fn forget(&self, cluster: &ClusterRef) {
        self.hints.forget(cluster);
    }

    /// Reads everything about the cluster that a judgement may need, after `page` was read. `target` is the pod it is about, if it is
    /// about one; `kind` says whether `PodDisruptionBudget`s matter.
    pub async fn world(
        &self,
        page: &Page,
        target: Option<&PodName>,
        kind: Kind,
    ) -> Result<World, ObserveError> {
        self.read(page, target, kind, None).await
    }

    /// The same about no pod in particular, for looks that come by themselves. `sharing`: which other clusters report the same etcd, where a
    /// cache has it; nobody may decide by that. The API server compares every budget there is to answer that, so it is not
    /// asked for each of many clusters over and over.
    pub async fn world_at_leisure(
        &self,
        page: &Page,
        sharing: Option<Vec<ClusterRef>>,
    ) -> Result<World, ObserveError> {
        self.read(page, None, Kind::Delete, sharing).await
    }

    async fn read(
        &self,
        page: &Page,
        target: Option<&PodName>,
        kind: Kind,
        sharing: Option<Vec<ClusterRef>>,
    ) -> Result<World, ObserveError> {
        let policy = page.budget().spec.policy().map_err(ObserveError::Spec)?;
        let hint = self.hints.of(&page.cluster);
        let first = Box::pin(self.first_wave(page, kind, &policy, &hint, sharing)).await?;
        let selector = wants::selector(first.set.as_ref(), page)?;
        let set = first.set.as_ref();
        let pods = match first.pods {
            // A set that goes takes its name off its pods first: seen the other way round, they would look as if they went with it.
            Some(pods) if hint.selector == selector && all_belong(&pods, set) => pods,
            _ => self.list_pods(&page.cluster, selector.as_deref()).await?,
        };
        let names = wants::pods(set, page, target);
        let pods = self.with_named(&page.cluster, pods, selector.as_deref(), names);
        let pods = pods.await?;
        let wanted = Hint {
            nodes: pods
                .iter()
                .filter_map(pods::node_name)
                .map(str::to_owned)
                .collect(),
            owners: wants::owners(first.set.as_ref(), page),
            tls: wants::tls(&policy, page, first.set.as_ref(), &pods),
            selector,
            endpoints: Vec::new(),
        };
        let (nodes, owners, tls) = self
            .second_wave(&page.cluster, &wanted, first.nodes, first.owners, first.tls)
            .await;
        let reach = reach(page, policy.evidence, first.set.as_ref(), &pods, tls);
        self.hints.keep(
            &page.cluster,
            Hint {
                endpoints: reach.endpoints.clone(),
                ..wanted.clone()
            },
        );
        let set_gone_for = self.recorded_set_gone_for(page, first.set.as_ref());
        Ok(World::new(
            page,
            policy,
            Objects {
                namespace_terminating: first.namespace_terminating,
                set: first.set,
                selector: wanted.selector,
                owners,
                pods,
                nodes,
                leases: first.leases,
                disruption_budgets: first.disruption_budgets,
                sharing: first.sharing,
                set_gone_for,
                reach,
                temperature: temperature(page, self.ledger.seen(), self.settle_time),
                scale_out_for: self.scale_out_for(page),
                now: self.clock.now(),
                settle_time: self.settle_time,
            },
        ))
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(super) fn owner_states(&self) -> &Owners {
        &self.owners
    }

    pub(super) fn tls_identities(&self) -> &Identities {
        &self.identities
    }

    async fn first_wave(
        &self,
        page: &Page,
        kind: Kind,
        policy: &Policy,
        hint: &Hint,
        sharing: Option<Vec<ClusterRef>>,
    ) -> Result<FirstWave, ObserveError> {
        let cluster = &page.cluster;
        let pods = async {
            match &hint.selector {
                Some(selector) => self.list_pods(cluster, Some(selector)).await.map(Some),
                None => Ok(None),
            }
        };
        let tls = async {
            match &hint.tls {
                Some(secrets) => Some((secrets.clone(), self.tls(cluster, Some(secrets)).await)),
                None => None,
            }
        };
        let sharing = async {
            match sharing {
                Some(sharing) => Ok(sharing),
                None => self.sharing(page).await,
            }
        };
        let required = async {
            tokio::try_join!(
                self.set(cluster),
                self.namespace_terminating(cluster),
                pods,
                in_time(
                    "the PodDisruptionBudgets of the namespace",
                    self.disruption_budgets(cluster, kind)
                ),
                in_time("the member Leases", self.leases(cluster, policy.evidence)),
                in_time("the budgets", sharing),
            )
        };
        let (required, nodes, owners, tls) = tokio::join!(
            required,
            self.nodes(hint.nodes.iter()),
            self.owners(cluster, hint.owners.iter()),
            tls,
        );
        let (set, namespace_terminating, pods, disruption_budgets, leases, sharing) = required?;
        Ok(FirstWave {
            set,
            namespace_terminating,
            pods,
            disruption_budgets,
            leases,
            sharing,
            nodes,
            owners,
            tls,
        })
    }

    /// Completes what the first wave brought by what is wanted besides.
    async fn second_wave(
        &self,
        cluster: &ClusterRef,
        wanted: &Hint,
        mut nodes: BTreeMap<String, Node>,
        mut owners: Vec<(OwnerStatus, Owner)>,
        tls: Option<(TlsSecrets, Tls)>,
    ) -> (BTreeMap<String, Node>, Vec<(OwnerStatus, Owner)>, Tls) {
        let more_nodes = wanted.nodes.iter().filter(|n| !nodes.contains_key(*n));
        let more_nodes: BTreeSet<&String> = more_nodes.collect();
        let more_owners = wanted.owners.iter();
        let more_owners: Vec<&OwnerStatus> = more_owners
            .filter(|owner| !owners.iter().any(|(known, _)| known == *owner))
            .collect();
        let known_tls = tls.filter(|(secrets, _)| wanted.tls.as_ref() == Some(secrets));
        let tls = async {
            match known_tls {
                Some((_, tls)) => tls,
                None => self.tls(cluster, wanted.tls.as_ref()).await,
            }
        };
        let (more_nodes, more_owners, tls) = tokio::join!(
            self.nodes(more_nodes.into_iter()),
            self.owners(cluster, more_owners.into_iter()),
            tls,
        );
        nodes.extend(more_nodes);
        owners.extend(more_owners);
        (nodes, owners, tls)
    }

    /// For how long this replica has known that the StatefulSet that the budget last saw is gone; zero where it is not. What pods refer to is not
    /// remembered: whoever may change one may have it refer to anything.
    pub(super) fn recorded_set_gone_for(&self, page: &Page, set: Option<&StatefulSet>) -> Duration {
        let recorded = page.status().and_then(|s| s.stateful_set.as_ref());
        let current = set.and_then(|set| set.metadata.uid.as_deref());
        let gone = recorded.filter(|recorded| Some(recorded.uid.as_str()) != current);
        let seen = self.ledger.seen();
        gone.map_or(Duration::ZERO, |gone| {
            seen.set_gone_for(&page.cluster, &page.uid, &gone.uid)
        })
    }

    /// The same of the StatefulSet that the pod refers to, where there is no budget. It counts only while no other one of its name stands.
    pub(super) fn set_gone_for(
        &self,
        namespace: &str,
        pod: &Pod,
        set: Option<&StatefulSet>,
    ) -> Duration {
        let seen = self.ledger.seen();
        match (set, missing_set(pod, set)) {
            (None, Some(uid)) => seen.set_without_budget_gone_for(namespace, &uid),
            (Some(_), _) | (None, None) => Duration::ZERO,
        }
    }

    /// For how long this replica has seen the recorded scale-out.
    fn scale_out_for(&self, page: &Page) -> Option<Duration> {
        let grown = page.status()?.scale_out.as_ref()?;
        let seen = self.ledger.seen();
        Some(seen.scale_out_for(&page.cluster, &page.uid, grown.to))
    }
}

/// Whether no pod refers to another StatefulSet than this one.
fn all_belong(pods: &[Pod], set: Option<&StatefulSet>) -> bool {
    pods.iter().all(|pod| missing_set(pod, set).is_none())
}

/// The StatefulSet that a pod refers to, where it is not this one.
fn missing_set(pod: &Pod, set: Option<&StatefulSet>) -> Option<String> {
    let current = set.and_then(|set| set.metadata.uid.as_deref());
    scope::set_uid(&pod.metadata).filter(|uid| Some(uid.as_str()) != current)
}
