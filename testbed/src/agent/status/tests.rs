use std::net::Ipv4Addr;

use serde_json::json;

use super::*;

fn pod(policy: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "a-0", "namespace": "ns", "generation": 3},
        "spec": {"containers": [], "restartPolicy": policy}
    }))
    .unwrap()
}

fn end(code: i32) -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: code,
        ..ContainerStateTerminated::default()
    }
}

fn waiting(reason: &'static str) -> State {
    State::Waiting(Waiting {
        reason,
        message: None,
    })
}

fn running() -> State {
    State::Running(Timestamp::UNIX_EPOCH)
}

fn container(role: Role, state: State) -> ContainerView {
    let runs = matches!(state, State::Running(_));
    ContainerView {
        name: "c".to_owned(),
        role,
        image: "busybox".to_owned(),
        id: runs.then(|| "id".to_owned()),
        state,
        last: None,
        restarts: 0,
        started: runs,
        ready: runs,
        resources: None,
    }
}

fn view(containers: Vec<ContainerView>) -> PodView {
    let ip = Ipv4Addr::new(127, 64, 0, 9);
    PodView {
        containers,
        place: Some(Placement {
            ip: ip.into(),
            host_ip: Ipv4Addr::new(127, 64, 0, 1),
        }),
        accepted_at: Timestamp::UNIX_EPOCH,
        ended: None,
        finished: false,
    }
}

fn status_of(policy: &str, containers: Vec<ContainerView>) -> PodStatus {
    compute(&pod(policy), None, &view(containers), Timestamp::UNIX_EPOCH)
}

fn phase_of(policy: &str, containers: Vec<ContainerView>) -> String {
    status_of(policy, containers).phase.unwrap()
}

fn condition(status: &PodStatus, kind: &str) -> (String, Option<String>) {
    let all = status.conditions.iter().flatten();
    let found = all.into_iter().find(|c| c.type_ == kind).unwrap();
    (found.status.clone(), found.reason.clone())
}

#[test]
fn a_pod_is_pending_until_every_main_container_has_run() {
    let mains = |second| {
        vec![
            container(Role::Main, running()),
            container(Role::Main, second),
        ]
    };
    assert_eq!(
        phase_of("Always", mains(waiting("ContainerCreating"))),
        "Pending"
    );
    assert_eq!(phase_of("Always", mains(running())), "Running");
    let mut crashing = container(Role::Main, waiting("CrashLoopBackOff"));
    crashing.last = Some(end(1));
    assert_eq!(phase_of("Always", vec![crashing]), "Running");
}

#[test]
fn restart_policy_decides_what_an_exit_means() {
    let exited = |code| vec![container(Role::Main, State::Terminated(end(code)))];
    assert_eq!(phase_of("Always", exited(0)), "Running");
    assert_eq!(phase_of("Never", exited(0)), "Succeeded");
    assert_eq!(phase_of("Never", exited(1)), "Failed");
    assert_eq!(phase_of("OnFailure", exited(0)), "Succeeded");
    assert_eq!(phase_of("OnFailure", exited(1)), "Running");
}

#[test]
fn an_init_container_that_failed_for_good_fails_the_pod() {
    let containers = |code| {
        vec![
            container(Role::Init, State::Terminated(end(code))),
            container(Role::Main, waiting("PodInitializing")),
        ]
    };
    assert_eq!(phase_of("Never", containers(1)), "Failed");
    assert_eq!(phase_of("Always", containers(1)), "Pending");
    let status = status_of("Always", containers(1));
    let reason = Some("ContainersNotInitialized".to_owned());
    assert_eq!(
        condition(&status, "Initialized"),
        ("False".to_owned(), reason)
    );
    assert_eq!(
        condition(&status_of("Never", containers(0)), "Initialized").0,
        "True"
    );
}

#[test]
fn ready_needs_every_main_container_and_sidecar() {
    let mut sidecar = container(Role::Sidecar, running());
    let containers = |s: &ContainerView| vec![s.clone(), container(Role::Main, running())];
    assert_eq!(
        condition(&status_of("Always", containers(&sidecar)), "Ready").0,
        "True"
    );
    sidecar.ready = false;
    let status = status_of("Always", containers(&sidecar));
    let reason = Some("ContainersNotReady".to_owned());
    assert_eq!(
        condition(&status, "Ready"),
        ("False".to_owned(), reason.clone())
    );
    assert_eq!(
        condition(&status, "ContainersReady"),
        ("False".to_owned(), reason)
    );
}

#[test]
fn a_finished_pod_has_only_terminated_containers_and_a_final_phase() {
    let mut view = view(vec![
        container(Role::Main, State::Terminated(end(0))),
        container(Role::Main, waiting("ContainerCreating")),
    ]);
    view.finished = true;
    let status = compute(&pod("Always"), None, &view, Timestamp::UNIX_EPOCH);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let ends: Vec<_> = status.container_statuses.iter().flatten().collect();
    assert!(
        ends.iter()
            .all(|c| !c.ready && c.state.as_ref().unwrap().terminated.is_some())
    );
    assert_eq!(condition(&status, "PodReadyToStartContainers").0, "False");
}

#[test]
fn a_pod_ended_by_its_node_is_failed_with_the_reason() {
    let mut view = view(vec![container(Role::Main, running())]);
    let message = "too long".to_owned();
    view.ended = Some(Ended {
        reason: "DeadlineExceeded".to_owned(),
        message,
    });
    let status = compute(&pod("Always"), None, &view, Timestamp::UNIX_EPOCH);
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn transition_times_stay_while_the_status_stays() {
    let pod = pod("Always");
    let view = view(vec![container(Role::Main, running())]);
    let first = compute(&pod, None, &view, Timestamp::UNIX_EPOCH);
    let later = compute(
        &pod,
        Some(&first),
        &view,
        Timestamp::from_second(100).unwrap(),
    );
    assert_eq!(later, first);
}
