//! The reports of a worker's tasks, and their effects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Worker;
use crate::agent::container::{Exit, Run};
use crate::agent::launcher::Refusal;
use crate::agent::probe::{Kind, Outcome};
use crate::agent::volumes::Volumes;

/// The pause between attempts while something that a container needs is missing.
const CONFIG_RETRY: Duration = Duration::from_secs(1);

/// A report.
#[derive(Debug)]
pub(super) enum Message {
    /// The volumes are ready, or cannot be prepared.
    Volumes(anyhow::Result<Volumes>),
    /// A container was started, or could not be.
    Launched {
        index: usize,
        result: Result<Result<Run, Exit>, Refusal>,
    },
    /// A container has ended.
    Exited { index: usize, exit: Exit },
    /// A probe has an outcome.
    Probed {
        index: usize,
        run: String,
        kind: Kind,
        outcome: Outcome,
        message: String,
    },
    /// A container's postStart hook has ended.
    Hooked {
        index: usize,
        run: String,
        result: Result<(), String>,
    },
}

impl Worker {
    pub(super) fn receive(&mut self, message: Message) {
        match message {
            Message::Volumes(Ok(volumes)) => self.volumes = Some(Arc::new(volumes)),
            Message::Volumes(Err(error)) => {
                for slot in &mut self.slots {
                    slot.wait("ContainerCreating", Some(format!("{error:#}")));
                }
            }
            Message::Launched { index, result } => self.launched(index, result),
            Message::Exited { index, exit } => {
                if let Some(slot) = self.slots.get_mut(index)
                    && slot.run.as_ref().is_some_and(|run| run.id == exit.id)
                {
                    slot.end(&exit);
                }
            }
            Message::Probed {
                index,
                run,
                kind,
                outcome,
                message,
            } => {
                if self.is_current(index, &run) {
                    self.probed(index, kind, outcome, &message);
                }
            }
            Message::Hooked { index, run, result } => {
                if self.is_current(index, &run) {
                    self.hooked(index, result);
                }
            }
        }
    }

    fn launched(&mut self, index: usize, result: Result<Result<Run, Exit>, Refusal>) {
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        slot.launching = false;
        match result {
            Ok(Ok(run)) => {
                slot.begin(run);
                self.watch_run(index);
                self.after_start(index);
            }
            Ok(Err(exit)) => {
                slot.refused(&exit);
            }
            Err(Refusal::Config(message)) => {
                slot.not_before = Some(Instant::now() + CONFIG_RETRY);
                slot.wait("CreateContainerConfigError", Some(message));
            }
            Err(Refusal::Image(message)) => slot.pull_failed(message),
        }
    }

    /// Runs the postStart hook, and then starts the probes. Without a hook the probes start at
    /// once.
    fn after_start(&mut self, index: usize) {
        let target = self.target(index);
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let hook = slot
            .spec
            .lifecycle
            .as_ref()
            .and_then(|l| l.post_start.clone());
        let (Some(hook), Some(target), Some(run)) = (hook, target, slot.run.clone()) else {
            return self.begin_probes(index, false);
        };
        let report = self.report.clone();
        slot.tasks.spawn(async move {
            // The kubelet sets no time limit for a postStart hook. The end of the container ends
            // it.
            let result = target.hook(&hook, Duration::from_secs(24 * 3600)).await;
            let _worker_gone = report.send(Message::Hooked {
                index,
                run: run.id,
                result,
            });
        });
    }

    fn hooked(&mut self, index: usize, result: Result<(), String>) {
        match result {
            Ok(()) => self.begin_probes(index, false),
            Err(error) => {
                tracing::info!(%error, "postStart hook failed, restarting");
                self.restart(index, Kind::Liveness);
            }
        }
    }
}
