//! What the gate does without being asked: enrols, settles, warms, reports, and asks again for what it once refused.
//!
//! Caches wake the keepers ([`watches`]); whatever is decided or written rests on what was read just now, but for whether another budget
//! reports the same etcd, which is shown by the caches and decided by the API server. Loops and webhooks meet in the ledger and nowhere
//! else. Every replica runs all of it; what only needs doing once, the leader does ([`lease`]).

mod companion;
mod condition;
mod dispatch;
mod enrol;
mod force;
mod guard;
mod keeper;
mod lease;
mod look;
mod redrive;
mod report;
mod rollout;
mod settle;
mod slim_pod;
mod status;
mod stopwatches;
mod strategy;
mod warm;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

pub use stopwatches::Stopwatches;

use crate::api::Enforcement;
use crate::api::QuorumDisruptionBudget;
use crate::clock::Clock;
use crate::etcd::Prober;
use crate::features::Features;
use crate::judge::Judge;
use crate::ledger::{Ledger, Page, WHILE_IT_WARNS};
use crate::observe::Observer;
use crate::quorum::ClusterRef;
use crate::supervise::Supervisor;
use crate::telemetry::events::Notices;
use crate::telemetry::metrics::Metrics;
use force::{OutOfForce, Standing};
use lease::{Candidate, Leading};
use watches::{Change, Watches};

/// So many clusters are read at one time. Each takes a dozen requests: a thousand clusters at once, as after a start, would keep the API
/// server from answering those who wait, and take a connection for every request.
const READ_AT_ONCE: usize = 16;

/// What the loops are told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The namespaces to look after; empty for all.
    pub namespaces: Vec<String>,
    /// The name of both webhook configurations.
    pub webhook_configuration: String,
    /// The gate's own namespace, where its Lease is. Nothing is ever enrolled there.
    pub lease_namespace: String,
    /// The name of its Lease.
    pub lease_name: String,
    /// What this replica calls itself in the Lease.
    pub identity: String,
    /// How long a request may live, generously: see the ledger.
    pub settle_time: Duration,
    /// What new budgets say of enforcement.
    pub enforcement: Enforcement,
    /// Which features are on.
    pub features: Features,
}

/// What the loops stand on.
pub struct Context {
    /// Reads and writes Kubernetes.
    pub client: Client,
    /// Reads clusters, and the ledgers. Shared with the judge.
    pub observer: Arc<Observer>,
    /// Asks etcd.
    pub prober: Prober,
    /// Permits rollout steps, as it permits everything. Shared with the webhooks.
    pub judge: Judge,
    /// The username under which the API server knows this process.
    pub own_username: String,
    /// What the observers have watched. Shared with the judge.
    pub stopwatches: Arc<Stopwatches>,
    /// Tells the time.
    pub clock: Clock,
    /// Shows numbers.
    pub metrics: Arc<Metrics>,
    /// Tells people.
    pub events: Arc<dyn Notices>,
    /// What the loops are told.
    pub settings: Settings,
}

/// Everything that the keepers share.
struct Run {
    client: Client,
    observer: Arc<Observer>,
    prober: Prober,
    judge: Judge,
    own_username: String,
    stopwatches: Arc<Stopwatches>,
    clock: Clock,
    metrics: Arc<Metrics>,
    events: Arc<dyn Notices>,
    settings: Settings,
    watches: Watches,
    leading: Leading,
    /// Wakes who looks after update strategies.
    strategies: Arc<Notify>,
    /// One permit per cluster that is being read without anybody waiting for it.
    reading: Semaphore,
}

impl Run {
    fn ledger(&self) -> &Ledger {
        self.observer.ledger()
    }

    /// Whether the gate is in force in a namespace, by the caches.
    fn force(&self, namespace: &str) -> Result<String, OutOfForce> {
        Standing {
            namespace: self.watches.namespace(namespace).as_deref(),
            validating: self.watches.validating.state().first().map(AsRef::as_ref),
            mutating: self.watches.mutating.state().first().map(AsRef::as_ref),
        }
        .in_force_by()
    }

    /// Whether a ledger needs nothing, by the caches: no permission is open, and it is warm under the webhooks that stand.
    fn is_quiet(&self, cluster: &ClusterRef) -> bool {
        let ClusterRef { namespace, name } = cluster;
        let Some(budget) = self.watches.budgets.get(namespace, name) else {
            return false;
        };
        let force = self.force(namespace);
        let Some(status) = &budget.status else {
            return false;
        };
        let ledger = &status.ledger;
        let warm = ledger.warm && ledger.budget_uid == budget.metadata.uid;
        let settled = match force {
            Ok(_) if budget.only_warns() => {
                ledger.suspended && ledger.cold_because.as_deref() == Some(WHILE_IT_WARNS)
            }
            Ok(by) => warm && ledger.in_force_by == Some(by),
            Err(_) => ledger.suspended,
        };
        settled && status.grants.is_empty()
    }

    /// The other clusters that report the same etcd, by the cache of budgets; `None` where it does not hold those of every namespace. A
    /// verdict asks the API server (rule 8).
    fn sharing(&self, page: &Page) -> Option<Vec<ClusterRef>> {
        if !self.settings.namespaces.is_empty() {
            return None;
        }
        let Some(id) = page.status().and_then(|status| status.cluster_id.as_ref()) else {
            return Some(Vec::new());
        };
        let same = |budget: &QuorumDisruptionBudget| {
            let status = budget.status.as_ref();
            status.and_then(|status| status.cluster_id.as_ref()) == Some(id)
        };
        let sharing = self.watches.budgets.filter(same);
        let others = sharing.iter().map(|budget| budget.cluster());
        let mut others: Vec<_> = others.filter(|other| *other != page.cluster).collect();
        // A cache knows no order, and the first is the one that is named.
        others.sort();
        Some(others)
    }

    /// Whether a cluster shows something that a rule wants to have seen for a while.
    fn is_uneasy(&self, cluster: &ClusterRef) -> bool {
        let budget = self.watches.budgets.get(&cluster.namespace, &cluster.name);
        let status = budget.as_ref().and_then(|budget| budget.status.as_ref());
        status.is_some_and(status::shows_unease)
    }
}

/// Runs every loop until cancelled, each a task of the supervisor. `ready` turns true when the watches have listed what there is.
///
/// # Errors
/// When a watch ended before it had listed what there is.
pub async fn run(
    context: Context,
    ready: watch::Sender<bool>,
    supervisor: Supervisor,
    cancel: CancellationToken,
) -> anyhow::Result<()> {
    let Context {
        client,
        observer,
        prober,
        judge,
        own_username,
        stopwatches,
        clock,
        metrics,
        events,
        settings,
    } = context;
    let (changes, incoming) = mpsc::unbounded_channel();
    let told: watches::Told = Arc::new({
        let ledger = observer.ledger().clone();
        move |change: Change| {
            // Verdicts know it from now on, however long it takes until somebody has written it down.
            change.note_lapse(ledger.seen());
            // Nobody listens any more while the process ends.
            let _ = changes.send(change);
        }
    });
    let (watches, following) = watches::open(
        &client,
        &settings.namespaces,
        &settings.webhook_configuration,
        &told,
    );
    observer.ledger().seen().hear_of_webhooks({
        let (validating, mutating) = (watches.validating.clone(), watches.mutating.clone());
        Box::new(move || {
            force::identity_in_force(
                validating.state().first()?.as_ref(),
                mutating.state().first()?.as_ref(),
            )
        })
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
    );
    let election = candidate.run(cancel.child_token());
    supervisor.spawn("leader election", cancel.clone(), election);
    let run = Arc::new(Run {
        client,
        observer,
        prober,
        judge,
        own_username,
        stopwatches,
        clock,
        metrics,
        events,
        settings,
        watches,
        leading,
        strategies: Arc::default(),
        reading: Semaphore::new(READ_AT_ONCE),
    });
    let synced = run.watches.synced(run.observer.ledger());
    let Some(synced) = cancel.run_until_cancelled(synced).await else {
        return Ok(());
    };
    synced.context("a watch ended before it had listed what there is")?;
    info!(
        budgets = run.watches.budgets.len(),
        "the watches have synced"
    );
    ready.send_replace(true);
    let strategies = strategy::keep(Arc::clone(&run), Arc::clone(&run.strategies));
    supervisor.spawn_endless("update strategies", cancel.clone(), strategies);
    dispatch::until_cancelled(&run, incoming, &supervisor, &cancel).await;
    Ok(())
}

#[cfg(test)]
mod tests;
