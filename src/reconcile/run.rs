//! The parts and the settings that all loops share.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::defragmentation::calls::Calls;
use super::fleet::Fleet;
use super::in_force::{OutOfForce, WebhookSetup};
use super::lease::Leading;
use super::strategy::unchecked::Unchecked;
use super::watches::{Watches, slim};
use crate::api::Enforcement;
use crate::clock::Clock;
use crate::features::Features;
use crate::judge::Judge;
use crate::ledger::{Ledger, Page, trust_record};
use crate::observe::Observer;
use crate::quorum::ClusterRef;
use crate::room::Room;
use crate::supervise::Supervisor;
use crate::telemetry::events::Notices;
use crate::telemetry::metrics::Metrics;
use crate::turns::Turns;

/// The name of the gate as a writer of objects, and the value of [`names::MANAGED_BY`] on objects
/// that it created.
///
/// [`names::MANAGED_BY`]: crate::api::names::MANAGED_BY
pub(super) const MANAGER: &str = "quorumgate";

/// The settings of the loops.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespaces in which the gate acts. Empty for all.
    pub namespaces: Vec<String>,
    /// The name of both webhook configurations.
    pub webhook_configuration: String,
    /// The gate's own namespace, where its Lease is. Nothing is ever enrolled there.
    pub lease_namespace: String,
    /// The name of the gate's Lease.
    pub lease_name: String,
    /// The identity of this replica in the Lease.
    pub identity: String,
    /// The settle time: a generous upper bound for the life of an API request. See the ledger.
    pub settle_time: Duration,
    /// The enforcement of new budgets.
    pub enforcement: Enforcement,
    /// The most clusters of one namespace that are enrolled.
    pub most_clusters: usize,
    /// The most rollouts that go on at one time, over all clusters. `None` for any number.
    pub most_rollouts: Option<NonZeroUsize>,
    /// The features that are on.
    pub features: Features,
}

/// The namespaces in which the gate acts.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// The namespaces that were named. Empty for all.
    pub(super) named: Vec<String>,
    /// The gate's own namespace.
    pub(super) own: String,
    /// The most clusters of one namespace that are enrolled.
    pub(super) most: usize,
}

impl Bounds {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            named: settings.namespaces.clone(),
            own: settings.lease_namespace.clone(),
            most: settings.most_clusters,
        }
    }

    /// Whether StatefulSets may be enrolled in this namespace. Never in `kube-system` and never in
    /// the gate's own: the gate must not stand between Kubernetes and itself, nor between itself
    /// and its own pods.
    pub(super) fn contain(&self, namespace: &str) -> bool {
        let asked_for = self.named.is_empty() || self.named.iter().any(|name| name == namespace);
        asked_for && namespace != "kube-system" && namespace != self.own
    }
}

/// The state that all loops share.
pub(super) struct Run {
    pub(super) client: Client,
    pub(super) observer: Arc<Observer>,
    pub(super) judge: Judge,
    pub(super) own_username: String,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<Metrics>,
    pub(super) events: Arc<dyn Notices>,
    pub(super) settings: Settings,
    pub(super) watches: Watches,
    pub(super) leading: Leading,
    /// The StatefulSets that the controller of update strategies has to check.
    pub(super) strategies: Arc<Unchecked>,
    /// The rollouts of all clusters.
    pub(super) fleet: Fleet,
    /// The permits for clusters that are read in the background.
    pub(super) reading: Turns,
    /// The memory of the objects that are read in the background.
    pub(super) objects: Room,
    /// The name of this process in the grants of its defragmentations.
    pub(super) me: String,
    /// The calls of this process that make members defragment.
    pub(super) calls: Calls,
    /// The supervisor of work that outlives a worker.
    pub(super) supervisor: Supervisor,
    /// Cancelled when the process ends.
    pub(super) ending: CancellationToken,
}

impl Run {
    pub(super) fn ledger(&self) -> &Ledger {
        self.observer.ledger()
    }

    /// Whether the gate is in force in a namespace, by the caches.
    pub(super) fn force(&self, namespace: &str) -> Result<String, OutOfForce> {
        WebhookSetup {
            namespace: self.watches.namespace(namespace).as_deref(),
            validating: self.watches.validating.any().as_deref(),
            mutating: self.watches.mutating.any().as_deref(),
        }
        .in_force_by()
    }

    /// Whether a ledger needs no write, by the caches: no grant is open, and the ledger is trusted
    /// under the present webhooks.
    pub(super) fn is_quiet(&self, cluster: &ClusterRef) -> bool {
        let Some(budget) = self.watches.budgets.of_cluster(cluster) else {
            return false;
        };
        let force = self.force(&cluster.namespace);
        let status = budget.status.as_ref();
        status.is_none_or(|status| status.grants.is_empty())
            && trust_record(&budget).is_settled(force.as_deref().ok())
    }

    /// The other clusters that report the same etcd, by the cache of budgets. `None` if the cache
    /// does not hold all namespaces. A verdict asks the API server instead (rule 8).
    pub(super) fn sharing(&self, page: &Page) -> Option<Vec<ClusterRef>> {
        if !self.settings.namespaces.is_empty() {
            return None;
        }
        let others = self.same_etcd(page);
        // Whether they guard members of this one, only their whole budgets say.
        others.is_empty().then_some(others)
    }

    /// The other clusters whose budgets report the same cluster id, such as a copy of the data.
    pub(super) fn same_etcd(&self, page: &Page) -> Vec<ClusterRef> {
        let id = page.status().and_then(|status| status.cluster_id.as_ref());
        let mut others = id.map_or_else(Vec::new, |id| self.watches.same_etcd(id));
        others.retain(|other| *other != page.cluster);
        others
    }

    /// Whether the status of a cluster shows a state whose duration a rule needs.
    pub(super) fn is_uneasy(&self, cluster: &ClusterRef) -> bool {
        let budget = self.watches.budgets.of_cluster(cluster);
        let status = budget.as_ref().and_then(|budget| budget.status.as_ref());
        status.is_some_and(slim::shows_unease)
    }
}
