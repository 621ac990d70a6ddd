//! The states of a pod's containers, as their node last reported them.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStatus, Pod, PodStatus};

use super::etcd_container;
use crate::api::{ON_THE_WAY, container_trouble, last_end};
use crate::plan::replacement::Exit;
use crate::quorum::pod::Containers;

/// The restarts after which etcd counts as failing in a pod. The kubelet's pauses before them make
/// more than a minute.
pub(super) const MANY_RESTARTS: i32 = 3;

/// The time after which a container that was restarted counts as lasting.
const LASTS: Duration = Duration::from_mins(1);

/// The exit codes of processes that a signal ended.
const SIGINT: i32 = 130;
const SIGKILL: i32 = 137;
const SIGTERM: i32 = 143;

/// The beginning of a kubelet's message for a rejected pod, since Kubernetes 1.28.
const REJECTED: &str = "Pod was rejected";
/// The beginning of a kubelet's reason if the node lacks a resource: `OutOfcpu`, `OutOfpods`, ….
const OUT_OF: &str = "OutOf";
/// The other reasons of kubelets that do not admit a pod (`pkg/kubelet/lifecycle`, the device and
/// topology managers, node shutdown).
const REJECTIONS: [&str; 11] = [
    "NodeAffinity",
    "NodeName",
    "NodePorts",
    "TaintToleration",
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "AppArmor",
    "SysctlForbidden",
    "PodOSNotSupported",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "NodeShutdown",
];

/// The last reported status of etcd's container.
pub(super) fn etcd_status<'a>(pod: &'a Pod, named: Option<&str>) -> Option<&'a ContainerStatus> {
    let name = &etcd_container::of_pod(pod, named)?.name;
    let status = pod.status.as_ref()?;
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut reported = lists.into_iter().flatten().flatten();
    reported.find(|status| status.name == *name)
}

/// The exit code with which etcd's container last ended, if that was seen, and the number of its
/// restarts in this pod.
pub fn etcd_history(pod: &Pod, named: Option<&str>) -> (Option<i32>, u32) {
    let Some(status) = etcd_status(pod, named) else {
        return (None, 0);
    };
    let last = status.last_state.as_ref();
    let ended = last.and_then(|last| last.terminated.as_ref());
    let restarts = status.restart_count.try_into().unwrap_or_default();
    (ended.map(|ended| ended.exit_code), restarts)
}

/// The way in which etcd's container ended last, where it ends over and over: it was restarted
/// `restarts` times or more, and has not been running for [`LASTS`] since.
///
/// A kubelet ends a container whose probe fails by SIGTERM and then SIGKILL. etcd ends with 143 on
/// the former, and with 0 where it is the first process of its container.
pub(super) fn crash_loop(
    pod: &Pod,
    named: Option<&str>,
    restarts: i32,
    now: Timestamp,
) -> Option<Exit> {
    let status = etcd_status(pod, named)?;
    let lasts = up_for(pod, named, now).is_some_and(|up_for| up_for >= LASTS);
    if status.restart_count < restarts || lasts {
        return None;
    }
    let ended = last_end(status)?;
    Some(match (ended.reason.as_deref(), ended.exit_code) {
        (Some("OOMKilled"), _) => Exit::Memory,
        (_, 0 | SIGINT | SIGKILL | SIGTERM) => Exit::FromOutside,
        _ if ended.signal.is_some_and(|signal| signal != 0) => Exit::FromOutside,
        _ => Exit::ByItself,
    })
}

/// The time for which etcd's container has been running at `now`, by its node's clock. `None` if it
/// does not run.
pub(super) fn up_for(pod: &Pod, named: Option<&str>, now: Timestamp) -> Option<Duration> {
    let state = etcd_status(pod, named)?.state.as_ref()?;
    let since = state.running.as_ref()?.started_at.as_ref()?.0;
    Some(Duration::try_from(now.duration_since(since)).unwrap_or_default())
}

/// Whether a container that runs beside etcd's was reported as not ready. A container without a
/// status is not counted.
pub(super) fn sidecar_failing(pod: &Pod, named: Option<&str>) -> bool {
    let etcd = etcd_container::of_pod(pod, named);
    let (Some(etcd), Some(status)) = (etcd, &pod.status) else {
        return false;
    };
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let unready: Vec<&str> = lists
        .into_iter()
        .flatten()
        .flatten()
        .filter(|reported| !reported.ready)
        .map(|reported| reported.name.as_str())
        .collect();
    lasting(pod)
        .any(|container| container.name != etcd.name && unready.contains(&container.name.as_str()))
}

fn lasting(pod: &Pod) -> impl Iterator<Item = &Container> {
    pod.spec.iter().flat_map(etcd_container::lasting)
}

/// The last reported state of the pod's containers.
pub(super) fn reported(pod: &Pod, named: Option<&str>) -> Containers {
    if all_terminated(pod) {
        let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
        return Containers::AllTerminated {
            finished: matches!(phase, Some("Failed" | "Succeeded")),
        };
    }
    if let Some(reason) = rejection(pod) {
        return Containers::Rejected {
            reason: reason.to_owned(),
        };
    }
    etcd_status(pod, named)
        .and_then(|status| status.state.as_ref())
        .map_or(Containers::Unreported, of_state)
}

/// The reason for which a kubelet rejected the pod, typically after a reboot. A rejected pod has
/// failed, has no address and no container statuses, and its containers do not run. (Pod garbage
/// collection also writes the phase alone, but it gives no reason, and leaves the other fields.)
///
/// A kubelet that is restarted afterwards reports every container as about to be created. It leaves
/// the phase and its reason, since a final phase is never taken back.
fn rejection(pod: &Pod) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let failed = status.phase.as_deref() == Some("Failed");
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let never_ran = lists.into_iter().flatten().flatten().all(is_untried)
        && status.pod_ip.as_deref().is_none_or(str::is_empty);
    let reason = status.reason.as_deref()?;
    let message = status.message.as_deref().unwrap_or_default();
    let rejected =
        message.starts_with(REJECTED) || reason.starts_with(OUT_OF) || REJECTIONS.contains(&reason);
    (failed && never_ran && rejected).then_some(reason)
}

/// Whether a container waits for its first start.
fn is_untried(container: &ContainerStatus) -> bool {
    let waiting = container.state.as_ref().and_then(|s| s.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    let ended = container
        .last_state
        .as_ref()
        .is_some_and(|last| last.terminated.is_some());
    reason.is_some_and(|reason| ON_THE_WAY.contains(&reason))
        && !ended
        && container.restart_count == 0
}

fn of_state(state: &ContainerState) -> Containers {
    if state.running.is_some() {
        return Containers::Running;
    }
    if let Some(terminated) = &state.terminated {
        let reason = terminated.reason.clone();
        return Containers::EtcdFailed {
            reason: reason.unwrap_or_else(|| format!("exit code {}", terminated.exit_code)),
        };
    }
    let waiting = state.waiting.as_ref().and_then(|w| w.reason.as_deref());
    match waiting {
        None | Some("") => Containers::Unreported,
        Some(reason) if ON_THE_WAY.contains(&reason) => Containers::Creating,
        Some(reason) => Containers::EtcdFailed {
            reason: reason.to_owned(),
        },
    }
}

/// Whether every container of the pod is reported as terminated. A container without a status may
/// run.
fn all_terminated(pod: &Pod) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    let mut lasting = lasting(pod).peekable();
    lasting.peek().is_some() && lasting.all(|container| is_terminated(status, &container.name))
}

fn is_terminated(status: &PodStatus, container: &str) -> bool {
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut reported = lists.into_iter().flatten().flatten();
    reported
        .find(|reported| reported.name == container)
        .and_then(|reported| reported.state.as_ref())
        .is_some_and(|state| state.terminated.is_some())
}

/// The words of the node about etcd's container where it does not run, or about an init container
/// that keeps it from starting: the reason, such as `ImagePullBackOff`, and the message.
pub(super) fn trouble(pod: &Pod, named: Option<&str>) -> Option<String> {
    let etcd = etcd_status(pod, named);
    let status = pod.status.as_ref()?;
    let before = status.init_container_statuses.iter().flatten();
    let before = before.filter(|status| etcd.is_none_or(|etcd| etcd.name != status.name));
    etcd.into_iter().chain(before).find_map(container_trouble)
}
