//! Supervision of tasks. Every task of the process is started here.
//!
//! A task that serves all clusters is needed by the process: when it ends without having been asked
//! to, the process ends, and Kubernetes starts it again. A replica without such a task would look
//! healthy: it would stay ready and keep its Lease while it does not watch, settle or roll out.
//!
//! A duty for one cluster is begun again instead, after a pause. The objects of a cluster are
//! written by its owner; if a panic that they cause ended the process, one tenant could end every
//! replica for as long as such an object exists. Other clusters are not affected.
#![allow(
    clippy::disallowed_methods,
    reason = "tasks are started here and nowhere else"
)]

use std::any::Any;
use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

use crate::clock::monotonic_now;

/// The pause before a broken task is begun again, the first time and at most. Each pause is twice
/// as long as the one before, until the task ran for longer than the longest pause.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum TaskEnd {
    /// The task returned without an error.
    #[display("returned")]
    Returned,
    /// The task returned this error.
    #[display("failed ({_0})")]
    Failed(String),
    /// The task panicked with this message.
    #[display("panicked ({_0})")]
    Panicked(String),
}

/// A task that ended without having been asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the task {task:?} {how}: without it this replica would only seem to work, so it ends and has to be started again"
)]
pub struct Ended {
    /// The name of the task.
    pub task: Cow<'static, str>,
    /// How the task ended.
    pub how: TaskEnd,
}

/// The result of a task.
pub trait TaskResult {
    /// Converts the result into the way in which the task ended.
    fn how(self) -> TaskEnd;
}

impl TaskResult for () {
    fn how(self) -> TaskEnd {
        TaskEnd::Returned
    }
}

impl TaskResult for anyhow::Result<()> {
    fn how(self) -> TaskEnd {
        match self {
            Ok(()) => TaskEnd::Returned,
            Err(error) => TaskEnd::Failed(format!("{error:#}")),
        }
    }
}

/// Starts tasks and notices their end. Clones share one supervisor.
#[derive(Debug, Clone)]
pub struct Supervisor {
    tasks: TaskTracker,
    work: TaskTracker,
    ended: UnboundedSender<Ended>,
}

/// The receiving end for tasks that ended unexpectedly.
#[derive(Debug)]
pub struct UnexpectedEnds(UnboundedReceiver<Ended>);

impl UnexpectedEnds {
    /// Waits for the next task that ends without having been asked to. Never returns if no task
    /// does.
    pub async fn next(&mut self) -> Ended {
        match self.0.recv().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }
}

impl Supervisor {
    /// A supervisor without tasks.
    pub fn new() -> (Self, UnexpectedEnds) {
        let (ended, unexpected_ends) = unbounded_channel();
        let supervisor = Self {
            tasks: TaskTracker::new(),
            work: TaskTracker::new(),
            ended,
        };
        (supervisor, UnexpectedEnds(unexpected_ends))
    }

    /// Starts a task that the process needs. The task has to run until `asked` is cancelled, and to
    /// return then.
    pub fn spawn<T: TaskResult>(
        &self,
        task: impl Into<Cow<'static, str>>,
        asked: CancellationToken,
        run: impl Future<Output = T> + Send + 'static,
    ) {
        let (this, task) = (self.clone(), task.into());
        self.tasks.spawn(async move {
            let how = match caught(run).await {
                Ok(outcome) if asked.is_cancelled() => match outcome.how() {
                    TaskEnd::Returned => return,
                    how => how,
                },
                Ok(outcome) => outcome.how(),
                Err(panicked) => panicked,
            };
            this.lost(task, how);
        });
    }

    /// Starts a task that the process needs and that never returns by itself. The task is dropped
    /// when `asked` is cancelled.
    pub fn spawn_endless<T: TaskResult>(
        &self,
        task: impl Into<Cow<'static, str>>,
        asked: CancellationToken,
        run: impl Future<Output = T> + Send + 'static,
    ) {
        let until = asked.clone();
        self.spawn(task, asked, async move {
            match until.run_until_cancelled_owned(run).await {
                Some(outcome) => match outcome.how() {
                    TaskEnd::Failed(why) => Err(anyhow::Error::msg(why)),
                    _ => Ok(()),
                },
                None => Ok(()),
            }
        });
    }

    /// Starts duties that never return by themselves, all in one task. The task is dropped when
    /// `asked` is cancelled. When a duty ends before that, `broke` is told its name, how it ended,
    /// and after which pause it begins again.
    pub fn spawn_duties<B, D>(
        &self,
        task: impl Into<Cow<'static, str>>,
        asked: CancellationToken,
        duties: impl IntoIterator<Item = (&'static str, B)>,
        broke: impl Fn(&'static str, &TaskEnd, Duration) + Clone + Send + 'static,
    ) where
        B: FnMut() -> D + Send + 'static,
        D: Future<Output = ()> + Send + 'static,
    {
        let duties = duties.into_iter().map(|(name, begin)| {
            let broke = broke.clone();
            repeat(begin, move |how: &TaskEnd, pause| broke(name, how, pause))
        });
        // There are tens of thousands of duties. One task of their own for each would be a
        // kilobyte more, and each layer around a future holds room for it twice.
        let mut duties: FuturesUnordered<_> = duties.collect();
        let all = async move { while duties.next().await.is_some() {} };
        self.spawn_endless(task, asked, all.boxed());
    }

    /// Starts a piece of work for one cluster that ends by itself, and that
    /// [`Supervisor::work_done`] waits for. When the work panics, `broke` is told how and after
    /// which pause `begin` starts it again.
    pub fn work<W>(
        &self,
        task: impl Into<Cow<'static, str>>,
        begin: impl FnMut() -> W + Send + 'static,
        broke: impl FnMut(&TaskEnd, Duration) + Send + 'static,
    ) where
        W: Future<Output = ()> + Send + 'static,
    {
        let (this, task) = (self.clone(), task.into());
        self.work.spawn(async move {
            if let Err(how) = caught(until_done(begin, broke)).await {
                this.lost(task, how);
            }
        });
    }

    /// Starts a piece of work that ends by itself and is never begun again. The work is dropped
    /// when `asked` is cancelled. When it panics, `broke` is told how.
    pub fn once(
        &self,
        asked: CancellationToken,
        work: impl Future<Output = ()> + Send + 'static,
        broke: impl FnOnce(&TaskEnd) + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            let ended = asked.run_until_cancelled_owned(caught(work)).await;
            if let Some(Err(how)) = ended {
                broke(&how);
            }
        });
    }

    /// Waits until every task has ended.
    pub async fn tasks_ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits until all work is done that was started until now.
    pub async fn work_done(&self) {
        self.work.close();
        self.work.wait().await;
    }

    /// The number of pieces of work under way.
    pub fn working(&self) -> usize {
        self.work.len()
    }

    fn lost(&self, task: Cow<'static, str>, how: TaskEnd) {
        let ended = Ended { task, how };
        error!(task = %ended.task, how = %ended.how, "task ended unexpectedly");
        // The receiver is gone while the process ends.
        let _ = self.ended.send(ended);
    }
}

/// Returns the value of `run`, or its panic as [`TaskEnd::Panicked`].
pub async fn caught<T>(run: impl Future<Output = T>) -> Result<T, TaskEnd> {
    let run = AssertUnwindSafe(run).catch_unwind();
    run.await
        .map_err(|panic| TaskEnd::Panicked(words(panic.as_ref())))
}

async fn repeat<D: Future<Output = ()>>(
    mut begin: impl FnMut() -> D,
    mut broke: impl FnMut(&TaskEnd, Duration),
) {
    let mut pauses = Pauses::default();
    loop {
        let since = monotonic_now();
        let ended = caught(async { begin().await }).await;
        let pause = pauses.after(since.elapsed());
        broke(&ended.err().unwrap_or(TaskEnd::Returned), pause);
        sleep(pause).await;
    }
}

async fn until_done<W: Future<Output = ()>>(
    mut begin: impl FnMut() -> W,
    mut broke: impl FnMut(&TaskEnd, Duration),
) {
    let mut pauses = Pauses::default();
    while let Err(how) = caught(async { begin().await }).await {
        let pause = pauses.after(Duration::ZERO);
        broke(&how, pause);
        sleep(pause).await;
    }
}

/// The pauses before a broken task is begun again; holds the last one.
#[derive(Debug, Default)]
struct Pauses(Duration);

impl Pauses {
    /// The next pause, for a task that ran for `lasted`.
    fn after(&mut self, lasted: Duration) -> Duration {
        if lasted > LONGEST_PAUSE {
            self.0 = Duration::ZERO;
        }
        self.0 = self.0.saturating_mul(2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.0
    }
}

fn words(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests;
