//! The work of the gate without a request: enrolment, settlement of grants, trust in ledgers,
//! reports, rollouts, and repeated deletes for the taint eviction controller.
//!
//! Caches wake the tasks ([`watches`]). Decisions and writes are based on objects that are read
//! then, with one exception: whether another budget reports the same etcd is shown by the caches,
//! and decided for admission by the API server. Loops and webhooks share the ledger and nothing
//! else. Every replica runs all loops. Work that is needed only once is done by the leader
//! ([`lease`]).

mod backups;
mod companion;
mod condition;
mod defragmentation;
mod dispatch;
mod enrol;
mod in_force;
mod lease;
mod ledger_worker;
mod look;
mod members;
mod not_guarded;
mod redrive;
mod replacement;
mod report;
mod rollout;
mod status_worker;
mod strategy;
pub mod undo;
mod volumes;
mod watches;
mod ways;
mod workers;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use strum::VariantNames as _;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::api::Enforcement;
use crate::clock::Clock;
use crate::features::Features;
use crate::judge::Judge;
use crate::ledger::{Ledger, Page, trust_record};
use crate::observe::Observer;
use crate::plan::{self, Action, Because, WaitingOn};
use crate::quorum::ClusterRef;
use crate::quorum::evidence::Unanswered;
use crate::supervise::Supervisor;
use crate::telemetry::events::Notices;
use crate::telemetry::metrics::Metrics;
use in_force::{OutOfForce, WebhookSetup};
use lease::{Candidate, Leading};
use watches::{Change, Watches};

/// The name of the gate as a writer of objects, and the value of [`names::MANAGED_BY`] on objects
/// that it created.
///
/// [`names::MANAGED_BY`]: crate::api::names::MANAGED_BY
const MANAGER: &str = "quorumgate";

/// The most clusters that are read concurrently. Each needs a dozen requests. A thousand clusters
/// at once, as after a start, would delay the API server's answers to webhook callers, and need a
/// connection for every request.
const READ_AT_ONCE: usize = 16;

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
    /// The features that are on.
    pub features: Features,
}

/// The parts that the loops use.
pub struct Context {
    /// The client of the Kubernetes API.
    pub client: Client,
    /// The reader of clusters and ledgers. Shared with the judge.
    pub observer: Arc<Observer>,
    /// The judge, which permits rollout steps as it permits everything else. Shared with the
    /// webhooks.
    pub judge: Judge,
    /// The username under which the API server knows this process.
    pub own_username: String,
    /// The clock.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The sender of Events.
    pub events: Arc<dyn Notices>,
    /// The settings of the loops.
    pub settings: Settings,
    /// Told whether this replica leads.
    pub leads: watch::Sender<bool>,
    /// Notified when a webhook configuration changes.
    pub configurations: Arc<Notify>,
}

/// The state that all workers share.
struct Run {
    client: Client,
    observer: Arc<Observer>,
    judge: Judge,
    own_username: String,
    clock: Clock,
    metrics: Arc<Metrics>,
    events: Arc<dyn Notices>,
    settings: Settings,
    watches: Watches,
    leading: Leading,
    /// The StatefulSets that the controller of update strategies has to check.
    strategies: Arc<strategy::Unchecked>,
    /// The permits for clusters that are read in the background.
    reading: Arc<Semaphore>,
    /// The name of this process in the grants of its defragmentations.
    me: String,
    /// The calls of this process that make members defragment.
    calls: defragmentation::Calls,
    /// The supervisor of work that outlives a worker.
    supervisor: Supervisor,
    /// Cancelled when the process ends.
    ending: CancellationToken,
}

impl Run {
    fn ledger(&self) -> &Ledger {
        self.observer.ledger()
    }

    /// Whether the gate is in force in a namespace, by the caches.
    fn force(&self, namespace: &str) -> Result<String, OutOfForce> {
        WebhookSetup {
            namespace: self.watches.namespace(namespace).as_deref(),
            validating: self.watches.validating.any().as_deref(),
            mutating: self.watches.mutating.any().as_deref(),
        }
        .in_force_by()
    }

    /// Whether a ledger needs no write, by the caches: no grant is open, and the ledger is trusted
    /// under the present webhooks.
    fn is_quiet(&self, cluster: &ClusterRef) -> bool {
        let Some(budget) = self.watches.budgets.of(cluster) else {
            return false;
        };
        let force = self.force(&cluster.namespace);
        let status = budget.status.as_ref();
        status.is_none_or(|status| status.grants.is_empty())
            && trust_record(&budget).is_settled(force.as_deref().ok())
    }

    /// The other clusters that report the same etcd, by the cache of budgets. `None` if the cache
    /// does not hold all namespaces. A verdict asks the API server instead (rule 8).
    fn sharing(&self, page: &Page) -> Option<Vec<ClusterRef>> {
        if !self.settings.namespaces.is_empty() {
            return None;
        }
        let Some(id) = page.status().and_then(|status| status.cluster_id.as_ref()) else {
            return Some(Vec::new());
        };
        let mut others = self.watches.same_etcd(id);
        others.retain(|other| *other != page.cluster);
        Some(others)
    }

    /// Whether the status of a cluster shows a state whose duration a rule needs.
    fn is_uneasy(&self, cluster: &ClusterRef) -> bool {
        let budget = self.watches.budgets.of(cluster);
        let status = budget.as_ref().and_then(|budget| budget.status.as_ref());
        status.is_some_and(status_worker::shows_unease)
    }
}

/// Shows at zero what has not happened yet.
fn expect(metrics: &Metrics) {
    for action in Action::VARIANTS {
        for because in Because::VARIANTS {
            metrics.rollout.expect_step(action, because);
        }
    }
    for reason in WaitingOn::VARIANTS {
        metrics.rollout.expect_wait(reason);
    }
    for reason in Unanswered::VARIANTS {
        metrics.expect_probe_failure(reason);
    }
    for step in plan::replacement::Step::VARIANTS {
        metrics.expect_replacement_step(step);
    }
}

/// Runs every loop until cancelled, each as a task of the supervisor. `ready` becomes true when the
/// watches have listed all objects.
///
/// # Errors
///
/// Fails if a watch ends before it has listed all objects.
pub async fn run(
    context: Context,
    ready: watch::Sender<bool>,
    supervisor: Supervisor,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let Context {
        client,
        observer,
        judge,
        own_username,
        clock,
        metrics,
        events,
        settings,
        leads,
        configurations,
    } = context;
    expect(&metrics);
    let (changes, incoming) = mpsc::unbounded_channel();
    let told: watches::Told = Arc::new({
        let ledger = observer.ledger().clone();
        move |change: Change| {
            // Verdicts go by it from now on, however long it takes until it is recorded.
            change.note_outage(ledger.seen());
            if matches!(change, Change::Webhooks { .. }) {
                configurations.notify_one();
            }
            // The receiver is gone while the process ends.
            let _ = changes.send(change);
        }
    });
    let (watches, following) = watches::open(
        &client,
        &settings.namespaces,
        &settings.webhook_configuration,
        &told,
        observer.disruption_budget_names(),
    );
    observer.ledger().seen().watch_webhooks({
        let (validating, mutating) = (watches.validating.clone(), watches.mutating.clone());
        Box::new(move || in_force::identity_in_force(&*validating.any()?, &*mutating.any()?))
    });
    for (kind, watch) in following {
        supervisor.spawn_endless(format!("watch of {kind}"), cancel.clone(), watch);
    }
    let (candidate, leading) = Candidate::new(
        client.clone(),
        &settings.lease_namespace,
        &settings.lease_name,
        &settings.identity,
        clock.clone(),
        Arc::clone(&metrics),
        leads,
    );
    let election = candidate.run(cancel.child_token());
    supervisor.spawn("leader election", cancel.clone(), election);
    let me = format!("{}/{:016x}", settings.identity, chance());
    let run = Arc::new(Run {
        me,
        calls: defragmentation::Calls::default(),
        supervisor: supervisor.clone(),
        ending: cancel.clone(),
        client,
        observer,
        judge,
        own_username,
        clock,
        metrics,
        events,
        settings,
        watches,
        leading,
        strategies: Arc::default(),
        reading: Arc::new(Semaphore::new(READ_AT_ONCE)),
    });
    let synced = run.watches.synced(run.observer.ledger());
    let Some(synced) = cancel.run_until_cancelled(synced).await else {
        return Ok(());
    };
    synced?;
    info!(
        budgets = run.watches.budgets.len(),
        "the watches have synced"
    );
    ready.send_replace(true);
    let strategies = strategy::keep(Arc::clone(&run), Arc::clone(&run.strategies));
    supervisor.spawn_endless("update strategies", cancel.clone(), strategies);
    for (kind, watch) in not_guarded::watches(&run) {
        supervisor.spawn_endless(format!("watch of labelled {kind}s"), cancel.clone(), watch);
    }
    dispatch::until_cancelled(&run, incoming, &supervisor, &cancel).await;
    Ok(())
}

/// A number that no other process has: a container that is started again has the name of its pod.
fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests;
