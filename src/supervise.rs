//! Every task of the process runs under one supervisor: when one ends that nobody asked to end, the process ends.
//!
//! A replica that lost a task looks healthy and is not: it stays ready and keeps its Lease while nobody watches, settles or rolls out. A
//! replica that is gone is missed at once, and comes back whole.
#![allow(
    clippy::disallowed_methods,
    reason = "tasks are started here and nowhere else"
)]

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::error;

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
            let how = match AssertUnwindSafe(run).catch_unwind().await {
                Ok(outcome) if asked.is_cancelled() => match outcome.how() {
                    How::Returned => return,
                    how => how,
                },
                Ok(outcome) => outcome.how(),
                Err(panic) => How::Panicked(words(panic.as_ref())),
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

    /// Starts a piece of work that outlives whoever gave it, and ends when it is done. Only a panic is missed.
    pub fn work(
        &self,
        task: impl Into<Cow<'static, str>>,
        run: impl Future<Output = ()> + Send + 'static,
    ) {
        let (this, task) = (self.clone(), task.into());
        self.work.spawn(async move {
            if let Err(panic) = AssertUnwindSafe(run).catch_unwind().await {
                this.lost(task, How::Panicked(words(panic.as_ref())));
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

fn words(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

#[cfg(test)]
mod tests;
