//! The end of the process, begun by a signal or because a task ended that the process needs.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::serve::Shutdown;
use crate::supervise::{Supervisor, UnexpectedEnds};

/// Time limit for work that outlives an answer. Such work marks a ledger untrusted, which must
/// not be lost.
const WORK: Duration = Duration::from_secs(10);

/// Time limit for tasks that were asked to end, beyond the drain time.
const ENDING: Duration = Duration::from_secs(5);

/// Waits for SIGTERM or SIGINT, and returns its name.
pub(super) async fn termination() -> Result<&'static str> {
    let listen = |kind| signal(kind).context("cannot listen for signals");
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    Ok(tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    })
}

/// Everything that has to end, and the time that each step may take.
pub(super) struct End {
    pub(super) supervisor: Supervisor,
    pub(super) unexpected_ends: UnexpectedEnds,
    pub(super) shutdown: Shutdown,
    /// Cancelled to end every task that does not serve requests.
    pub(super) ending: CancellationToken,
    /// How long requests are still accepted after the process stopped being ready.
    pub(super) leave_time: Duration,
    /// How long requests in flight may take after that.
    pub(super) drain_time: Duration,
}

impl End {
    /// Waits for `signal` or for the unexpected end of a task, and then ends everything in order.
    ///
    /// # Errors
    ///
    /// The task that ended unexpectedly, or the reason why `signal` cannot be waited for.
    pub(super) async fn after(
        mut self,
        signal: impl Future<Output = Result<&'static str>>,
    ) -> Result<()> {
        let why = tokio::select! {
            signal = signal => signal.map(|signal| info!(signal, "shutdown requested")),
            lost = self.unexpected_ends.next() => Err(lost.into()),
        };
        if let Err(error) = &why {
            error!(%error, "shutting down");
        }
        info!("draining: not ready, still answering requests");
        self.shutdown.leaving.cancel();
        tokio::time::sleep(self.leave_time).await;
        self.shutdown.closing.cancel();
        self.ending.cancel();
        let tasks = timeout(self.drain_time + ENDING, self.supervisor.tasks_ended());
        if tasks.await.is_err() {
            warn!("shutting down without a task that has not ended");
        }
        // Requests have been answered, so no new work is started.
        if timeout(WORK, self.supervisor.work_done()).await.is_err() {
            error!(
                unfinished = self.supervisor.working(),
                "shutting down before a ledger was marked untrusted: check the budgets of the latest overrides"
            );
        }
        info!("ended");
        why
    }
}

#[cfg(test)]
mod tests;
