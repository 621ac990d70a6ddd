//! The loss of the ledger's trust after a request passed without a grant.
//!
//! The replica that answered knows of the loss at once. The others know of it from a write, which
//! happens after the answer: an override does not wait for a ledger that could not be written a
//! moment ago.

use std::time::Duration;

use backon::{ExponentialBuilder, Retryable as _};
use futures::FutureExt as _;

use super::decision::{Answer, Ground};
use super::deps::JudgeDeps;
use super::question::DryRun;
use crate::ledger::{Ledger, LedgerError};
use crate::quorum::{ClusterRef, TrustEvent};

/// The first pause before a write is tried again. A write mostly fails because a judgement wrote
/// first, and a judgement takes longer than this.
const FIRST_PAUSE: Duration = Duration::from_millis(10);

/// Starts the write that an answer makes necessary.
pub(super) fn follow_up(deps: &JudgeDeps, answer: &Answer, dry_run: DryRun) {
    let (Some(cluster), Ok(allowed)) = (answer.cluster.clone(), &answer.decision) else {
        return;
    };
    let is_ungranted = match allowed.ground() {
        Ground::Ungranted | Ground::Warned(_) => dry_run == DryRun::No,
        Ground::Waived(_) | Ground::Recorded(..) | Ground::DryRun(_) | Ground::Unrecorded => false,
    };
    if !is_ungranted {
        return;
    }
    deps.ledger().seen().note_ungranted(&cluster);
    let ledger = deps.ledger().clone();
    (deps.spawn)(Box::new(move || {
        distrust(ledger.clone(), cluster.clone()).boxed()
    }));
}

/// Records that a disruption passed without a grant.
pub(super) async fn distrust(ledger: Ledger, cluster: ClusterRef) {
    let attempt = || async {
        match ledger.read(&cluster).await? {
            Some(page) => {
                let ungranted = ledger.note_trust(&page, &[TrustEvent::Ungranted]);
                ungranted.await.map(drop)
            }
            None => Ok(()),
        }
    };
    if let Err(error) = Box::pin(until_written(attempt)).await {
        tracing::error!(%cluster, error = %error, "cannot record that the ledger is not trusted");
    }
}

/// Tries until the write succeeds, the budget is gone, or nobody can write it (a budget that
/// replaces it starts without trust). The attempts do not queue for the lock: a judgement that
/// loses its race to one of them starts again with a ledger that is not trusted, as it should.
async fn until_written<F, W>(attempt: F) -> Result<(), LedgerError>
where
    F: FnMut() -> W,
    W: Future<Output = Result<(), LedgerError>>,
{
    let pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_jitter()
        .without_max_times();
    attempt
        .retry(pauses)
        .when(|error| !error.is_lasting())
        .await
}
