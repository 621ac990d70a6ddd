//! Caches of the objects that controllers act on. They wake tasks, list objects, and show which
//! budgets report the same etcd. No verdict and no settlement depends on them.

mod cache;
mod pod;
mod stateful_set;

use std::collections::BTreeSet;
use std::convert;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::in_force::{self, OutOfForce, is_gated};
use super::status_worker::is_unease;
use crate::api::{MemberRole, QuorumDisruptionBudget, names};
use crate::ledger::{Ledger, LedgerError, Seen};
use crate::observe::{DisruptionBudgetNames, Index};
use crate::quorum::ClusterRef;
use cache::Part;
pub(super) use cache::{Cache, NeverListed, Place};
pub(super) use pod::{CachedPod, SlimPod};
use stateful_set::SlimSet;
#[cfg(test)]
pub(super) use stateful_set::cached;
pub(super) use stateful_set::{CachedSet, SetSight};

/// The change of an object, by its meaning for clusters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A budget was created, deleted or written.
    Budget(ClusterRef),
    /// A StatefulSet was created, deleted or changed.
    StatefulSet(ClusterRef),
    /// A pod of a StatefulSet came, went or changed, or an orphan of one.
    Pod(ClusterRef),
    /// A `PodDisruptionBudget` in this namespace came, went or changed.
    DisruptionBudget(String),
    /// A namespace came, went or changed.
    Namespace {
        /// The name of the namespace.
        name: String,
        /// The reason why the gate is not asked about the namespace, by this event. The next event
        /// may show otherwise, but pods may have gone unasked in between.
        outage: Option<OutOfForce>,
    },
    /// A node came, went, or changed its readiness, its taints or its labels.
    Node(String),
    /// All objects of a kind were listed, some of which may have changed or gone since the watch
    /// saw them. The changes of a list are told before the cache shows them.
    Listed,
    /// A webhook configuration of the gate came, went or changed, which concerns every cluster.
    Webhooks {
        /// The flaw of the configuration, by this event.
        outage: Option<OutOfForce>,
    },
}

impl Change {
    /// Whether the event showed the gate out of force. No later event tells that.
    pub(super) fn is_outage(&self) -> bool {
        self.outage().is_some()
    }

    fn outage(&self) -> Option<&OutOfForce> {
        match self {
            Self::Namespace { outage, .. } | Self::Webhooks { outage } => outage.as_ref(),
            _ => None,
        }
    }

    /// Notes whether the gate is out of force, or in force again.
    pub(super) fn note_outage(&self, seen: &Seen) {
        match self {
            Self::Namespace { name, outage } => seen.note_namespace(name, outage.is_none()),
            Self::Webhooks { outage } => {
                seen.note_webhooks();
                if outage.is_some() {
                    seen.note_outage();
                }
            }
            _ => {}
        }
    }
}

/// The caches, one per kind. Each holds what is asked of it and nothing else.
pub(super) struct Watches {
    /// The budgets, see [`slim_budget`].
    pub(super) budgets: Cache<QuorumDisruptionBudget>,
    pub(super) stateful_sets: Cache<CachedSet>,
    pub(super) pods: Cache<CachedPod>,
    disruption_budgets: Cache<PodDisruptionBudget>,
    /// The names of the `PodDisruptionBudget`s in each namespace.
    disruption_budget_names: Arc<DisruptionBudgetNames>,
    /// The clusters whose budgets report each etcd cluster id.
    same_etcd: Arc<Index<String, ClusterRef>>,
    pub(super) namespaces: Cache<Namespace>,
    /// The nodes, without what only kubelets and schedulers ask for.
    nodes: Cache<Node>,
    pub(super) validating: Cache<ValidatingWebhookConfiguration>,
    pub(super) mutating: Cache<MutatingWebhookConfiguration>,
}

impl Watches {
    /// The namespace with that name.
    pub(super) fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.named(name)
    }

    /// The `PodDisruptionBudget`s of a namespace.
    pub(super) fn disruption_budgets(&self, namespace: &str) -> Vec<Arc<PodDisruptionBudget>> {
        let names = self.disruption_budget_names.index().of(namespace);
        let cached = |name: &String| self.disruption_budgets.get(namespace, name);
        names.iter().filter_map(cached).collect()
    }

    /// The clusters whose budgets report the etcd cluster with this id, in order.
    pub(super) fn same_etcd(&self, id: &String) -> Vec<ClusterRef> {
        let mut clusters = self.same_etcd.of(id);
        clusters.retain(|cluster| {
            let budget = self.budgets.of(cluster);
            budget.as_deref().and_then(cluster_id) == Some(id)
        });
        clusters
    }

    /// The node with that name.
    pub(super) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.named(name)
    }

    /// The clusters with pods for which `holds` is true.
    pub(super) fn clusters_of_pods(
        &self,
        holds: impl Fn(&CachedPod) -> bool,
    ) -> BTreeSet<ClusterRef> {
        let mut clusters = BTreeSet::new();
        self.pods.each(|place, pod| {
            if holds(pod) {
                clusters.extend(pod.cluster(place));
            }
        });
        clusters
    }

    /// Returns once every watch has listed all objects. Budgets are waited for only while the API
    /// server knows the kind: a gate that is not ready could not even report that the definition is
    /// missing.
    pub(super) async fn synced(&self, ledger: &Ledger) -> Result<(), NeverListed> {
        tokio::select! {
            done = self.budgets.listed() => done?,
            () = until_undefined(ledger) => warn!(
                "the definition of QuorumDisruptionBudgets is missing: nothing that is enrolled can be told from anything else, so every pod of a StatefulSet has to stay; install it again (`quorumgate crds | kubectl apply -f -`)"
            ),
        }
        self.stateful_sets.listed().await?;
        self.pods.listed().await?;
        self.disruption_budgets.listed().await?;
        self.disruption_budget_names.are_complete();
        self.namespaces.listed().await?;
        self.nodes.listed().await?;
        self.validating.listed().await?;
        self.mutating.listed().await
    }
}

/// Returns when the API server answers that it does not know budgets.
async fn until_undefined(ledger: &Ledger) {
    const AGAIN: Duration = Duration::from_secs(2);
    while !matches!(ledger.defined().await, Err(LedgerError::NoDefinition)) {
        tokio::time::sleep(AGAIN).await;
    }
}

/// The etcd cluster id that a budget reports.
fn cluster_id(budget: &QuorumDisruptionBudget) -> Option<&String> {
    budget.status.as_ref()?.cluster_id.as_ref()
}

/// A future that keeps one watch going. It should never end.
pub(super) type Following = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A callback for every change, called as soon as a watch shows it.
pub(super) type Told = Arc<dyn Fn(Change) + Send + Sync>;

/// An object that a watch can read.
trait Watched: Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K: Clone + Debug + DeserializeOwned + Send + Sync + 'static> Watched for K {}

/// The watches that were opened so far.
struct Opening<'a> {
    client: &'a Client,
    namespaces: &'a [String],
    told: &'a Told,
    /// The futures that keep them going, with the kind that each watches.
    following: Vec<(String, Following)>,
}

impl Opening<'_> {
    /// A cache of the values that `read` makes of the objects. `change` is told where an object is,
    /// and its value.
    fn cache<K, V>(
        &mut self,
        config: &watcher::Config,
        read: fn(K) -> V,
        change: impl Fn(&Place, &V) -> Option<Change> + Clone + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Watched,
        V: Send + Sync + 'static,
    {
        self.indexed(config, read, |_, _, _| {}, change)
    }

    /// A cache, and an index of it: `index` is told of each object, and whether it exists.
    fn indexed<K, V>(
        &mut self,
        config: &watcher::Config,
        read: fn(K) -> V,
        index: impl Fn(&Place, &V, bool) + Clone + Send + 'static,
        change: impl Fn(&Place, &V) -> Option<Change> + Clone + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Watched,
        V: Send + Sync + 'static,
    {
        let client = self.client;
        let apis: Vec<Api<K>> = if self.namespaces.is_empty() {
            vec![Api::all(client.clone())]
        } else {
            let of = |namespace: &String| Api::namespaced(client.clone(), namespace);
            self.namespaces.iter().map(of).collect()
        };
        let follow = |api| self.follow(api, config.clone(), read, (index.clone(), change.clone()));
        Cache::new(apis.into_iter().map(follow).collect::<Vec<_>>())
    }

    fn everywhere<K>(
        &mut self,
        config: watcher::Config,
        read: fn(K) -> K,
        change: impl Fn(&K) -> Option<Change> + Send + 'static,
    ) -> Cache<K>
    where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Watched,
    {
        let api = Api::all(self.client.clone());
        let change = move |_: &Place, object: &K| change(object);
        Cache::new([self.follow(api, config, read, (|_: &Place, _: &K, _| {}, change))])
    }

    fn follow<K, V>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        read: fn(K) -> V,
        (index, change): (
            impl Fn(&Place, &V, bool) + Send + 'static,
            impl Fn(&Place, &V) -> Option<Change> + Send + 'static,
        ),
    ) -> Part<V>
    where
        K: Resource<DynamicType = ()> + Watched,
        V: Send + Sync + 'static,
    {
        let (part, mut feed) = cache::part();
        let told = Arc::clone(self.told);
        let kind = K::kind(&()).into_owned();
        let watched = kind.clone();
        let following = Box::pin(async move {
            let mut events = watcher(api, config).default_backoff().boxed();
            // Where an object is, its value, and the change that it means.
            let seen = move |mut object: K, exists| {
                object.managed_fields_mut().clear();
                let (place, value) = (Place::of(&object), read(object));
                index(&place, &value, exists);
                let change = change(&place, &value);
                (place, value, change)
            };
            while let Some(event) = events.next().await {
                let change = match event {
                    Ok(Event::Init) => {
                        feed.begin_list();
                        None
                    }
                    Ok(Event::InitApply(object)) => {
                        let (place, value, change) = seen(object, true);
                        feed.list(place, value);
                        change
                    }
                    Ok(Event::InitDone) => {
                        feed.end_list();
                        Some(Change::Listed)
                    }
                    Ok(Event::Apply(object)) => {
                        let (place, value, change) = seen(object, true);
                        feed.put(place, value);
                        change
                    }
                    Ok(Event::Delete(object)) => {
                        let (place, _, change) = seen(object, false);
                        feed.remove(&place);
                        change
                    }
                    Err(error) => {
                        warn!(kind = watched, %error, "a watch failed and is opened again");
                        None
                    }
                };
                if let Some(change) = change {
                    told(change);
                }
            }
        });
        self.following.push((kind, following));
        part
    }
}

/// The budget, or an empty one in place of a budget that cannot be read, as after a downgrade. One
/// unreadable object among a thousand must not end the watch of all. The empty budget keeps its
/// namespace under the webhooks, and keeps enrolment from creating another one. Code that decides
/// or writes reads the ledger itself, and gets the error there.
fn or_empty(budget: DeserializeGuard<QuorumDisruptionBudget>) -> QuorumDisruptionBudget {
    match budget.0 {
        Ok(budget) => budget,
        Err(InvalidObject { error, metadata }) => {
            let cluster = ClusterRef::new(
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default(),
            );
            warn!(
                %cluster,
                error,
                "its QuorumDisruptionBudget cannot be read: its pods have to stay but for overrides and teardowns, the other clusters are looked after; mend the budget, or run the version of the gate that wrote it"
            );
            let mut empty = QuorumDisruptionBudget::of(&cluster);
            empty.metadata = metadata;
            empty
        }
    }
}

/// A budget with what its cache is asked for: whom it enrols, what its ledger has open, and what of
/// its status is unusual. The record of a healthy cluster is most of it.
fn slim_budget(mut budget: QuorumDisruptionBudget) -> QuorumDisruptionBudget {
    let meta = &mut budget.metadata;
    meta.owner_references = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.retain(|name, _| name == names::DEFRAGMENT);
    }
    if let Some(status) = &mut budget.status {
        status.leader = None;
        status.selector = None;
        status.update_strategy = None;
        status.volumes = Vec::new();
        status.defragmentations = Vec::new();
        status.replacements.retain(|r| r.finished.is_none());
        status.members.retain(|m| m.role == MemberRole::Learner);
        status.conditions.retain(is_unease);
        status.replacements.shrink_to_fit();
        status.members.shrink_to_fit();
        status.conditions.shrink_to_fit();
    }
    budget
}

/// A `PodDisruptionBudget` without its status, which changes with each of its pods.
fn slim_disruption_budget(mut budget: PodDisruptionBudget) -> PodDisruptionBudget {
    budget.metadata.annotations = None;
    budget.status = None;
    budget
}

/// A namespace with its label.
fn slim_namespace(mut namespace: Namespace) -> Namespace {
    namespace.metadata.annotations = None;
    if let Some(labels) = &mut namespace.metadata.labels {
        labels.retain(|name, _| name == names::GATED);
    }
    namespace.spec = None;
    namespace.status = None;
    namespace
}

/// A node with its taints and its readiness.
fn slim_node(mut node: Node) -> Node {
    node.metadata.labels = None;
    node.metadata.annotations = None;
    let spec = node.spec.take().unwrap_or_default();
    node.spec = Some(NodeSpec {
        taints: spec.taints,
        ..NodeSpec::default()
    });
    let mut conditions = node.status.take().and_then(|status| status.conditions);
    if let Some(conditions) = &mut conditions {
        conditions.retain(|condition| condition.type_ == "Ready");
    }
    node.status = Some(NodeStatus {
        conditions,
        ..NodeStatus::default()
    });
    node
}

/// Opens every watch. The returned futures keep them going; each has the kind that it watches.
pub(super) fn open(
    client: &Client,
    namespaces: &[String],
    webhooks: &str,
    told: &Told,
    disruption_budget_names: &Arc<DisruptionBudgetNames>,
) -> (Watches, Vec<(String, Following)>) {
    let mut opening = Opening {
        client,
        namespaces,
        told,
        following: Vec::new(),
    };
    let any = watcher::Config::default;
    // The StatefulSet controller labels all its pods, so other pods need not be cached.
    let members = any().labels(names::POD_NAME);
    let ours = any().fields(&format!("metadata.name={webhooks}"));
    let names = Arc::clone(disruption_budget_names);
    let by_namespace = move |place: &Place, _: &PodDisruptionBudget, exists: bool| {
        let (namespace, name) = (place.namespace().to_owned(), place.name().to_owned());
        names.index().note(namespace, name, exists);
    };
    let same_etcd = Arc::new(Index::default());
    let by_cluster_id = {
        let same_etcd = Arc::clone(&same_etcd);
        move |place: &Place, budget: &QuorumDisruptionBudget, exists: bool| {
            if let Some(id) = cluster_id(budget) {
                same_etcd.note(id.clone(), place.cluster(), exists);
            }
        }
    };
    let watches = Watches {
        budgets: opening.indexed(
            &any(),
            |budget| slim_budget(or_empty(budget)),
            by_cluster_id,
            |place, _| Some(Change::Budget(place.cluster())),
        ),
        same_etcd,
        stateful_sets: opening.cache(
            &any(),
            |set: SlimSet| CachedSet::from(set),
            |place, _| Some(Change::StatefulSet(place.cluster())),
        ),
        pods: opening.cache(
            &members,
            |pod: SlimPod| CachedPod::from(pod),
            |place, pod| pod.cluster(place).map(Change::Pod),
        ),
        disruption_budgets: opening.indexed(
            &any(),
            slim_disruption_budget,
            by_namespace,
            |place, _| Some(Change::DisruptionBudget(place.namespace().to_owned())),
        ),
        disruption_budget_names: Arc::clone(disruption_budget_names),
        namespaces: opening.everywhere(any(), slim_namespace, |namespace: &Namespace| {
            Some(Change::Namespace {
                name: namespace.name_any(),
                outage: (!is_gated(namespace)).then_some(OutOfForce::NotGated),
            })
        }),
        nodes: opening.everywhere(any(), slim_node, |node| Some(Change::Node(node.name_any()))),
        validating: opening.everywhere(ours.clone(), convert::identity, |hooks| {
            let outage = in_force::validating(hooks, None).err();
            Some(Change::Webhooks { outage })
        }),
        mutating: opening.everywhere(ours, convert::identity, |hooks| {
            let outage = in_force::mutating(hooks, None).err();
            Some(Change::Webhooks { outage })
        }),
    };
    (watches, opening.following)
}
#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::condition;
    use crate::ledger::trust_record;
    use crate::reconcile::enrol::made_here;
    use crate::reconcile::status_worker::shows_unease;

    fn budget(healthy: &str) -> QuorumDisruptionBudget {
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "Because", "message": "so it is",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let cause = json!({
            "seq": 3, "kind": "Delete", "at": "2026-01-01T00:00:00Z", "by": "somebody",
        });
        serde_json::from_value(json!({
            "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
            "metadata": {
                "name": "etcd", "namespace": "db", "uid": "1", "generation": 4,
                "labels": {names::MANAGED_BY: "quorumgate"},
                "annotations": {names::DEFRAGMENT: "now", "more": "of it"},
            },
            "spec": {"statefulSetName": "etcd", "partition": 1},
            "status": {
                "clusterId": "cafe", "leader": "a", "selector": "app=etcd",
                "ledger": {"trusted": true, "budgetUid": "1", "epoch": 2, "inForceBy": "hooks"},
                "scaleOut": {"to": 3},
                "leaderMove": {"from": "a", "to": "b", "term": 7},
                "rollout": {"target": "new", "updated": 1, "targets": 2},
                "grants": [{"member": "etcd-0", "causes": [cause]}],
                "conditions": [condition(condition::QUORUM_HEALTHY, healthy), condition("Other", "True")],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_cached_budget_tells_workers_and_stopwatches_what_the_whole_one_tells() {
        for healthy in ["True", "False"] {
            let whole = budget(healthy);
            let cached = slim_budget(whole.clone());
            assert_eq!(trust_record(&cached), trust_record(&whole));
            assert_eq!(cluster_id(&cached), cluster_id(&whole));
            assert!(made_here(&cached));
            assert_eq!(cached.spec, whole.spec);
            let (of_cached, of_whole) = (&cached.metadata, &whole.metadata);
            assert_eq!(of_cached.generation, of_whole.generation);
            assert_eq!(of_cached.uid, of_whole.uid);
            let asked = cached.annotations().get(names::DEFRAGMENT);
            assert_eq!(asked, whole.annotations().get(names::DEFRAGMENT));
            let (cached, whole) = (cached.status.unwrap(), whole.status.unwrap());
            assert_eq!(shows_unease(&cached), shows_unease(&whole));
            assert_eq!(shows_unease(&cached), healthy == "False");
            assert_eq!(cached.grants, whole.grants);
            assert_eq!(cached.ledger, whole.ledger);
            assert_eq!(cached.scale_out, whole.scale_out);
            assert_eq!(cached.leader_move, whole.leader_move);
            assert_eq!(cached.rollout, whole.rollout);
            assert!(cached.conditions.len() < whole.conditions.len());
        }
    }

    #[test]
    fn a_cached_budget_shows_learners_and_open_replacements_only() {
        let member = |name: &str, role: &str| json!({"name": name, "role": role, "serving": true});
        let mut whole = serde_json::to_value(budget("True")).unwrap();
        whole["status"]["members"] = json!([member("a", "Voter"), member("b", "Learner")]);
        let whole: QuorumDisruptionBudget = serde_json::from_value(whole).unwrap();
        let cached = slim_budget(whole).status.unwrap();
        let roles: Vec<_> = cached.members.iter().map(|member| member.role).collect();
        assert_eq!(roles, [MemberRole::Learner]);
        assert!(shows_unease(&cached));
    }

    #[test]
    fn a_cached_node_has_its_taints_and_its_readiness() {
        let node: Value = json!({
            "metadata": {"name": "n1", "labels": {"zone": "a"}, "annotations": {"more": "of it"}},
            "spec": {
                "podCIDR": "10.0.0.0/24",
                "taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}],
            },
            "status": {
                "conditions": [
                    {"type": "DiskPressure", "status": "False"},
                    {"type": "Ready", "status": "Unknown"},
                ],
                "images": [{"names": ["etcd"]}],
            },
        });
        let cached = slim_node(serde_json::from_value(node.clone()).unwrap());
        let expected: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "spec": {"taints": node["spec"]["taints"]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        }))
        .unwrap();
        assert_eq!(cached, expected);
    }

    #[test]
    fn a_cached_namespace_has_its_label_and_its_end() {
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {
                "name": "db", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "labels": {names::GATED: names::TRUE, "team": "a"}, "annotations": {"more": "of it"},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Terminating"},
        }))
        .unwrap();
        let cached = slim_namespace(namespace.clone());
        assert!(is_gated(&cached));
        let (cached, whole) = (cached.metadata, namespace.metadata);
        assert_eq!(cached.deletion_timestamp, whole.deletion_timestamp);
        assert_eq!(cached.labels.map(|labels| labels.len()), Some(1));
    }
}
