//! A pod's status, computed from what its containers do. Pure: no clock and no IO, so that every row can be tested.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::fields::Placement;

/// What a container is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`: started in its turn, then kept running.
    Sidecar,
    /// One of `spec.containers`.
    Main,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// Not running, and why.
    Waiting(Waiting),
    /// Running since.
    Running(Timestamp),
    /// Ended.
    Terminated(ContainerStateTerminated),
}

/// Why a container does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The kubelet's word for it, as `CrashLoopBackOff`.
    pub reason: &'static str,
    /// More, where there is more to say.
    pub message: Option<String>,
}

/// A container as the status shows it.
#[derive(Clone, Debug)]
pub(super) struct ContainerView {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The image asked for.
    pub image: String,
    /// Unique name of the attempt.
    pub id: Option<String>,
    /// What it does.
    pub state: State,
    /// How the attempt before ended.
    pub last: Option<ContainerStateTerminated>,
    /// Restarts so far.
    pub restarts: i32,
    /// Its startup probe has succeeded, or it has none and runs.
    pub started: bool,
    /// Its readiness probe has succeeded, or it has none and has started.
    pub ready: bool,
    /// Resources it runs with.
    pub resources: Option<ResourceRequirements>,
}

/// A pod that was ended by its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// As `DeadlineExceeded`.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// A pod as the status shows it.
#[derive(Clone, Debug)]
pub(super) struct PodView {
    /// Init containers first, in the order of the spec.
    pub containers: Vec<ContainerView>,
    /// Addresses; `None` before the pod has one.
    pub place: Option<Placement>,
    /// When the agent took the pod on.
    pub accepted_at: Timestamp,
    /// Set when the node has ended it.
    pub ended: Option<Ended>,
    /// All containers have ended and none will start again.
    pub finished: bool,
}

/// The condition types that this agent owns.
pub(super) const CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// The status to publish; transition times are kept from the status before where nothing changed.
pub(super) fn compute(
    pod: &Pod,
    old: Option<&PodStatus>,
    view: &PodView,
    now: Timestamp,
) -> PodStatus {
    let containers: Vec<_> = view.containers.iter().map(|c| settled(c, view)).collect();
    let phase = phase(pod, old, view, &containers);
    let (mains, inits): (Vec<_>, Vec<_>) = containers.iter().partition(|c| c.role == Role::Main);
    let ip = view.place.map(|place| place.ip.to_string());
    let host_ip = view.place.map(|place| place.host_ip.to_string());
    let statuses = |list: Vec<&ContainerView>| {
        let list: Vec<_> = list.into_iter().map(container_status).collect();
        (!list.is_empty()).then_some(list)
    };
    PodStatus {
        phase: Some(phase.to_owned()),
        conditions: Some(conditions(old, view, &containers, phase, now)),
        container_statuses: statuses(mains),
        init_container_statuses: statuses(inits),
        pod_ips: ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: ip,
        host_ips: host_ip.clone().map(|ip| vec![HostIP { ip }]),
        host_ip,
        start_time: old
            .and_then(|s| s.start_time.clone())
            .or_else(|| Some(time(view.accepted_at))),
        reason: view.ended.as_ref().map(|e| e.reason.clone()),
        message: view.ended.as_ref().map(|e| e.message.clone()),
        observed_generation: pod.metadata.generation,
        ..PodStatus::default()
    }
}

/// API times have whole seconds.
pub(super) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// In a finished pod no container waits any more: those that never ran are reported as the kubelet does.
fn settled(container: &ContainerView, view: &PodView) -> ContainerView {
    let mut container = container.clone();
    if !matches!(container.state, State::Running(_)) {
        container.ready = container.role == Role::Init && exit_code(&container.state) == Some(0);
        container.started = false;
    }
    if !view.finished || container.role == Role::Init {
        return container;
    }
    if let State::Waiting(_) = container.state {
        container.state =
            State::Terminated(
                container
                    .last
                    .take()
                    .unwrap_or_else(|| ContainerStateTerminated {
                        exit_code: 137,
                        reason: Some("ContainerStatusUnknown".to_owned()),
                        message: Some(
                            "The container could not be located when the pod was terminated"
                                .to_owned(),
                        ),
                        ..ContainerStateTerminated::default()
                    }),
            );
    }
    container
}

fn exit_code(state: &State) -> Option<i32> {
    match state {
        State::Terminated(end) => Some(end.exit_code),
        State::Waiting(_) | State::Running(_) => None,
    }
}

fn phase(
    pod: &Pod,
    old: Option<&PodStatus>,
    view: &PodView,
    containers: &[ContainerView],
) -> &'static str {
    if view.ended.is_some() {
        return "Failed";
    }
    // A phase that says the end is never taken back.
    match old.and_then(|s| s.phase.as_deref()) {
        Some("Failed") => return "Failed",
        Some("Succeeded") => return "Succeeded",
        _ => {}
    }
    let policy = restart_policy(pod);
    let mains = || containers.iter().filter(|c| c.role == Role::Main);
    let codes: Vec<_> = mains().map(|c| exit_code(&c.state)).collect();
    if view.finished || (policy != "Always" && codes.iter().all(Option::is_some)) {
        let good = codes.iter().all(|code| *code == Some(0));
        let will_retry = !view.finished && policy == "OnFailure" && !good;
        if !will_retry {
            return if good && !codes.is_empty() {
                "Succeeded"
            } else {
                "Failed"
            };
        }
    }
    let init_failed = containers
        .iter()
        .any(|c| c.role == Role::Init && exit_code(&c.state).is_some_and(|code| code != 0));
    if init_failed && policy == "Never" {
        return "Failed";
    }
    let has_run = |c: &ContainerView| !matches!(c.state, State::Waiting(_)) || c.last.is_some();
    if mains().all(has_run) {
        "Running"
    } else {
        "Pending"
    }
}

/// `spec.restartPolicy` with its default.
pub(super) fn restart_policy(pod: &Pod) -> &str {
    pod.spec
        .as_ref()
        .and_then(|s| s.restart_policy.as_deref())
        .unwrap_or("Always")
}

/// A container's entry.
fn container_status(container: &ContainerView) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        image_id: match container.id {
            Some(_) => format!("host://{}", container.image),
            None => String::new(),
        },
        container_id: container.id.as_ref().map(|id| format!("host://{id}")),
        state: Some(state(&container.state)),
        last_state: container
            .last
            .clone()
            .map(|end| state(&State::Terminated(end))),
        ready: container.ready,
        started: Some(container.started),
        restart_count: container.restarts,
        allocated_resources: container
            .resources
            .as_ref()
            .and_then(|r| r.requests.clone()),
        resources: container.resources.clone(),
        ..ContainerStatus::default()
    }
}

fn state(state: &State) -> ContainerState {
    let mut out = ContainerState::default();
    match state {
        State::Waiting(why) => {
            out.waiting = Some(ContainerStateWaiting {
                reason: Some(why.reason.to_owned()),
                message: why.message.clone(),
            });
        }
        State::Running(since) => {
            out.running = Some(ContainerStateRunning {
                started_at: Some(time(*since)),
            });
        }
        State::Terminated(end) => out.terminated = Some(end.clone()),
    }
    out
}

struct Finding {
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Finding {
    const YES: Self = Self {
        holds: true,
        reason: None,
        message: None,
    };

    fn no(reason: &'static str, message: Option<String>) -> Self {
        Self {
            holds: false,
            reason: Some(reason),
            message,
        }
    }
}

fn conditions(
    old: Option<&PodStatus>,
    view: &PodView,
    containers: &[ContainerView],
    phase: &str,
    now: Timestamp,
) -> Vec<PodCondition> {
    let sandbox = Finding {
        holds: view.place.is_some() && !view.finished,
        reason: None,
        message: None,
    };
    let found = [
        sandbox,
        initialized(containers, phase),
        ready(containers, phase),
        ready(containers, phase),
        Finding::YES,
    ];
    let condition = |(kind, finding): (&str, Finding)| {
        let status = if finding.holds { "True" } else { "False" };
        let previous = old.into_iter().flat_map(|s| s.conditions.iter().flatten());
        let mut same = previous.filter(|c| c.type_ == kind && c.status == status);
        let since = same.next().and_then(|c| c.last_transition_time.clone());
        PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: finding.reason.map(str::to_owned),
            message: finding.message,
            last_transition_time: since.or_else(|| Some(time(now))),
            ..PodCondition::default()
        }
    };
    CONDITIONS.into_iter().zip(found).map(condition).collect()
}

fn initialized(containers: &[ContainerView], phase: &str) -> Finding {
    let done = |c: &ContainerView| match c.role {
        Role::Init => exit_code(&c.state) == Some(0),
        Role::Sidecar => c.started,
        Role::Main => true,
    };
    let has_begun = containers
        .iter()
        .any(|c| c.role == Role::Main && (c.id.is_some() || c.last.is_some()));
    if phase == "Succeeded" {
        return Finding {
            reason: Some("PodCompleted"),
            ..Finding::YES
        };
    }
    // Once a main container has run, a sidecar that restarts does not take it back.
    if has_begun {
        return Finding::YES;
    }
    incomplete(containers, done).map_or(Finding::YES, |names| {
        let message = format!("containers with incomplete status: [{names}]");
        Finding::no("ContainersNotInitialized", Some(message))
    })
}

fn ready(containers: &[ContainerView], phase: &str) -> Finding {
    match phase {
        "Succeeded" => return Finding::no("PodCompleted", None),
        "Failed" => return Finding::no("PodFailed", None),
        _ => {}
    }
    let counts = |c: &ContainerView| c.role == Role::Init || c.ready;
    incomplete(containers, counts).map_or(Finding::YES, |names| {
        let message = format!("containers with unready status: [{names}]");
        Finding::no("ContainersNotReady", Some(message))
    })
}

/// Names of the containers for which `good` does not hold.
fn incomplete(
    containers: &[ContainerView],
    good: impl Fn(&ContainerView) -> bool,
) -> Option<String> {
    let names: Vec<_> = containers
        .iter()
        .filter(|c| !good(c))
        .map(|c| c.name.as_str())
        .collect();
    (!names.is_empty()).then(|| names.join(" "))
}

#[cfg(test)]
mod tests;
