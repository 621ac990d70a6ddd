//! The keeper of one ledger: settles, warms, suspends. Every replica has one for every cluster, so that nothing a verdict needs
//! waits for a leader.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::warn;

use super::force::{OutOfForce, Standing};
use super::keeper::{RESYNC, Wake};
use super::{Run, settle, warm};
use crate::causes::causes;
use crate::ledger::{LedgerError, Page, Pass, Turnstile};
use crate::observe::ObserveError;
use crate::quorum::ClusterRef;

/// Never busier than this, however many wakes there are.
const PAUSE: Duration = Duration::from_millis(100);
/// After a failure that time may cure.
const AFTER_FAILURE: Duration = Duration::from_secs(3);

/// What kept a step from its end.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("the ledger")]
    Ledger(#[from] LedgerError),
    #[error("the cluster")]
    Observe(#[from] ObserveError),
    #[error("whether the gate is in force")]
    Force(#[source] kube::Error),
}

/// Looks after the ledger of a cluster, until cancelled.
pub(super) async fn keep(run: Arc<Run>, cluster: ClusterRef, wake: Arc<Wake>) {
    loop {
        let lapse = wake.take_lapse();
        let next = match step(&run, &cluster, lapse.why()).await {
            Ok(next) => {
                lapse.forget();
                next.unwrap_or(RESYNC)
            }
            Err(problem) => {
                drop(lapse);
                after(&cluster, &problem)
            }
        };
        tokio::time::sleep(PAUSE).await;
        // A wake or the time: either is a reason to look, and there is nothing to tell them apart for.
        let _ = tokio::time::timeout(next.min(RESYNC), wake.for_ledger()).await;
    }
}

fn after(cluster: &ClusterRef, problem: &Problem) -> Duration {
    match problem {
        Problem::Ledger(error) if error.begin_again() => PAUSE,
        problem => {
            let because = causes(problem);
            warn!(%cluster, because, "could not look after its ledger");
            AFTER_FAILURE
        }
    }
}

async fn step(
    run: &Run,
    cluster: &ClusterRef,
    lapse: Option<&OutOfForce>,
) -> Result<Option<Duration>, Problem> {
    if lapse.is_none() && run.is_quiet(cluster) {
        return Ok(None);
    }
    let ledger = run.ledger();
    let _turn = turn(&run.reading, ledger.turnstile(), cluster).await;
    let Some(page) = ledger.read(cluster).await? else {
        return Ok(None);
    };
    let (page, settled) = settle::step(ledger, page, run.settings.settle_time).await?;
    let warmed = temper(run, page, lapse).await?;
    Ok([settled, warmed].into_iter().flatten().min())
}

/// Waits for the turn at a ledger: judgements queue in front of it, and so does whoever would make them begin again. Where nobody is at it, one
/// of the permits to read is kept for the reading; whoever has to queue gives it back, or the guards of a few busy clusters would hold all of
/// them. After the queue no other is waited for: the judgements behind would wait as well, and there are no more such guards than clusters
/// being judged.
async fn turn<'a>(
    reading: &'a Semaphore,
    turnstile: &Turnstile,
    cluster: &ClusterRef,
) -> (Pass, Option<SemaphorePermit<'a>>) {
    // Nobody closes it.
    let permit = reading.acquire().await.ok();
    let mut pass = pin!(turnstile.enter(cluster));
    let Some(pass) = pass.as_mut().now_or_never() else {
        drop(permit);
        return (pass.await, None);
    };
    (pass, permit)
}

/// Writes down what the ledger's temperature is now.
async fn temper(
    run: &Run,
    page: Page,
    lapse: Option<&OutOfForce>,
) -> Result<Option<Duration>, Problem> {
    let ledger = run.ledger();
    let cached = run.force(&page.cluster.namespace);
    if lapse.is_none() && warm::is_settled(&page, &cached) {
        return Ok(None);
    }
    // A cache may be behind: that the gate is out of force is believed at once, that it is in force only when read just now.
    let force = match &cached {
        Err(_) => cached,
        Ok(_) => force_now(run, &page.cluster.namespace).await?,
    };
    let page = Box::pin(warm::note_force(ledger, page, &force, lapse)).await?;
    if force.is_err() || warm::is_warm(&page) {
        return Ok(None);
    }
    // Who shares its etcd has nothing to do with its temperature.
    let sharing = Some(Vec::new());
    let world = run.observer.world_at_leisure(&page, sharing).await?;
    Ok(warm::note_temperature(ledger, &page, world.temperature()).await?)
}

/// Whether the gate is in force, read just now.
async fn force_now(run: &Run, namespace: &str) -> Result<Result<String, OutOfForce>, Problem> {
    let client = &run.client;
    let hooks = &run.settings.webhook_configuration;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let (namespace, validating, mutating) = tokio::try_join!(
        namespaces.get_opt(namespace),
        validating.get_opt(hooks),
        mutating.get_opt(hooks),
    )
    .map_err(Problem::Force)?;
    let standing = Standing {
        namespace: namespace.as_ref(),
        validating: validating.as_ref(),
        mutating: mutating.as_ref(),
    };
    Ok(standing.in_force_by())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_queues_at_a_busy_ledger_keeps_nobody_from_reading_another() {
        let (reading, turnstile) = (Semaphore::new(1), Turnstile::default());
        let (busy, free) = (ClusterRef::new("db", "busy"), ClusterRef::new("db", "free"));
        let judged = turnstile.enter(&busy).await;
        let mut queues = pin!(turn(&reading, &turnstile, &busy));
        assert!(
            queues.as_mut().now_or_never().is_none(),
            "it jumps the queue"
        );
        let reads = turn(&reading, &turnstile, &free).now_or_never();
        let reads = reads.expect("the other cluster waits as well");
        assert_eq!(
            reading.available_permits(),
            0,
            "what is read is not counted"
        );

        // Those who are judged next wait for this turn to end, so that waits for no permit.
        drop(judged);
        let passed = queues.as_mut().now_or_never();
        let passed = passed.expect("it waits for a permit in front of judgements");
        assert_eq!(turnstile.pending(&busy), 1);
        drop((passed, reads));
        assert_eq!(reading.available_permits(), 1);
    }
}
