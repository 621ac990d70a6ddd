//! The work of the gate without a request: enrolment, settlement of grants, trust in ledgers,
//! reports, rollouts, and repeated deletes for the taint eviction controller.
//!
//! Caches wake the tasks ([`watches`]). Decisions and writes are based on objects that are read
//! then, with one exception: whether another budget reports the same etcd is shown by the caches,
//! and decided for admission by the API server. Loops and webhooks share the ledger and nothing
//! else. Every replica runs all loops. Work that is needed only once is done by the leader
//! ([`lease`]).

mod backups;
mod cluster;
mod companion;
mod condition;
mod defragmentation;
mod deletion;
mod dispatch;
mod enrol;
mod fleet;
mod in_force;
mod initialisations;
mod leadership;
mod lease;
mod ledger_turn;
mod look;
mod member_list;
mod members;
mod not_guarded;
mod operation;
mod operations;
mod recovery;
mod redrive;
mod refills;
mod replacement;
mod report;
mod rollout;
mod run;
mod scale;
mod settle;
mod status;
mod strategy;
pub mod undo;
mod upkeep;
mod volumes;
mod watches;
mod ways;
mod workers;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use kube::Client;
use strum::VariantNames as _;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::clock::Clock;
use crate::judge::Judge;
use crate::observe::Observer;
use crate::plan::{self, Action, Because, WaitingOn};
use crate::quorum::evidence::Unanswered;
use crate::room::Room;
use crate::supervise::Supervisor;
use crate::telemetry::events::Notices;
use crate::telemetry::metrics::Metrics;
use crate::turns::Turns;
use defragmentation::calls::Calls;
use fleet::Fleet;
use lease::Candidate;
use run::Run;
pub use run::Settings;
use watches::Change;

/// The most clusters that are read concurrently. Each needs a dozen requests. A thousand clusters
/// at once, as after a start, would delay the API server's answers to webhook callers, and need a
/// connection for every request.
const READ_AT_ONCE: usize = 16;

/// The most of them in one namespace.
const OF_A_NAMESPACE: usize = 8;

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
    for step in plan::scale::Step::VARIANTS {
        metrics.expect_scale_step(step);
    }
    for step in plan::recovery::Step::VARIANTS {
        metrics.expect_recovery_step(step);
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
    let told: watches::OnChange = Arc::new({
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
    observer.see_by(watches.sights(&settings.namespaces));
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
        calls: Calls::default(),
        supervisor: supervisor.clone(),
        ending: cancel.clone(),
        client,
        observer,
        judge,
        own_username,
        clock,
        metrics,
        events,
        fleet: Fleet::new(settings.most_rollouts),
        settings,
        watches,
        leading,
        strategies: Arc::default(),
        reading: Turns::new(READ_AT_ONCE, OF_A_NAMESPACE),
        objects: Room::default(),
    });
    let synced = run.watches.synced(run.observer.ledger());
    let Some(synced) = cancel.run_until_cancelled(synced).await else {
        return Ok(());
    };
    synced?;
    info!(budgets = run.watches.budgets.len(), "watches synced");
    ready.send_replace(true);
    let strategies = strategy::run(Arc::clone(&run), Arc::clone(&run.strategies));
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
