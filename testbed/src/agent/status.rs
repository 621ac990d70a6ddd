//! A pod's status, computed from the states of its containers. Pure: without clock and IO.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::address;
use super::fields::Placement;

/// The role of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An init container, which runs to its end before the next one starts.
    Init,
    /// An init container with `restartPolicy: Always`, which starts in its turn and then keeps
    /// running.
    Sidecar,
    /// A container of `spec.containers`.
    Main,
}

/// The state of a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// Waiting, with the reason.
    Waiting(Waiting),
    /// Running since this time.
    Running(Timestamp),
    /// Terminated.
    Terminated(ContainerStateTerminated),
}

/// The reason why a container does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// The kubelet's word for the reason, such as `CrashLoopBackOff`.
    pub reason: &'static str,
    /// A message with details.
    pub message: Option<String>,
}

/// A container as the status shows it.
#[derive(Clone, Debug)]
pub(super) struct ContainerView {
    /// The container's name.
    pub name: String,
    /// The container's role.
    pub role: Role,
    /// The image in the spec.
    pub image: String,
    /// The unique name of the attempt.
    pub id: Option<String>,
    /// The container's state.
    pub state: State,
    /// The end of the attempt before.
    pub last: Option<ContainerStateTerminated>,
    /// The number of restarts so far.
    pub restarts: i32,
    /// Whether the startup probe has succeeded, or the container has none and runs.
    pub started: bool,
    /// Whether the readiness probe has succeeded, or the container has none and has started.
    pub ready: bool,
    /// The resources it runs with.
    pub resources: Option<ResourceRequirements>,
}

/// The reason for which a node has ended a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The reason, such as `DeadlineExceeded`.
    pub reason: String,
    /// The message for people.
    pub message: String,
}

/// A pod as the status shows it.
#[derive(Clone, Debug)]
pub(super) struct PodView {
    /// The containers, init containers first, in the order of the spec.
    pub containers: Vec<ContainerView>,
    /// The addresses. `None` before the pod has one.
    pub place: Option<Placement>,
    /// The time at which the agent accepted the pod.
    pub accepted_at: Timestamp,
    /// The reason, if the node has ended the pod.
    pub ended: Option<Ended>,
    /// Whether all containers have ended for good.
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

/// The status to publish. Conditions that did not change keep their transition times.
pub(super) fn compute(
    pod: &Pod,
    old: Option<&PodStatus>,
    view: &PodView,
    now: Timestamp,
) -> PodStatus {
    let containers: Vec<_> = view.containers.iter().map(|c| settled(c, view)).collect();
    let phase = phase(pod, old, view, &containers);
    let (mains, inits): (Vec<_>, Vec<_>) = containers.iter().partition(|c| c.role == Role::Main);
    let ips = view.place.map(|place| {
        let all = address::all(place.ip).into_iter();
        let all = all.map(|ip| PodIP { ip: ip.to_string() });
        all.collect::<Vec<_>>()
    });
    let first = ips.as_ref().and_then(|ips| ips.first());
    let ip = first.map(|first| first.ip.clone());
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
        pod_ips: ips,
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

/// A time in the API's precision of whole seconds.
pub(super) fn time(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// The view of a container in a finished pod, where no container waits any more. Containers that
/// never ran are reported as the kubelet does.
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
    // A final phase is never taken back.
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

/// The entry of a container in the status.
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
    // Once a main container has run, a restart of a sidecar does not reset the condition.
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

/// The names of the containers for which `good` does not hold.
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
