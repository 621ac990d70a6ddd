//! The end of a pod's containers: of one for a restart, or of all with the pod.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::watch;

use super::Worker;
use crate::agent::launcher::fingerprint;
use crate::agent::pods::ORPHAN_GRACE;
use crate::agent::probe::Kind;
use crate::agent::status::{Ended, Role, State};
use crate::agent::termination;

/// The reason why a pod ends.
#[derive(Debug)]
pub(super) enum Ending {
    /// All containers are done, or have failed for good. The object stays.
    Finished,
    /// The pod's `activeDeadlineSeconds` have passed. The object stays.
    Deadline(Ended),
    /// The pod is being deleted. Its containers are killed at this time.
    Deleted(Instant),
    /// The pod's object is gone. Its containers are killed at this time.
    Gone(Instant),
}

impl Worker {
    /// Records a deletion, a lost object, or a deadline that has passed.
    pub(super) fn note_ending(&mut self) {
        if self.gone.is_cancelled() {
            if !matches!(self.ending, Some(Ending::Gone(_))) {
                let granted = self.deletion_grace().unwrap_or_default().max(ORPHAN_GRACE);
                let earlier = match self.ending {
                    Some(Ending::Deleted(at)) => at,
                    _ => Instant::now() + granted,
                };
                let at = earlier.min(Instant::now() + ORPHAN_GRACE);
                self.ending = Some(Ending::Gone(at));
            }
        } else if self.pod.metadata.deletion_timestamp.is_some() {
            // A kubelet gives a container at least a second. A later delete can only shorten the
            // time.
            let grace = self.deletion_grace().unwrap_or_else(|| self.spec_grace());
            let at = Instant::now() + grace.max(ORPHAN_GRACE);
            self.ending = Some(Ending::Deleted(match self.ending {
                Some(Ending::Deleted(before)) if before <= at => before,
                _ => at,
            }));
        } else if self.ending.is_none() {
            let phase = self.pod.status.as_ref().and_then(|s| s.phase.as_deref());
            if matches!(phase, Some("Failed" | "Succeeded")) {
                self.ending = Some(Ending::Finished);
            } else if self.deadline().is_some_and(|at| at <= Instant::now()) {
                self.ending = Some(Ending::Deadline(Ended {
                    reason: "DeadlineExceeded".to_owned(),
                    message: "Pod was active on the node longer than the specified deadline"
                        .to_owned(),
                }));
            }
        }
    }

    /// The time at which `activeDeadlineSeconds` are over.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let allowed = self.pod.spec.as_ref()?.active_deadline_seconds?;
        let begun = self.pod.status.as_ref().and_then(|s| s.start_time.as_ref());
        let begun = begun.map_or(self.accepted_at, |time| time.0);
        let age = Duration::try_from(Timestamp::now().duration_since(begun)).unwrap_or_default();
        let left = Duration::from_secs(u64::try_from(allowed).unwrap_or(0)).saturating_sub(age);
        Some(Instant::now() + left)
    }

    /// Ends every container, the sidecars after the others and in reverse order. Returns the time
    /// of the next check.
    pub(super) fn stop_all(&mut self) -> Option<Instant> {
        let deadline = match &self.ending {
            Some(Ending::Deleted(at) | Ending::Gone(at)) => *at,
            _ => Instant::now() + self.spec_grace(),
        };
        let others_run = self
            .slots
            .iter()
            .any(|s| s.role != Role::Sidecar && s.is_alive());
        let mut last_sidecar = None;
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get(index).filter(|s| s.is_alive()) else {
                continue;
            };
            if slot.role == Role::Sidecar {
                last_sidecar = Some(index);
            } else {
                self.stop(index, deadline);
            }
        }
        if let Some(index) = last_sidecar.filter(|_| !others_run) {
            self.stop(index, deadline);
        }
        None
    }

    /// Ends one container by `deadline`. A second call can only bring the deadline nearer.
    pub(super) fn stop(&mut self, index: usize, deadline: Instant) {
        let target = self.target(index);
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        if let Some(stopping) = &slot.stopping {
            stopping.send_if_modified(|at| {
                let nearer = deadline < *at;
                *at = deadline.min(*at);
                nearer
            });
            return;
        }
        let State::Running(_) = slot.state else {
            return;
        };
        let (Some(run), Some(target)) = (slot.run.clone(), target) else {
            return;
        };
        let hook = slot
            .spec
            .lifecycle
            .as_ref()
            .and_then(|l| l.pre_stop.clone());
        let (sender, follow) = watch::channel(deadline);
        slot.stopping = Some(sender);
        // A container that is being stopped is not probed any more. Its readiness stays.
        slot.tasks = tokio::task::JoinSet::new();
        slot.tasks
            .spawn(termination::stop(run.process, hook, target, follow));
    }

    /// Ends a container so that it is restarted.
    pub(super) fn restart(&mut self, index: usize, because_of: Kind) {
        let own = self.slots.get(index).and_then(|slot| {
            let probe = match because_of {
                Kind::Startup => slot.spec.startup_probe.as_ref(),
                Kind::Liveness => slot.spec.liveness_probe.as_ref(),
                Kind::Readiness => None,
            };
            probe?.termination_grace_period_seconds
        });
        let grace = own.map_or_else(|| self.spec_grace(), seconds);
        self.stop(index, Instant::now() + grace);
    }

    /// Applies changes of the spec: a new image restarts its container, and so do new resources if
    /// the policy says so.
    pub(super) fn update_specs(&mut self) {
        let Some(spec) = self.pod.spec.clone() else {
            return;
        };
        let grace = self.spec_grace();
        let all = spec
            .init_containers
            .iter()
            .flatten()
            .chain(&spec.containers);
        for (index, new) in all.enumerate() {
            let Some(slot) = self.slots.get_mut(index) else {
                return;
            };
            if slot.spec.image != new.image {
                // A failed pull is tried again with the new name at once.
                slot.not_before = None;
            }
            slot.spec.clone_from(new);
            let Some(run) = slot.run.as_mut().filter(|_| slot.stopping.is_none()) else {
                continue;
            };
            if !matches!(slot.state, State::Running(_)) {
                continue;
            }
            let resized = run.resources != fingerprint(new);
            let replaced = new.image.as_ref() != Some(&run.image)
                || (resized && restarts_on_resize(&run.resources, new));
            if resized {
                run.resources = fingerprint(new);
            }
            if replaced {
                slot.replaced = true;
                self.stop(index, Instant::now() + grace);
            }
        }
    }

    pub(super) fn all_stopped(&self) -> bool {
        !self.slots.iter().any(super::Slot::is_alive)
    }

    pub(super) fn is_orphan(&self) -> bool {
        matches!(self.ending, Some(Ending::Gone(_)))
    }

    /// Whether only the cleanup is left to do.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.ending, Some(Ending::Deleted(_) | Ending::Gone(_))) && self.all_stopped()
    }

    fn deletion_grace(&self) -> Option<Duration> {
        self.pod.metadata.deletion_grace_period_seconds.map(seconds)
    }

    fn spec_grace(&self) -> Duration {
        let set = self
            .pod
            .spec
            .as_ref()
            .and_then(|s| s.termination_grace_period_seconds);
        set.map_or(Duration::from_secs(30), seconds)
    }
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}

/// Whether a resource with the policy `RestartContainer` has changed.
fn restarts_on_resize(old: &str, new: &k8s_openapi::api::core::v1::Container) -> bool {
    let old: serde_json::Value = serde_json::from_str(old).unwrap_or_default();
    let now = serde_json::to_value(&new.resources).unwrap_or_default();
    let policies = new.resize_policy.iter().flatten();
    policies
        .filter(|p| p.restart_policy == "RestartContainer")
        .any(|policy| {
            ["limits", "requests"].iter().any(|set| {
                let of = |all: &serde_json::Value| {
                    all.get(set)
                        .and_then(|s| s.get(&policy.resource_name))
                        .cloned()
                };
                of(&old) != of(&now)
            })
        })
}
