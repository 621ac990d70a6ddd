//! Caches of the objects that controllers act on. They wake tasks, list objects, and show which
//! budgets report the same etcd. No verdict and no settlement depends on them.

use std::convert;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Node, PodTemplateSpec};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::in_force::{self, OutOfForce, is_gated};
use super::slim_pod::SlimPod;
use crate::api::{QuorumDisruptionBudget, names};
use crate::ledger::{Ledger, LedgerError, Seen};
use crate::observe::{DisruptionBudgetNames, Index};
use crate::quorum::ClusterRef;

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

/// A kind of objects that a cache can keep.
pub(super) trait Kept:
    Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static
{
}

impl<K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static> Kept for K {}

/// The cached objects of one namespaced kind, from one watch of all namespaces, or from one watch
/// for each named namespace.
pub(super) struct Cache<K>(Vec<Store<K>>)
where
    K: Resource<DynamicType = ()> + 'static;

impl<K> Cache<K>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + 'static,
{
    /// The object with that name.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let key = ObjectRef::new(name).within(namespace);
        self.0.iter().find_map(|store| store.get(&key))
    }

    /// The object with the namespace and the name of a cluster.
    pub(super) fn of(&self, cluster: &ClusterRef) -> Option<Arc<K>> {
        self.get(&cluster.namespace, &cluster.name)
    }

    /// The objects for which `holds` is true.
    pub(super) fn filter(&self, holds: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.0
            .iter()
            .flat_map(|store| store.state_filter(&holds))
            .collect()
    }

    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(Store::len).sum()
    }

    /// All objects.
    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.0.iter().flat_map(Store::state).collect()
    }
}

/// The caches, one per kind.
pub(super) struct Watches {
    pub(super) budgets: Cache<QuorumDisruptionBudget>,
    /// The StatefulSets, without their templates.
    pub(super) stateful_sets: Cache<StatefulSet>,
    pub(super) pods: Cache<SlimPod>,
    disruption_budgets: Cache<PodDisruptionBudget>,
    /// The names of the `PodDisruptionBudget`s in each namespace.
    disruption_budget_names: Arc<DisruptionBudgetNames>,
    /// The clusters whose budgets report each etcd cluster id.
    same_etcd: Arc<Index<String, ClusterRef>>,
    pub(super) namespaces: Store<Namespace>,
    pub(super) nodes: Store<Node>,
    pub(super) validating: Store<ValidatingWebhookConfiguration>,
    pub(super) mutating: Store<MutatingWebhookConfiguration>,
}

impl Watches {
    /// The namespace with that name.
    pub(super) fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.get(&ObjectRef::new(name))
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
        self.nodes.get(&ObjectRef::new(name))
    }

    /// Returns once every watch has listed all objects. Budgets are waited for only while the API
    /// server knows the kind: a gate that is not ready could not even report that the definition is
    /// missing.
    pub(super) async fn synced(
        &self,
        ledger: &Ledger,
    ) -> Result<(), reflector::store::WriterDropped> {
        /// Waits for each store of a cache.
        async fn listed<K>(cache: &Cache<K>) -> Result<(), reflector::store::WriterDropped>
        where
            K: Resource<DynamicType = ()> + Clone + 'static,
        {
            for store in &cache.0 {
                store.wait_until_ready().await?;
            }
            Ok(())
        }
        tokio::select! {
            done = listed(&self.budgets) => done?,
            () = until_undefined(ledger) => warn!(
                "the definition of QuorumDisruptionBudgets is missing: nothing that is enrolled can be told from anything else, so every pod of a StatefulSet has to stay; install it again (`quorumgate crds | kubectl apply -f -`)"
            ),
        }
        listed(&self.stateful_sets).await?;
        listed(&self.pods).await?;
        listed(&self.disruption_budgets).await?;
        self.disruption_budget_names.are_complete();
        self.namespaces.wait_until_ready().await?;
        self.nodes.wait_until_ready().await?;
        self.validating.wait_until_ready().await?;
        self.mutating.wait_until_ready().await
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

/// The cluster whose StatefulSet has the namespace and the name of this object.
pub(super) fn named<K: Resource>(object: &K) -> Option<ClusterRef> {
    let meta = object.meta();
    Some(ClusterRef::new(meta.namespace.clone()?, meta.name.clone()?))
}

/// A future that keeps one watch going. It should never end.
pub(super) type Following = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A callback for every change, called as soon as a watch shows it.
pub(super) type Told = Arc<dyn Fn(Change) + Send + Sync>;

/// The watches that were opened so far.
struct Opening<'a> {
    client: &'a Client,
    namespaces: &'a [String],
    told: &'a Told,
    /// The futures that keep them going, with the kind that each watches.
    following: Vec<(String, Following)>,
}

impl Opening<'_> {
    /// A cache of the values that `read` makes of the objects.
    fn cache<K, V>(
        &mut self,
        config: &watcher::Config,
        read: fn(K) -> V,
        change: impl Fn(&V) -> Option<Change> + Clone + Send + 'static,
    ) -> Cache<V>
    where
        K: Kept + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
        V: Kept,
    {
        self.indexed(config, read, |_, _| {}, change)
    }

    /// A cache, and an index of it: `index` is told of each object, and whether it exists.
    fn indexed<K, V>(
        &mut self,
        config: &watcher::Config,
        read: fn(K) -> V,
        index: impl Fn(&V, bool) + Clone + Send + 'static,
        change: impl Fn(&V) -> Option<Change> + Clone + Send + 'static,
    ) -> Cache<V>
    where
        K: Kept + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
        V: Kept,
    {
        let client = self.client;
        let apis: Vec<Api<K>> = if self.namespaces.is_empty() {
            vec![Api::all(client.clone())]
        } else {
            let of = |namespace: &String| Api::namespaced(client.clone(), namespace);
            self.namespaces.iter().map(of).collect()
        };
        let follow = |api| self.follow(api, config.clone(), read, (index.clone(), change.clone()));
        Cache(apis.into_iter().map(follow).collect())
    }

    fn everywhere<K>(
        &mut self,
        config: watcher::Config,
        change: impl Fn(&K) -> Option<Change> + Send + 'static,
    ) -> Store<K>
    where
        K: Kept + DeserializeOwned + Resource<Scope = ClusterResourceScope>,
    {
        let api = Api::all(self.client.clone());
        self.follow(api, config, convert::identity, (|_: &K, _| {}, change))
    }

    fn follow<K, V>(
        &mut self,
        api: Api<K>,
        config: watcher::Config,
        read: fn(K) -> V,
        (index, change): (
            impl Fn(&V, bool) + Send + 'static,
            impl Fn(&V) -> Option<Change> + Send + 'static,
        ),
    ) -> Store<V>
    where
        K: Kept + DeserializeOwned,
        V: Kept,
    {
        let (store, writer) = reflector::store();
        let told = Arc::clone(self.told);
        let following = Box::pin(async move {
            let mut events = watcher(api, config)
                .map_ok(|event| each(event, read))
                .inspect_ok(move |event| match event {
                    Event::Apply(object) | Event::InitApply(object) => index(object, true),
                    Event::Delete(object) => index(object, false),
                    Event::Init | Event::InitDone => {}
                })
                .default_backoff()
                .modify(|object| object.managed_fields_mut().clear())
                .reflect(writer)
                .inspect_ok({
                    let told = Arc::clone(&told);
                    move |event| {
                        if matches!(event, Event::InitDone) {
                            told(Change::Listed);
                        }
                    }
                })
                .touched_objects()
                .boxed();
            while let Some(event) = events.next().await {
                match event {
                    Ok(object) => {
                        if let Some(change) = change(&object) {
                            told(change);
                        }
                    }
                    Err(error) => {
                        warn!(kind = %V::kind(&()), %error, "a watch failed and is opened again");
                    }
                }
            }
        });
        self.following.push((V::kind(&()).into_owned(), following));
        store
    }
}

/// The event with the value that `read` makes of its object.
fn each<K, V>(event: Event<K>, read: fn(K) -> V) -> Event<V> {
    match event {
        Event::Apply(object) => Event::Apply(read(object)),
        Event::Delete(object) => Event::Delete(read(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(read(object)),
        Event::InitDone => Event::InitDone,
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

/// A StatefulSet without its templates, which are most of it. The caches are only asked for its
/// metadata, its replicas, its strategy and its status.
fn without_templates(mut set: StatefulSet) -> StatefulSet {
    if let Some(spec) = &mut set.spec {
        spec.template = PodTemplateSpec::default();
        spec.volume_claim_templates = None;
    }
    set
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
    let in_namespace =
        |object: &PodDisruptionBudget| object.namespace().map(Change::DisruptionBudget);
    let names = Arc::clone(disruption_budget_names);
    let by_namespace = move |object: &PodDisruptionBudget, exists: bool| {
        if let Some(namespace) = object.namespace() {
            names.index().note(namespace, object.name_any(), exists);
        }
    };
    let same_etcd = Arc::new(Index::default());
    let by_cluster_id = {
        let same_etcd = Arc::clone(&same_etcd);
        move |budget: &QuorumDisruptionBudget, exists: bool| {
            if let Some(id) = cluster_id(budget) {
                same_etcd.note(id.clone(), budget.cluster(), exists);
            }
        }
    };
    let watches = Watches {
        budgets: opening.indexed(&any(), or_empty, by_cluster_id, |budget| {
            named(budget).map(Change::Budget)
        }),
        same_etcd,
        stateful_sets: opening.cache(&any(), without_templates, |set| {
            named(set).map(Change::StatefulSet)
        }),
        pods: opening.cache(&members, convert::identity, |pod: &SlimPod| {
            pod.cluster().map(Change::Pod)
        }),
        disruption_budgets: opening.indexed(&any(), convert::identity, by_namespace, in_namespace),
        disruption_budget_names: Arc::clone(disruption_budget_names),
        namespaces: opening.everywhere(any(), |namespace: &Namespace| {
            Some(Change::Namespace {
                name: namespace.name_any(),
                outage: (!is_gated(namespace)).then_some(OutOfForce::NotGated),
            })
        }),
        nodes: opening.everywhere(any(), |node: &Node| Some(Change::Node(node.name_any()))),
        validating: opening.everywhere(ours.clone(), |hooks| {
            let outage = in_force::validating(hooks, None).err();
            Some(Change::Webhooks { outage })
        }),
        mutating: opening.everywhere(ours, |hooks| {
            let outage = in_force::mutating(hooks, None).err();
            Some(Change::Webhooks { outage })
        }),
    };
    (watches, opening.following)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_cached_stateful_set_has_all_but_its_templates() {
        let whole: StatefulSet = serde_json::from_value(json!({
            "metadata": {"name": "etcd", "namespace": "db", "labels": {"app": "etcd"}},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "etcd"}},
                "updateStrategy": {"type": "OnDelete"},
                "template": {"spec": {"containers": [{"name": "etcd", "image": "etcd"}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            },
            "status": {"replicas": 3, "updateRevision": "etcd-1"},
        }))
        .unwrap();
        let cached = without_templates(whole.clone());
        let mut expected = whole.clone();
        let spec = expected.spec.as_mut().unwrap();
        spec.template = PodTemplateSpec::default();
        spec.volume_claim_templates = None;
        assert_ne!(cached, whole);
        assert_eq!(cached, expected);
    }
}
