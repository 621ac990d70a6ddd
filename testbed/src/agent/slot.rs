//! A container of a pod, over all its attempts: its state, its history, and its tasks.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, Pod};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::backoff::{BackOff, Limits};
use super::container::{self, Exit, Run};
use super::layout::{ContainerDir, PodDir};
use super::order::Progress;
use super::probe::Outcome;
use super::status::{ContainerView, Role, State, Waiting, time};

/// A container.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts, each with a name; no two of them make a state together"
)]
#[derive(Debug)]
pub(super) struct Slot {
    /// The container's present spec.
    pub spec: Container,
    /// The container's role.
    pub role: Role,
    /// The container's directory.
    pub dir: ContainerDir,
    /// The container's state.
    pub state: State,
    /// The end of the attempt before.
    pub last: Option<ContainerStateTerminated>,
    /// The current or last attempt.
    pub run: Option<Run>,
    /// The number of restarts so far, with those that failed to start.
    pub restarts: i32,
    /// Whether the current sandbox has not started the container yet.
    pub fresh: bool,
    /// Whether a launch is under way.
    pub launching: bool,
    /// The time at which the last attempt ended.
    pub ended_at: Option<Instant>,
    /// Whether the startup probe has passed.
    pub started: bool,
    /// The result of the readiness probe.
    pub readiness: Option<Outcome>,
    /// The back-off of restarts.
    pub back_off: BackOff,
    /// The back-off of pulls.
    pub pull: BackOff,
    /// The earliest time of the next attempt.
    pub not_before: Option<Instant>,
    /// The time at which the container is killed, while it is being stopped.
    pub stopping: Option<watch::Sender<Instant>>,
    /// Whether the container is to be started again although its policy says otherwise, because its
    /// definition has changed.
    pub replaced: bool,
    /// Watches, probes and hooks of the current attempt, which end with it.
    pub tasks: JoinSet<()>,
}

/// The containers of a pod, with the state that an earlier agent left.
///
/// `same_sandbox` is false if the pod's processes went down with the node. Then all containers
/// start anew.
pub(super) fn slots(pod: &Pod, dir: &PodDir, limits: Limits, same_sandbox: bool) -> Vec<Slot> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let inits = spec.init_containers.iter().flatten().map(|c| {
        let always = c.restart_policy.as_deref() == Some("Always");
        (if always { Role::Sidecar } else { Role::Init }, c)
    });
    let mains = spec.containers.iter().map(|c| (Role::Main, c));
    inits
        .chain(mains)
        .map(|(role, c)| Slot::load(pod, c, role, dir, limits, same_sandbox))
        .collect()
}

impl Slot {
    fn load(
        pod: &Pod,
        spec: &Container,
        role: Role,
        pod_dir: &PodDir,
        limits: Limits,
        same_sandbox: bool,
    ) -> Self {
        let dir = pod_dir.container(&spec.name);
        let run: Option<Run> = container::read(&dir.run()).ok().flatten();
        let exit: Option<Exit> = container::read(&dir.exit()).ok().flatten();
        let before: Option<Exit> = container::read(&dir.last()).ok().flatten();
        let tried: Option<container::Spec> = container::read(&dir.spec()).ok().flatten();
        let mut slot = Self {
            spec: spec.clone(),
            role,
            dir,
            state: waiting("ContainerCreating", None),
            last: before.as_ref().map(terminated),
            run,
            restarts: tried.as_ref().map_or(0, |spec| spec.attempt),
            fresh: true,
            launching: false,
            ended_at: None,
            started: false,
            readiness: None,
            back_off: BackOff::new(limits),
            pull: BackOff::new(limits),
            not_before: None,
            stopping: None,
            replaced: false,
            tasks: JoinSet::new(),
        };
        match (&slot.run, exit) {
            (run, Some(exit)) if run.as_ref().is_none_or(|run| run.id == exit.id) => {
                slot.fresh = !same_sandbox;
                if same_sandbox {
                    slot.state = State::Terminated(terminated(&exit));
                    slot.ended_at = Some(Instant::now());
                } else {
                    slot.last = Some(terminated(&exit));
                }
            }
            (Some(run), _) if same_sandbox => {
                slot.state = State::Running(run.started_at);
                slot.fresh = false;
                slot.recall(pod);
            }
            (Some(run), _) => slot.last = Some(lost(run)),
            (None, _) => {}
        }
        slot
    }

    /// Restores the reported state of a container that ran before this agent started, until its
    /// probes report.
    fn recall(&mut self, pod: &Pod) {
        let Some(status) = &pod.status else { return };
        let lists = [&status.init_container_statuses, &status.container_statuses];
        let mut all = lists.into_iter().flat_map(|list| list.iter().flatten());
        let Some(said) = all.find(|s| s.name == self.spec.name) else {
            return;
        };
        self.started = said.started == Some(true);
        self.readiness = said.ready.then_some(Outcome::Success);
    }

    /// The state for the order of containers.
    pub(super) fn progress(&self) -> Progress {
        if self.launching {
            return Progress::Launching;
        }
        match &self.state {
            State::Running(_) => Progress::Running {
                started: self.started,
            },
            _ if self.fresh || self.replaced => Progress::New,
            State::Terminated(end) => Progress::Exited(end.exit_code),
            // The container is in back-off; `last` has its end.
            State::Waiting(_) => self
                .last
                .as_ref()
                .map_or(Progress::New, |end| Progress::Exited(end.exit_code)),
        }
    }

    /// Whether a process of the container runs or is about to.
    pub(super) fn is_alive(&self) -> bool {
        self.launching || matches!(self.state, State::Running(_))
    }

    /// The number of the next attempt.
    pub(super) fn next_attempt(&self) -> i32 {
        let tried = self.run.is_some() || self.last.is_some() || self.ended_at.is_some();
        if tried { self.restarts + 1 } else { 0 }
    }

    /// Shows the container as waiting. The end of the current attempt moves to `last`.
    pub(super) fn wait(&mut self, reason: &'static str, message: Option<String>) {
        if let State::Terminated(end) = &self.state {
            self.last = Some(end.clone());
        }
        self.state = waiting(reason, message);
    }

    /// Records a start.
    pub(super) fn begin(&mut self, run: Run) {
        if let State::Terminated(end) = &self.state {
            self.last = Some(end.clone());
        }
        self.state = State::Running(run.started_at);
        self.restarts = run.attempt;
        self.run = Some(run);
        self.fresh = false;
        self.started = false;
        self.readiness = None;
        self.stopping = None;
        self.replaced = false;
    }

    /// Records an end.
    pub(super) fn end(&mut self, exit: &Exit) {
        self.state = State::Terminated(terminated(exit));
        self.ended_at = Some(Instant::now());
        self.fresh = false;
        self.started = false;
        self.readiness = None;
        self.stopping = None;
        self.tasks = JoinSet::new();
    }

    /// Records a command that could not be started: an end without a start.
    pub(super) fn refused(&mut self, exit: &Exit) {
        self.restarts = self.next_attempt();
        self.end(exit);
    }

    /// Records that the image does not exist: `ErrImagePull` first, `ImagePullBackOff` until the
    /// next try.
    pub(super) fn pull_failed(&mut self, message: String) {
        let now = Instant::now();
        let first = !matches!(&self.state, State::Waiting(w) if w.reason.ends_with("ImagePullBackOff")
            || w.reason == "ErrImagePull");
        self.pull.restarted(now, now);
        self.not_before = self.pull.until(now);
        self.wait(
            if first {
                "ErrImagePull"
            } else {
                "ImagePullBackOff"
            },
            Some(message),
        );
    }

    /// The start of the attempt on the monotonic clock.
    pub(super) fn started_at(&self) -> Instant {
        let started = self
            .run
            .as_ref()
            .map_or_else(Timestamp::now, |run| run.started_at);
        let age = Timestamp::now().duration_since(started);
        let age = Duration::try_from(age).unwrap_or_default();
        Instant::now().checked_sub(age).unwrap_or_else(Instant::now)
    }

    /// The container as the status shows it. `unready` is the fault of that name.
    pub(super) fn view(&self, unready: bool) -> ContainerView {
        let ready = match self.readiness {
            _ if unready && self.spec.readiness_probe.is_none() => false,
            Some(outcome) => outcome == Outcome::Success,
            None => self.spec.readiness_probe.is_none(),
        };
        let state = match &self.state {
            // Kubelets report the initial wait of an init container like this.
            State::Waiting(Waiting {
                reason: "ContainerCreating",
                ..
            }) if self.role == Role::Init => waiting("PodInitializing", None),
            state => state.clone(),
        };
        ContainerView {
            name: self.spec.name.clone(),
            role: self.role,
            image: self.spec.image.clone().unwrap_or_default(),
            id: self
                .run
                .as_ref()
                .filter(|_| !self.fresh)
                .map(|run| run.id.clone()),
            state,
            last: self.last.clone(),
            restarts: self.restarts,
            started: self.started,
            ready: ready && self.started,
            resources: self.spec.resources.clone(),
        }
    }
}

/// A waiting state.
pub(super) fn waiting(reason: &'static str, message: Option<String>) -> State {
    State::Waiting(Waiting { reason, message })
}

fn terminated(exit: &Exit) -> ContainerStateTerminated {
    let reason = match (&exit.start_error, exit.exit_code) {
        (Some(_), _) => "StartError",
        (None, 0) => "Completed",
        (None, _) => "Error",
    };
    ContainerStateTerminated {
        container_id: Some(format!("host://{}", exit.id)),
        exit_code: exit.exit_code,
        started_at: exit.started_at.map(time),
        finished_at: Some(time(exit.finished_at)),
        reason: Some(reason.to_owned()),
        message: exit.start_error.clone(),
        signal: None,
    }
}

/// The end of an attempt that went down with its node and was not recorded.
fn lost(run: &Run) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: Some(format!("host://{}", run.id)),
        exit_code: 255,
        started_at: Some(time(run.started_at)),
        finished_at: Some(time(Timestamp::now())),
        reason: Some("Unknown".to_owned()),
        ..ContainerStateTerminated::default()
    }
}
