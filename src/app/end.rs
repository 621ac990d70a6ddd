//! How the process ends: asked by a signal, or because a task ended that it cannot do without.

use std::future::Future;
use std::time::Duration;

use anyhow::Result;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::serve::Shutdown;
use crate::supervise::{Losses, Supervisor};

/// How long what outlives an answer may take: that a ledger is turned cold must not be lost.
const WORK: Duration = Duration::from_secs(10);

/// How long tasks that were asked to end may take, beyond the time that requests in flight have.
const ENDING: Duration = Duration::from_secs(5);

/// Everything that has to end, in order.
pub(super) struct End {
    pub(super) supervisor: Supervisor,
    pub(super) losses: Losses,
    pub(super) shutdown: Shutdown,
    /// Asks every task to end that has nothing to do with requests.
    pub(super) ending: CancellationToken,
    /// How long requests are still taken although the process is not ready any more.
    pub(super) leave_time: Duration,
    /// How long requests in flight may take after that.
    pub(super) drain_time: Duration,
}

impl End {
    /// Waits for a signal or for a task's end, and ends everything then.
    ///
    /// # Errors
    /// The task that ended, before the signal or after it, or that no signal can be waited for.
    pub(super) async fn after(
        mut self,
        signal: impl Future<Output = Result<&'static str>>,
    ) -> Result<()> {
        let why = tokio::select! {
            signal = signal => signal.map(|signal| info!(signal, "asked to end")),
            lost = self.losses.next() => Err(lost.into()),
        };
        if let Err(error) = &why {
            error!(%error, "this replica ends");
        }
        info!("leaving: no longer ready, requests are still answered");
        self.shutdown.leaving.cancel();
        tokio::time::sleep(self.leave_time).await;
        self.shutdown.closing.cancel();
        self.ending.cancel();
        let tasks = timeout(self.drain_time + ENDING, self.supervisor.tasks_ended());
        if tasks.await.is_err() {
            warn!("a task that was asked to end has not: the process ends without it");
        }
        // Nobody gives new work: requests are answered.
        if timeout(WORK, self.supervisor.work_done()).await.is_err() {
            error!(
                unfinished = self.supervisor.working(),
                "the process ends before it could turn a ledger cold: what passed without a grant may not be known there; look at the budgets of what was overridden last"
            );
        }
        info!("ended");
        why
    }
}

#[cfg(test)]
mod tests;
