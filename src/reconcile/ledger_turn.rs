//! The turn at the ledger of a cluster, on every replica: permissions to delete settle, and the
//! record of trust follows what this replica sees.
//!
//! Every replica does that by its own clock, so that nothing on which a verdict rests waits for a
//! leader. No member is asked.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tracing::warn;

use super::in_force::{OutOfForce, WebhookSetup};
use super::run::Run;
use super::settle;
use super::workers::{RESYNC, Wake};
use crate::causes::causes;
use crate::ledger::{Ledger, LedgerError, LedgerGuard, LedgerLocks, Page};
use crate::named;
use crate::quorum::{ClusterRef, Trust, TrustEvent};
use crate::turns::{Turn, Turns};

/// The shortest time between two turns, however many wakes there are.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// The pause after a failure that time may cure.
const AFTER_FAILURE: Duration = Duration::from_secs(3);

/// The reason why a step did not get to its end.
#[derive(Debug, thiserror::Error)]
enum LedgerTurnError {
    #[error("the ledger")]
    Ledger(#[from] LedgerError),
    #[error("whether the gate is in force")]
    Force(#[source] kube::Error),
}

/// Takes the turn, and records an outage that the watches have shown. Returns when to take the next
/// if nothing wakes before.
pub(super) async fn take(run: &Run, cluster: &ClusterRef, wake: &Wake) -> Duration {
    let outage = wake.take_outage();
    match turn(run, cluster, outage.why()).await {
        Ok(next) => {
            outage.forget();
            next.unwrap_or(RESYNC).min(RESYNC)
        }
        Err(LedgerTurnError::Ledger(error)) if error.begin_again() => PAUSE,
        Err(problem) => {
            let because = causes(&problem);
            warn!(%cluster, because, "cannot look after the ledger");
            AFTER_FAILURE
        }
    }
}

/// Waits for the turn at the ledger, and takes it. Returns when to look again if nothing wakes
/// before.
async fn turn(
    run: &Run,
    cluster: &ClusterRef,
    outage: Option<&OutOfForce>,
) -> Result<Option<Duration>, LedgerTurnError> {
    if outage.is_none() && run.is_quiet(cluster) {
        return Ok(None);
    }
    // Once a minute the workers of thousands of clusters wait here together. What a step needs is
    // allocated when its turn has come.
    let _turn = Box::pin(pass(&run.reading, run.ledger().locks(), cluster)).await;
    let step = Box::pin(step(run, cluster, outage));
    run.objects.account(step).await
}

/// Writes what there is to write. Returns when to look again if nothing wakes before.
async fn step(
    run: &Run,
    cluster: &ClusterRef,
    outage: Option<&OutOfForce>,
) -> Result<Option<Duration>, LedgerTurnError> {
    let ledger = run.ledger();
    let Some(page) = ledger.read(cluster).await? else {
        return Ok(None);
    };
    let settle_time = run.settings.settle_time;
    let (page, settled) = settle::deletes(ledger, &run.metrics, page, settle_time).await?;
    let trusted = Box::pin(look_after_trust(run, page, outage)).await?;
    Ok([settled, trusted].into_iter().flatten().min())
}

/// Waits for the turn at a ledger. Judgements queue in front of it, and so does whoever would make
/// them begin again.
///
/// Where nobody is at the ledger, one of the permits to read is kept for the reading. Whoever has
/// to queue gives it back, or the guards of a few busy clusters would hold all of them. After the
/// queue no permit is waited for: the judgements behind would wait as well, and there are no more
/// such guards than clusters that are being judged.
async fn pass(
    reading: &Turns,
    locks: &LedgerLocks,
    cluster: &ClusterRef,
) -> (LedgerGuard, Option<Turn>) {
    let permit = reading.take(&cluster.namespace).await;
    let mut pass = pin!(locks.enter(cluster));
    let Some(pass) = pass.as_mut().now_or_never() else {
        drop(permit);
        return (pass.await, None);
    };
    (pass, Some(permit))
}

/// Records whether the gate is in force, and whether the ledger is trusted. Returns when to look
/// again if nothing wakes before.
async fn look_after_trust(
    run: &Run,
    page: Page,
    outage: Option<&OutOfForce>,
) -> Result<Option<Duration>, LedgerTurnError> {
    let ledger = run.ledger();
    let cached = run.force(&page.cluster.namespace);
    if outage.is_none() && page.trust_record().is_settled(cached.as_deref().ok()) {
        return Ok(None);
    }
    // A cache may be behind. That the gate is out of force is believed at once; that it is in force
    // only if it was read just now.
    let force = match &cached {
        Err(_) => cached,
        Ok(_) => force_now(run, &page.cluster.namespace).await?,
    };
    let page = Box::pin(note_force(ledger, page, &force, outage)).await?;
    if force.is_err() || page.trust_record().is_trusted() {
        return Ok(None);
    }
    Ok(note_watched(ledger, &page, run.settings.settle_time).await?)
}

/// Records whether the gate is in force, and that it was not at some moment since the last record.
/// Returns the page afterwards.
async fn note_force(
    ledger: &Ledger,
    page: Page,
    force: &Result<String, OutOfForce>,
    outage: Option<&OutOfForce>,
) -> Result<Page, LedgerError> {
    let because = force.as_ref().err().or(outage).map(ToString::to_string);
    let because = because.as_deref();
    let out = because.map(|because| TrustEvent::OutOfForce { because });
    let history = &ledger.seen().webhook_history();
    let by = force.as_ref().ok();
    let back = by.map(|by| TrustEvent::InForce { by, history });
    let events: Vec<_> = out.into_iter().chain(back).collect();
    let noted = Box::pin(ledger.note_trust(&page, &events)).await?;
    Ok(noted.unwrap_or(page))
}

/// Records that the ledger is trusted. Returns when to look again if it is not.
async fn note_watched(
    ledger: &Ledger,
    page: &Page,
    settle_time: Duration,
) -> Result<Option<Duration>, LedgerError> {
    match ledger.trust(page, settle_time) {
        Trust::Trusted => {
            ledger.note_trust(page, &[TrustEvent::Watched]).await?;
            Ok(None)
        }
        Trust::Untrusted { remaining } => Ok(remaining),
    }
}

/// Whether the gate is in force, read just now.
async fn force_now(
    run: &Run,
    namespace: &str,
) -> Result<Result<String, OutOfForce>, LedgerTurnError> {
    let client = &run.client;
    let hooks = &run.settings.webhook_configuration;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let (namespace, validating, mutating) = tokio::try_join!(
        named::get_opt(&namespaces, named::OF_OBJECT, namespace),
        named::get_opt(&validating, named::OF_OBJECT, hooks),
        named::get_opt(&mutating, named::OF_OBJECT, hooks),
    )
    .map_err(LedgerTurnError::Force)?;
    let setup = WebhookSetup {
        namespace: namespace.as_ref(),
        validating: validating.as_ref(),
        mutating: mutating.as_ref(),
    };
    Ok(setup.in_force_by())
}

#[cfg(test)]
mod tests;
