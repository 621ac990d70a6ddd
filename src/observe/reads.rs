//! The single readings of the Kubernetes API, each uncached.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::{join_all, try_join_all};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node as NodeObject, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::ListParams;

use super::error::ObserveError;
use super::find::Find;
use super::memory::Hint;
use super::observer::Observer;
use super::observer::{Pods, Tls};
use super::read_limits::{in_time, soon};
use super::teardown::Owner;
use super::view::ClusterView;
use super::ways::credentials::Credentials;
use super::{belonging, needed, nodes, pods};
use crate::api::OwnerStatus;
use crate::ledger::Page;
use crate::lists;
use crate::named;
use crate::quorum::pod::Node;
use crate::quorum::{ClusterRef, EvidenceMode, Kind, PodName};

/// The most objects that are read by name. For more, a list of the namespace costs less.
const MOST_READ_BY_NAME: usize = 16;

/// The names, unless there are too many of them to read each. A StatefulSet may ask for any number
/// of pods, so not all are enumerated.
fn few(names: impl Iterator<Item = PodName>) -> Option<BTreeSet<PodName>> {
    let mut few = BTreeSet::new();
    for name in names {
        few.insert(name);
        if few.len() > MOST_READ_BY_NAME {
            return None;
        }
    }
    Some(few)
}

impl Observer {
    /// Reads a pod.
    pub(super) async fn pod(
        &self,
        namespace: &str,
        name: &PodName,
    ) -> Result<Option<Pod>, ObserveError> {
        let pods: Api<Pod> = Api::namespaced(self.client().clone(), namespace);
        named::get_opt(&pods, named::OF_OBJECT, name.as_str())
            .await
            .map_err(ObserveError::Pod)
    }

    pub(super) async fn set(
        &self,
        cluster: &ClusterRef,
    ) -> Result<Option<StatefulSet>, ObserveError> {
        let sets: Api<StatefulSet> = Api::namespaced(self.client().clone(), &cluster.namespace);
        let set = named::get_opt(&sets, "the StatefulSet of the pod", &cluster.name).await;
        set.map_err(ObserveError::StatefulSet)
    }

    pub(super) async fn namespace_terminating(
        &self,
        cluster: &ClusterRef,
    ) -> Result<bool, ObserveError> {
        let namespaces: Api<Namespace> = Api::all(self.client().clone());
        let namespace = named::get_opt(&namespaces, named::OF_OBJECT, &cluster.namespace).await;
        let namespace = namespace.map_err(ObserveError::Namespace)?;
        Ok(namespace.is_none_or(|ns| ns.metadata.deletion_timestamp.is_some()))
    }

    /// Reads the pods that are probably needed, without the StatefulSet. `None` if nothing says
    /// which these are.
    pub(super) async fn likely_pods(
        &self,
        page: &Page,
        target: Option<&PodName>,
        hint: &Hint,
        find: Find,
    ) -> Result<Option<Pods>, ObserveError> {
        let cluster = &page.cluster;
        if find == Find::Named
            && let Some(names) = few(needed::pods(None, page, target))
        {
            let objects = self.named_pods(cluster, &names).await?;
            let found = Find::Named;
            return Ok(Some(Pods { objects, found }));
        }
        match &hint.selector {
            Some(selector) => self.list_pods(cluster, Some(selector)).await.map(Some),
            None => Ok(None),
        }
    }

    /// Lists the pods of the cluster. Without a selector all pods of the namespace are listed and
    /// filtered.
    pub(super) async fn list_pods(
        &self,
        cluster: &ClusterRef,
        selector: Option<&str>,
    ) -> Result<Pods, ObserveError> {
        let pods: Api<Pod> = Api::namespaced(self.client().clone(), &cluster.namespace);
        let parameters = ListParams {
            label_selector: selector.map(str::to_owned),
            ..ListParams::default()
        };
        let of_cluster = |pod: &Pod| belonging::name(pod).is_given_by(&cluster.name);
        let objects = lists::kept(&pods, &parameters, of_cluster).await;
        Ok(Pods {
            objects: objects.map_err(ObserveError::Pods)?,
            found: Find::Listed,
        })
    }

    /// Completes `pods` by those of `names` that are not among them, each read by its name. A
    /// member's pod that lost its labels or its owner still runs the same member. If many are
    /// missing, all pods of the namespace are listed instead.
    pub(super) async fn with_named(
        &self,
        cluster: &ClusterRef,
        mut pods: Pods,
        selector: Option<&str>,
        names: impl Iterator<Item = PodName>,
    ) -> Result<Pods, ObserveError> {
        let known: BTreeSet<PodName> = pods.objects.iter().map(belonging::name).collect();
        match few(names.filter(|name| !known.contains(name))) {
            Some(missing) => {
                let found = self.named_pods(cluster, &missing).await?;
                pods.objects.extend(found);
            }
            None if pods.found == Find::Listed && selector.is_none() => {}
            None => pods = self.list_pods(cluster, None).await?,
        }
        pods.objects.sort_by_key(belonging::name);
        Ok(pods)
    }

    /// Reads pods by their names, as far as they exist.
    async fn named_pods(
        &self,
        cluster: &ClusterRef,
        names: &BTreeSet<PodName>,
    ) -> Result<Vec<Pod>, ObserveError> {
        let pods = names.iter().map(|name| self.pod(&cluster.namespace, name));
        Ok(try_join_all(pods).await?.into_iter().flatten().collect())
    }

    /// Whether the cluster has a pod that was not among those read by name.
    pub(super) async fn has_further_pods(&self, view: &ClusterView) -> Result<bool, ObserveError> {
        let pods = self.list_pods(view.cluster(), view.selector()).await?;
        let mut names = pods.objects.iter().map(belonging::name);
        Ok(names.any(|name| view.pod(&name).is_none()))
    }

    /// Reads the `PodDisruptionBudget`s of the namespace, each by its name where a watch knows all
    /// names: the API server answers a list only when its cache has caught up with etcd.
    pub(super) async fn disruption_budgets(
        &self,
        cluster: &ClusterRef,
        kind: Kind,
    ) -> Result<Vec<PodDisruptionBudget>, ObserveError> {
        if !kind.is_eviction() {
            return Ok(Vec::new());
        }
        let budgets: Api<PodDisruptionBudget> =
            Api::namespaced(self.client().clone(), &cluster.namespace);
        let names = self
            .disruption_budget_names()
            .in_namespace(&cluster.namespace);
        let read = async {
            match names.filter(|names| names.len() <= MOST_READ_BY_NAME) {
                Some(names) => {
                    let read = names
                        .iter()
                        .map(|name| named::get_opt(&budgets, named::OF_OBJECT, name));
                    Ok(try_join_all(read).await?.into_iter().flatten().collect())
                }
                None => lists::kept(&budgets, &ListParams::default(), |_| true).await,
            }
        };
        read.await.map_err(ObserveError::DisruptionBudgets)
    }

    pub(super) async fn leases(
        &self,
        cluster: &ClusterRef,
        mode: EvidenceMode,
    ) -> Result<Vec<Lease>, ObserveError> {
        if mode == EvidenceMode::Live {
            return Ok(Vec::new());
        }
        let leases: Api<Lease> = Api::namespaced(self.client().clone(), &cluster.namespace);
        let leases = lists::kept(&leases, &ListParams::default(), |_| true).await;
        leases.map_err(ObserveError::Leases)
    }

    pub(super) async fn sharing(&self, page: &Page) -> Result<Vec<ClusterRef>, ObserveError> {
        let Some(id) = page.cluster_id() else {
            return Ok(Vec::new());
        };
        let list = async {
            let sharing = self.ledger().sharing(page, id).await;
            sharing.map_err(ObserveError::Ledger)
        };
        in_time("the budgets", list).await
    }

    /// Reads the nodes of these pods of the cluster, as far as they are bound to one.
    pub(super) async fn read_nodes(&self, view: &mut ClusterView, pods: &[PodName]) {
        let pods = pods.iter().filter_map(|name| view.pod(name));
        let names: BTreeSet<String> = pods
            .filter_map(pods::node_name)
            .map(str::to_owned)
            .collect();
        let nodes = self.nodes(names.iter()).await;
        view.learn_nodes(nodes);
    }

    /// The states of nodes. A node that cannot be read is missing evidence, and no failure.
    pub(super) async fn nodes(
        &self,
        names: impl Iterator<Item = &String>,
    ) -> BTreeMap<String, Node> {
        let nodes: Api<NodeObject> = Api::all(self.client().clone());
        let states = names.map(|name| {
            let nodes = nodes.clone();
            async move {
                let state =
                    match soon(named::get_opt(&nodes, "spec.nodeName of the pod", name)).await {
                        Ok(Ok(Some(node))) => nodes::state(&node),
                        Ok(Ok(None)) => Node::Gone,
                        Ok(Err(_)) | Err(_) => Node::Unread,
                    };
                (name.clone(), state)
            }
        });
        join_all(states).await.into_iter().collect()
    }

    pub(super) async fn owners(
        &self,
        cluster: &ClusterRef,
        owners: impl Iterator<Item = &OwnerStatus>,
    ) -> Vec<(OwnerStatus, Owner)> {
        let states = owners.map(|owner| async move {
            let state = self.owner_states().state(&cluster.namespace, owner).await;
            (owner.clone(), state)
        });
        join_all(states).await
    }

    pub(super) async fn tls(&self, cluster: &ClusterRef, wanted: Option<&Credentials>) -> Tls {
        match wanted {
            None => Ok(None),
            Some(wanted) => {
                let now = self.clock().instant();
                let read = self.tls_identities().read(&cluster.namespace, wanted, now);
                let identity = match soon(read).await {
                    Ok(identity) => identity,
                    Err(late) => Err(format!("its certificates could not be read: {late}")),
                };
                identity.map(Some)
            }
        }
    }
}
