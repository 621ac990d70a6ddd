//! Caches of the objects that controllers act on. They wake tasks, list objects, and show which
//! budgets report the same etcd. No verdict and no settlement depends on them.

mod cache;
mod pod;
pub(super) mod slim;
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
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::in_force::{self, OutOfForce, is_gated};
use crate::api::{QuorumDisruptionBudget, names};
use crate::ledger::{Ledger, LedgerError, Seen};
use crate::observe::{DisruptionBudgetNames, Index, SetSeen, Sights};
use crate::quorum::ClusterRef;
use cache::Part;
pub(super) use cache::{Cache, NeverListed, Place};
pub(super) use pod::{CachedPod, SlimPod};
#[cfg(test)]
pub(super) use stateful_set::cached;
pub(super) use stateful_set::{CachedSet, SlimStatefulSet, StatefulSetState};

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
    /// The budgets, see [`slim::budget`].
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
        let names = self.disruption_budget_names.index().get(namespace);
        let cached = |name: &String| self.disruption_budgets.get(namespace, name);
        names.iter().filter_map(cached).collect()
    }

    /// The clusters whose budgets report the etcd cluster with this id, in order.
    pub(super) fn same_etcd(&self, id: &String) -> Vec<ClusterRef> {
        let mut clusters = self.same_etcd.get(id);
        clusters.retain(|cluster| {
            let budget = self.budgets.of_cluster(cluster);
            budget.as_deref().and_then(cluster_id) == Some(id)
        });
        clusters
    }

    /// The node with that name.
    pub(super) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.named(name)
    }

    /// The answers of these watches about objects that nobody guards. A watch of some namespaces
    /// shows nothing of the others.
    pub(super) fn sights(&self, namespaces: &[String]) -> Sights {
        let covered: BTreeSet<String> = namespaces.iter().cloned().collect();
        let covers =
            Arc::new(move |namespace: &str| covered.is_empty() || covered.contains(namespace));
        let (known, budgets, sets, pods) = (
            self.namespaces.clone(),
            self.budgets.clone(),
            self.stateful_sets.clone(),
            self.pods.clone(),
        );
        let covers_pods = Arc::clone(&covers);
        Sights {
            is_gated: Box::new(move |name| {
                let gated = || known.named(name).is_some_and(|known| is_gated(&known));
                known.is_listed().then(gated)
            }),
            set: Box::new(move |cluster| {
                let is_listed = sets.is_listed() && budgets.is_listed();
                let has_budget = || budgets.of_cluster(cluster).is_some();
                let shows = covers(&cluster.namespace) && is_listed;
                shows.then(|| match sets.of_cluster(cluster).map(|set| set.sight) {
                    _ if has_budget() => SetSeen::Enrolled,
                    None => SetSeen::Missing,
                    Some(sight) if sight.is_enrolled => SetSeen::Enrolled,
                    Some(sight) if sight.opts_out => SetSeen::OptedOut,
                    Some(_) => SetSeen::Plain,
                })
            }),
            is_druids: Box::new(move |namespace, pod| {
                let shows = covers_pods(namespace) && pods.is_listed();
                shows.then(|| {
                    let pod = pods.get(namespace, pod.as_str());
                    pod.is_some_and(|pod| pod.is_druids())
                })
            }),
        }
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
                "definition of QuorumDisruptionBudgets is missing, so every pod of a StatefulSet stays; install it: quorumgate crds | kubectl apply -f -"
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
pub(super) type OnChange = Arc<dyn Fn(Change) + Send + Sync>;

/// An object that a watch can read.
trait Watched: Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K: Clone + Debug + DeserializeOwned + Send + Sync + 'static> Watched for K {}

/// The watches that were opened so far.
struct Opening<'a> {
    client: &'a Client,
    namespaces: &'a [String],
    told: &'a OnChange,
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
        Cache::new(apis.into_iter().map(follow))
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
                slim::trim(object.meta_mut());
                let (place, value) = (Place::from_object(&object), read(object));
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
                        warn!(kind = watched, %error, "watch failed, reopening");
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

/// Opens every watch. The returned futures keep them going; each has the kind that it watches.
pub(super) fn open(
    client: &Client,
    namespaces: &[String],
    webhooks: &str,
    told: &OnChange,
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
        budgets: opening.indexed(&any(), slim::budget, by_cluster_id, |place, _| {
            Some(Change::Budget(place.cluster()))
        }),
        same_etcd,
        stateful_sets: opening.cache(
            &any(),
            |set: SlimStatefulSet| CachedSet::from(set),
            |place, _| Some(Change::StatefulSet(place.cluster())),
        ),
        pods: opening.cache(
            &members,
            |pod: SlimPod| CachedPod::from(pod),
            |place, pod| pod.cluster(place).map(Change::Pod),
        ),
        disruption_budgets: opening.indexed(
            &any(),
            slim::disruption_budget,
            by_namespace,
            |place, _| Some(Change::DisruptionBudget(place.namespace().to_owned())),
        ),
        disruption_budget_names: Arc::clone(disruption_budget_names),
        namespaces: opening.everywhere(any(), slim::namespace, |namespace: &Namespace| {
            Some(Change::Namespace {
                name: namespace.name_any(),
                outage: (!is_gated(namespace)).then_some(OutOfForce::NotGated),
            })
        }),
        nodes: opening.everywhere(any(), slim::node, |node| {
            Some(Change::Node(node.name_any()))
        }),
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
