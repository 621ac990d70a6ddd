//! The worker of one pod, from its binding to this node until it is gone.
//!
//! The worker is a loop over messages: read the pod and its containers, act, publish the status,
//! and wait for the next message. Work that takes time (launching, probing, stopping, preparing
//! volumes) is done by tasks that report back.

mod messages;
mod stopping;

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::{Api, ResourceExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::messages::Message;
use self::stopping::Ending;
use super::container::launch;
use super::faults::{self, PodFaults};
use super::fields::Placement;
use super::hosts;
use super::launcher::Attempt;
use super::layout::write_in_place;
use super::order::{NextAction, next};
use super::probe::check::Target;
use super::probe::{self, Kind, Outcome, Schedule};
use super::sandbox::{self, PodSandbox};
use super::slot::{self, Slot};
use super::status::{self, PodView, State, restart_policy};
use super::status_writer::StatusWriter;
use super::volumes::{self, Volumes};
use super::{Agent, dns, rejection, termination};

/// The annotation of a pod with the family of its first address, and the value by which it has one
/// of each family, IPv6 first.
pub(crate) const FIRST_FAMILY: &str = "testbed.quorumgate.io/first-family";
pub(crate) const IPV6: &str = "IPv6";

/// The annotation that keeps a pod in `ContainerCreating` while it has the value of that name.
const HOLD: &str = "testbed.quorumgate.io/hold";

/// The worker of one pod.
pub(super) struct Worker {
    agent: Arc<Agent>,
    pod: Arc<Pod>,
    follow: watch::Receiver<Arc<Pod>>,
    gone: CancellationToken,
    messages: mpsc::UnboundedReceiver<Message>,
    report: mpsc::UnboundedSender<Message>,
    sandbox: PodSandbox,
    slots: Vec<Slot>,
    volumes: Option<Arc<Volumes>>,
    /// The tasks that prepare volumes and keep the hosts file.
    tasks: JoinSet<()>,
    ending: Option<Ending>,
    accepted_at: Timestamp,
    writer: StatusWriter,
    published: Option<PodStatus>,
}

impl Worker {
    /// Runs a pod until nothing of it is left on this node.
    pub(super) async fn run(
        agent: Arc<Agent>,
        follow: watch::Receiver<Arc<Pod>>,
        gone: CancellationToken,
    ) {
        let pod = follow.borrow().clone();
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let dir = agent
            .dir
            .pod(&namespace, &name, &pod.uid().unwrap_or_default());
        let api = Api::namespaced(agent.client.clone(), &namespace);
        if pod.metadata.deletion_timestamp.is_some() && !dir.path().exists() {
            // An earlier agent cleaned the pod up, and ended before the final delete.
            termination::delete(&api, &pod, &gone).await;
            return;
        }
        let rejected = faults::of(&agent.dir, &namespace, &name).reject
            && rejection::is_to_be_admitted(&pod, &dir);
        if rejected || rejection::is_rejected(&pod) {
            rejection::reject(&api, follow, (&agent.dir, &dir), &gone).await;
            return;
        }
        let is_six = pod
            .annotations()
            .get(FIRST_FAMILY)
            .is_some_and(|of| of == IPV6);
        let sandbox = match sandbox::prepare(dir, is_six) {
            Ok(sandbox) => sandbox,
            Err(error) => {
                tracing::error!(%namespace, %name, %error, "no place for the pod");
                return;
            }
        };
        let (report, messages) = mpsc::unbounded_channel();
        let slots = slot::slots(&pod, &sandbox.dir, agent.limits, sandbox.continued);
        let worker = Self {
            writer: StatusWriter::start(api.clone(), follow.clone()),
            agent,
            pod,
            follow,
            gone: gone.clone(),
            messages,
            report,
            sandbox,
            slots,
            volumes: None,
            tasks: JoinSet::new(),
            ending: None,
            accepted_at: Timestamp::now(),
            published: None,
        };
        worker.work(&api, &gone).await;
    }

    async fn work(mut self, api: &Api<Pod>, gone: &CancellationToken) {
        self.adopt();
        self.prepare();
        let mut recheck = self.agent.recheck.subscribe();
        loop {
            let timer = self.step();
            self.publish(false);
            if self.is_over() {
                break;
            }
            let at = timer.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600));
            tokio::select! {
                biased;
                Some(message) = self.messages.recv() => self.receive(message),
                Ok(()) = self.follow.changed() => {
                    self.pod = self.follow.borrow_and_update().clone();
                }
                () = self.gone.cancelled(), if !self.is_orphan() => {}
                Ok(()) = recheck.changed() => {}
                () = tokio::time::sleep_until(at.into()) => {}
            }
        }
        self.publish(true);
        self.tasks.abort_all();
        tokio::select! {
            () = self.writer.flush() => {}
            () = gone.cancelled() => {}
        }
        termination::clean_up(&self.agent.dir, &self.sandbox.dir);
        termination::delete(api, &self.pod, gone).await;
    }

    /// Follows the containers that an earlier agent started.
    fn adopt(&mut self) {
        for index in 0..self.slots.len() {
            let Some(slot) = self.slots.get(index) else {
                return;
            };
            if matches!(slot.state, State::Running(_)) {
                let (started, readiness) = (slot.started, slot.readiness);
                self.watch_run(index);
                self.begin_probes(index, started);
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.readiness = readiness;
                }
            }
        }
    }

    /// Prepares volumes and the hosts file in the background.
    fn prepare(&mut self) {
        let namespace = self.pod.namespace().unwrap_or_default();
        let names = self.agent.endpoints.namespace(&namespace);
        let (pod, ip, path) = (self.pod.clone(), self.sandbox.ip, self.sandbox.dir.hosts());
        let first = hosts::render(&pod, ip, &names.follow().borrow());
        let resolver = dns::resolv_conf(self.agent.host_ip, &namespace);
        let written = write_in_place(&path, first.as_bytes())
            .and_then(|()| write_in_place(&self.sandbox.dir.resolv_conf(), resolver.as_bytes()));
        if let Err(error) = written {
            tracing::error!(%error, "hosts file");
        }
        self.tasks.spawn(async move {
            let mut follow = names.follow();
            loop {
                let text = hosts::render(&pod, ip, &follow.borrow_and_update());
                if let Err(error) = write_in_place(&path, text.as_bytes()) {
                    tracing::warn!(%error, "hosts file");
                }
                if follow.changed().await.is_err() {
                    return;
                }
            }
        });
        let (agent, follow) = (self.agent.clone(), self.follow.clone());
        let (dir, place, report) = (self.sandbox.dir.clone(), self.place(), self.report.clone());
        self.tasks.spawn(async move {
            let prepared = volumes::prepare(agent, follow, dir, place).await;
            let _worker_gone = report.send(Message::Volumes(prepared));
        });
    }

    /// Acts on the present state. Returns the time of the next check.
    fn step(&mut self) -> Option<Instant> {
        let faults = self.faults();
        self.note_ending();
        if self.ending.is_some() {
            return self.stop_all();
        }
        self.update_specs();
        let held = self
            .pod
            .annotations()
            .get(HOLD)
            .is_some_and(|v| v == "ContainerCreating");
        let begun = self.slots.iter().any(|slot| !slot.fresh || slot.launching);
        if (faults.hold || held) && !begun {
            return None;
        }
        let Some(volumes) = self.volumes.clone() else {
            return self.deadline();
        };
        let progress: Vec<_> = self.slots.iter().map(|s| (s.role, s.progress())).collect();
        let mut timers = vec![self.deadline()];
        match next(&progress, restart_policy(&self.pod)) {
            NextAction::Start(indices) => {
                for index in indices {
                    timers.push(self.start(index, &volumes, &faults));
                }
            }
            NextAction::InitFailed | NextAction::Completed => {
                self.ending = Some(Ending::Finished);
                return self.stop_all();
            }
        }
        self.show_waiting();
        timers.into_iter().flatten().min()
    }

    /// Starts a container, or returns the end of its back-off.
    fn start(
        &mut self,
        index: usize,
        volumes: &Arc<Volumes>,
        faults: &PodFaults,
    ) -> Option<Instant> {
        let now = Instant::now();
        let slot = self.slots.get_mut(index)?;
        if let Some(at) = slot.not_before.filter(|at| *at > now) {
            return Some(at);
        }
        if let Some(ended) = slot.ended_at.filter(|_| !slot.fresh && !slot.replaced) {
            if let Some(at) = slot.back_off.until(ended).filter(|at| *at > now) {
                let delay = slot.back_off.delay().as_secs_f64();
                let message = format!(
                    "back-off {delay}s restarting failed container={}",
                    slot.spec.name
                );
                slot.wait("CrashLoopBackOff", Some(message));
                return Some(at);
            }
            slot.back_off.restarted(ended, now);
        }
        slot.launching = true;
        let attempt = Attempt {
            agent: self.agent.clone(),
            pod: self.pod.clone(),
            container: slot.spec.clone(),
            dir: slot.dir.clone(),
            sandbox: self.sandbox.clone(),
            volumes: volumes.clone(),
            number: slot.next_attempt(),
            crash: faults.crash || faults.crash_container.as_ref() == Some(&slot.spec.name),
        };
        let report = self.report.clone();
        // The task is not one of the slot's: a launch that has begun must be followed to its end.
        tokio::spawn(async move {
            let result = attempt.start().await;
            let _worker_gone = report.send(Message::Launched { index, result });
        });
        None
    }

    /// Shows containers that have not had their turn as waiting, with the kubelet's reasons.
    fn show_waiting(&mut self) {
        let initializing = self.slots.iter().any(|s| {
            s.role != status::Role::Main
                && !matches!(s.progress(), super::order::Progress::Exited(0))
                && !(s.role == status::Role::Sidecar && s.started)
        });
        for slot in self
            .slots
            .iter_mut()
            .filter(|s| s.role == status::Role::Main)
        {
            if let State::Waiting(why) = &mut slot.state
                && slot.fresh
                && matches!(why.reason, "ContainerCreating" | "PodInitializing")
            {
                why.reason = if initializing {
                    "PodInitializing"
                } else {
                    "ContainerCreating"
                };
            }
        }
    }

    /// Starts a task that reports the end of a run.
    fn watch_run(&mut self, index: usize) {
        let report = self.report.clone();
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let Some(run) = slot.run.clone() else { return };
        let dir = slot.dir.clone();
        // The task outlives the slot's tasks, which are aborted when it reports.
        self.tasks.spawn(async move {
            match launch::ended(&dir, &run).await {
                Ok(exit) => drop(report.send(Message::Exited { index, exit })),
                Err(error) => tracing::error!(%error, "watch of a container"),
            }
        });
    }

    /// Runs the probes that may run: the startup probe first, then the others.
    fn begin_probes(&mut self, index: usize, started: bool) {
        let target = self.target(index);
        let (node, namespace) = (
            self.agent.dir.clone(),
            self.pod.namespace().unwrap_or_default(),
        );
        let pod_name = self.pod.name_any();
        let Some(slot) = self.slots.get_mut(index) else {
            return;
        };
        let (Some(run), Some(target)) = (slot.run.clone(), target) else {
            return;
        };
        let probes = if started || slot.spec.startup_probe.is_none() {
            slot.started = true;
            vec![
                (Kind::Readiness, slot.spec.readiness_probe.clone()),
                (Kind::Liveness, slot.spec.liveness_probe.clone()),
            ]
        } else {
            vec![(Kind::Startup, slot.spec.startup_probe.clone())]
        };
        let since = slot.started_at();
        for (kind, probe) in probes {
            let Some(probe) = probe else { continue };
            let (report, run) = (self.report.clone(), run.id.clone());
            let (target, node) = (target.clone(), node.clone());
            let (namespace, pod_name) = (namespace.clone(), pod_name.clone());
            slot.tasks.spawn(async move {
                let schedule = Schedule::from(&probe);
                let limit = schedule.timeout;
                let attempt = || {
                    let unready =
                        kind == Kind::Readiness && faults::of(&node, &namespace, &pod_name).unready;
                    let (target, probe) = (target.clone(), probe.clone());
                    async move {
                        if unready {
                            return Err("unready by a fault of the test bed".to_owned());
                        }
                        target.probe(&probe, limit).await
                    }
                };
                let tell = |outcome, message| {
                    let run = run.clone();
                    let _worker_gone = report.send(Message::Probed {
                        index,
                        run,
                        kind,
                        outcome,
                        message,
                    });
                };
                probe::watch(kind, schedule, since, attempt, tell).await;
            });
        }
    }

    fn publish(&mut self, finished: bool) {
        let unready = self.faults().unready;
        let ended = match &self.ending {
            Some(Ending::Deadline(ended)) => Some(ended.clone()),
            _ => None,
        };
        let view = PodView {
            containers: self.slots.iter().map(|slot| slot.view(unready)).collect(),
            place: Some(self.place()),
            accepted_at: self.accepted_at,
            ended,
            finished: finished || (self.ending.is_some() && self.all_stopped()),
        };
        let old = self.published.as_ref().or(self.pod.status.as_ref());
        let status = status::compute(&self.pod, old, &view, Timestamp::now());
        self.writer.set(status.clone());
        self.published = Some(status);
    }

    fn faults(&self) -> PodFaults {
        let namespace = self.pod.namespace().unwrap_or_default();
        faults::of(&self.agent.dir, &namespace, &self.pod.name_any())
    }

    fn place(&self) -> Placement {
        Placement {
            ip: self.sandbox.ip,
            host_ip: self.agent.host_ip,
        }
    }

    fn target(&self, index: usize) -> Option<Target> {
        let slot = self.slots.get(index)?;
        Some(Target {
            program: self.agent.program.clone(),
            dir: slot.dir.clone(),
            ip: self.sandbox.ip,
            container: slot.spec.clone(),
        })
    }

    /// Whether the outcome of a probe belongs to the present run.
    fn is_current(&self, index: usize, run: &str) -> bool {
        let slot = self.slots.get(index);
        slot.is_some_and(|s| s.is_alive() && s.run.as_ref().is_some_and(|r| r.id == run))
    }

    fn probed(&mut self, index: usize, kind: Kind, outcome: Outcome, message: &str) {
        match (kind, outcome) {
            (Kind::Readiness, _) => {
                if let Some(slot) = self.slots.get_mut(index) {
                    slot.readiness = Some(outcome);
                }
            }
            (Kind::Startup, Outcome::Success) => self.begin_probes(index, true),
            (Kind::Liveness, Outcome::Success) => {}
            (Kind::Startup | Kind::Liveness, Outcome::Failure) => {
                tracing::info!(pod = %self.pod.name_any(), %kind, %message, "probe failed, restarting");
                self.restart(index, kind);
            }
        }
    }
}
