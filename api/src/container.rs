//! The state of a pod's containers in words, as their node last reported it.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod};

/// Reasons for which a container waits although nothing is wrong: it is being created, or init
/// containers run before it.
pub const ON_THE_WAY: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// The words of the node about each container that does not run although it should.
pub fn idle_containers(pod: &Pod) -> Vec<String> {
    let Some(status) = &pod.status else {
        return Vec::new();
    };
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let reported = lists.into_iter().flatten().flatten();
    let runs =
        |status: &ContainerStatus| status.state.as_ref().is_some_and(|s| s.running.is_some());
    reported
        .filter(|status| !runs(status))
        .filter_map(container_trouble)
        .collect()
}

/// The words of the node about a container that does not run although it should, or that was
/// restarted after an error. `None` where nothing is wrong.
pub fn container_trouble(status: &ContainerStatus) -> Option<String> {
    let ended = last_end(status).filter(|ended| ended.exit_code != 0);
    let waiting = status.state.as_ref().and_then(|s| s.waiting.as_ref());
    let waits = waiting.and_then(|waiting| waiting.reason.as_deref());
    let waits = waits.filter(|reason| !reason.is_empty() && !ON_THE_WAY.contains(reason));
    let name = &status.name;
    let last = ended.map(|ended| {
        let reason = ended.reason.as_deref().unwrap_or("Error");
        format!(
            "it last ended with exit code {} ({reason})",
            ended.exit_code
        )
    });
    match (waits, last) {
        (Some(reason), last) => {
            let message = waiting.and_then(|waiting| waiting.message.as_deref());
            let parts = [message.map(str::to_owned), last];
            let parts: Vec<String> = parts.into_iter().flatten().collect();
            Some(if parts.is_empty() {
                format!("container {name}: {reason}")
            } else {
                format!("container {name}: {reason}, {}", parts.join("; "))
            })
        }
        (None, Some(last)) => {
            let running = status.state.as_ref().is_some_and(|s| s.running.is_some());
            let many = status.restart_count;
            let now = if running { "runs" } else { "does not run" };
            Some(format!(
                "container {name} {now}, restarted {many} times; {last}"
            ))
        }
        (None, None) => None,
    }
}

/// The latest end of a container, if it ended.
pub fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    let mut newest_first = [&status.state, &status.last_state].into_iter().flatten();
    newest_first.find_map(|state| state.terminated.as_ref())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_container_that_does_not_run_is_told_with_its_reason_and_message() {
        let container = |name: &str, state: Value| json!({"name": name, "ready": false, "restartCount": 3, "image": "", "imageID": "", "state": state});
        let waits = |reason: &str, message: Value| json!({"waiting": {"reason": reason, "message": message}});
        let pod = json!({
            "metadata": {"name": "etcd-0"},
            "status": {
                "initContainerStatuses": [
                    container("done", json!({"terminated": {"exitCode": 0}})),
                    container("keys", json!({"terminated": {"exitCode": 7}})),
                ],
                "containerStatuses": [
                    container("etcd", waits("ImagePullBackOff", json!("Back-off pulling image"))),
                    container("backup", waits("CrashLoopBackOff", Value::Null)),
                    container("new", waits("ContainerCreating", Value::Null)),
                    container("runs", json!({"running": {}})),
                ],
            },
        });
        let told = idle_containers(&serde_json::from_value(pod).unwrap());
        assert_eq!(
            told,
            [
                "container keys does not run, restarted 3 times; it last ended with exit code 7 (Error)",
                "container etcd: ImagePullBackOff, Back-off pulling image",
                "container backup: CrashLoopBackOff",
            ]
        );
    }
}
