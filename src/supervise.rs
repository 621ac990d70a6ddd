//! Every task of the process runs under one supervisor: when one ends that serves every cluster, and nobody asked it to end, the process ends.
//!
//! A replica that lost such a task looks healthy and is not: it stays ready and keeps its Lease while nobody watches, settles or rolls out. A
//! replica that is gone is missed at once, and comes back whole.
//!
//! What is done for one cluster is another matter. Its objects are written by whoever owns it: were a panic that they cause the end of the
//! process, then one tenant could end every replica, one after the other, for as long as the object is there. So it is begun again, after a
//! rest, and the other clusters never notice.
#![allow(
    clippy::disallowed_methods,
    reason = "tasks are started here and nowhere else"
)]

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

/// How long what broke rests before it is begun again: the first time, and at most. Each rest is twice as long as the one before, until it went well for
/// longer than the longest.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// How a task ended that was not to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// It returned, as if it had nothing left to do.
    Returned,
    /// It gave up, for this reason.
    Failed(String),
    /// It panicked, with these words.
    Panicked(String),
}

/// A task that ended although nobody had asked it to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the task {task:?} {how}: without it this replica would only seem to work, so it ends and has to be started again"
)]
pub struct Ended {
    /// What the task is called.
    pub task: Cow<'static, str>,
    /// How it ended.
    pub how: How,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => write!(f, "returned"),
            Self::Failed(why) => write!(f, "failed ({why})"),
            Self::Panicked(words) => write!(f, "panicked ({words})"),
        }
    }
}

/// What a task returns.
pub trait Outcome {
    /// How it ended.
    fn how(self) -> How;
}

impl Outcome for () {
    fn how(self) -> How {
        How::Returned
    }
}

impl Outcome for anyhow::Result<()> {
    fn how(self) -> How {
        match self {
            Ok(()) => How::Returned,
            Err(error) => How::Failed(format!("{error:#}")),
        }
    }
}

/// Starts tasks and misses those that end. Clones are the same supervisor.
#[derive(Debug, Clone)]
pub struct Supervisor {
    tasks: TaskTracker,
    work: TaskTracker,
    ended: UnboundedSender<Ended>,
}

/// Learns which tasks ended.
#[derive(Debug)]
pub struct Losses(UnboundedReceiver<Ended>);

impl Losses {
    /// Returns when a task has ended that nobody asked to end; never, where none does.
    pub async fn next(&mut self) -> Ended {
        match self.0.recv().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }
}

impl Supervisor {
    /// A supervisor of nothing yet.
    pub fn new() -> (Self, Losses) {
        let (ended, losses) = unbounded_channel();
        let supervisor = Self {
            tasks: TaskTracker::new(),
            work: TaskTracker::new(),
            ended,
        };
        (supervisor, Losses(losses))
    }

    /// Starts a task that is to run until `asked` is cancelled, and that ends itself then.
    pub fn spawn<T: Outcome>(
        &self,
        task: impl Into<Cow<'static, str>>,
        asked: CancellationToken,
        run: impl Future<Output = T> + Send + 'static,
    ) {
        let (this, task) = (self.clone(), task.into());
        self.tasks.spawn(async move {
            let how = match caught(run).await {
                Ok(outcome) if asked.is_cancelled() => match outcome.how() {
                    How::Returned => return,
                    how => how,
                },
                Ok(outcome) => outcome.how(),
                Err(panicked) => panicked,
            };
            this.lost(task, how);
        });
    }

    /// Starts a task that knows no end: it is dropped when `asked` is cancelled.
    pub fn spawn_endless<T: Outcome>(
        &self,
        task: impl Into<Cow<'static, str>>,
        asked: CancellationToken,
        run: impl Future<Output = T> + Send + 'static,
    ) {
        let until = asked.clone();
        self.spawn(task, asked, async move {
            match until.run_until_cancelled_owned(run).await {
                Some(outcome) => match outcome.how() {
                    How::Failed(why) => Err(anyhow::Error::msg(why)),
                    _ => Ok(()),
                },
                None => Ok(()),
            }
        });
    }

    /// Starts what is done for one cluster and knows no end: it is dropped when `asked` is cancelled. When it ends all the same, `broke` is told how and for how
    /// long it rests, and then it is begun again.
    pub fn spawn_again<D>(
        &self,
        task: impl Into<Cow<'static, str>>,
        asked: CancellationToken,
        begin: impl FnMut() -> D + Send + 'static,
        broke: impl FnMut(&How, Duration) + Send + 'static,
    ) where
        D: Future<Output = ()> + Send + 'static,
    {
        self.spawn_endless(task, asked, over_and_over(begin, broke));
    }

    /// Starts a piece of work for one cluster that outlives whoever gave it, and ends when it is done. When it breaks, `broke` is told, and it is begun again
    /// after a rest: what it has to say must not be lost.
    pub fn work<W>(
        &self,
        task: impl Into<Cow<'static, str>>,
        begin: impl FnMut() -> W + Send + 'static,
        broke: impl FnMut(&How, Duration) + Send + 'static,
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

    /// Returns when every task has ended, because each was asked to.
    pub async fn tasks_ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Returns when all work is done that was given until now.
    pub async fn work_done(&self) {
        self.work.close();
        self.work.wait().await;
    }

    /// How many pieces of work are under way.
    pub fn working(&self) -> usize {
        self.work.len()
    }

    fn lost(&self, task: Cow<'static, str>, how: How) {
        let ended = Ended { task, how };
        error!(task = %ended.task, how = %ended.how, "a task ended that nobody asked to end");
        // Nobody listens any more while the process ends.
        let _ = self.ended.send(ended);
    }
}

/// What this comes to; how it panicked, where it did.
pub async fn caught<T>(run: impl Future<Output = T>) -> Result<T, How> {
    let run = AssertUnwindSafe(run).catch_unwind();
    run.await
        .map_err(|panic| How::Panicked(words(panic.as_ref())))
}

async fn over_and_over<D: Future<Output = ()>>(
    mut begin: impl FnMut() -> D,
    mut broke: impl FnMut(&How, Duration),
) {
    let mut rests = Rests::default();
    loop {
        let since = Instant::now();
        let ended = caught(async { begin().await }).await;
        let rest = rests.after(since.elapsed());
        broke(&ended.err().unwrap_or(How::Returned), rest);
        sleep(rest).await;
    }
}

async fn until_done<W: Future<Output = ()>>(
    mut begin: impl FnMut() -> W,
    mut broke: impl FnMut(&How, Duration),
) {
    let mut rests = Rests::default();
    while let Err(how) = caught(async { begin().await }).await {
        let rest = rests.after(Duration::ZERO);
        broke(&how, rest);
        sleep(rest).await;
    }
}

/// For how long what breaks again and again rests.
#[derive(Debug, Default)]
struct Rests(Duration);

impl Rests {
    /// After it went on for so long.
    fn after(&mut self, lasted: Duration) -> Duration {
        if lasted > LONGEST_REST {
            self.0 = Duration::ZERO;
        }
        self.0 = self.0.saturating_mul(2).clamp(FIRST_REST, LONGEST_REST);
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
