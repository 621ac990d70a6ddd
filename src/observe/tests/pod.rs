use serde_json::{Value, json};

use super::{budget, pod};
use crate::ledger::Page;
use crate::observe::{containers, etcd_container, lease, nodes, pods};
use crate::plan::replacement::Exit;
use crate::quorum::MemberId;
use crate::quorum::pod::{Containers, LeaseRole, Node};

fn reported(status: &Value) -> Containers {
    containers::reported(&pod(&json!({"status": status})), None)
}

fn etcd_in(state: &Value) -> Containers {
    reported(&json!({"containerStatuses": [container("etcd", state)]}))
}

fn container(name: &str, state: &Value) -> Value {
    json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

fn failed(reason: &str) -> Containers {
    Containers::EtcdFailed {
        reason: reason.into(),
    }
}

#[test]
fn the_state_of_etcds_container_follows_its_status() {
    assert_eq!(etcd_in(&json!({"running": {}})), Containers::Running);
    assert_eq!(
        etcd_in(&json!({"waiting": {"reason": "ContainerCreating"}})),
        Containers::Creating
    );
    assert_eq!(
        etcd_in(&json!({"waiting": {"reason": "PodInitializing"}})),
        Containers::Creating
    );
    for reason in [
        "CrashLoopBackOff",
        "ErrImagePull",
        "CreateContainerConfigError",
    ] {
        assert_eq!(
            etcd_in(&json!({"waiting": {"reason": reason}})),
            failed(reason)
        );
    }
    assert_eq!(etcd_in(&json!({"waiting": {}})), Containers::Unreported);
    assert_eq!(etcd_in(&json!({})), Containers::Unreported);
    assert_eq!(
        reported(&json!({"containerStatuses": null})),
        Containers::Unreported
    );
}

#[test]
fn a_pod_that_its_kubelet_rejected_never_ran() {
    let rejected = |change: Value| {
        let mut status = json!({
            "phase": "Failed", "reason": "OutOfcpu",
            "message": "Pod was rejected: Node didn't have enough resource: cpu",
            "podIP": null, "containerStatuses": null,
        });
        json_patch::merge(&mut status, &change);
        matches!(reported(&status), Containers::Rejected { .. })
    };
    assert!(rejected(json!({})));
    assert!(rejected(
        json!({"reason": "NodeAffinity", "message": "Predicate NodeAffinity failed"})
    ));
    assert!(
        rejected(json!({"reason": "SomethingNew"})),
        "a kubelet says so"
    );
    // A kubelet that restarts after it has rejected the pod reports this.
    let about_to_be = |reason: &str| container("etcd", &json!({"waiting": {"reason": reason}}));
    assert!(rejected(
        json!({"containerStatuses": [about_to_be("ContainerCreating")]})
    ));
    assert!(rejected(json!({
        "containerStatuses": [about_to_be("PodInitializing")],
        "initContainerStatuses": [about_to_be("ContainerCreating")],
    })));
    let mut ended = about_to_be("ContainerCreating");
    json_patch::merge(
        &mut ended,
        &json!({"lastState": {"terminated": {"exitCode": 0}}}),
    );
    let ran = [
        json!({"phase": "Running"}),
        json!({"phase": "Pending", "containerStatuses": [about_to_be("ContainerCreating")]}),
        json!({"podIP": "10.0.0.9"}),
        json!({"containerStatuses": [container("etcd", &json!({"running": {}}))]}),
        json!({"containerStatuses": [about_to_be("CrashLoopBackOff")]}),
        json!({"containerStatuses": [ended]}),
        json!({
            "containerStatuses": [about_to_be("ContainerCreating")],
            "initContainerStatuses": [container("restore", &json!({"running": {}}))],
        }),
        // Pod garbage collection writes the phase alone.
        json!({"reason": null, "message": null}),
        json!({"reason": "DeadlineExceeded", "message": "Pod was active too long"}),
    ];
    for ran in ran {
        assert!(!rejected(ran.clone()), "{ran}");
    }
}

#[test]
fn all_terminated_needs_every_container_and_the_phase_says_whether_it_is_final() {
    let over = json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
    let phase = |phase: &str| {
        reported(&json!({"phase": phase, "containerStatuses": [container("etcd", &over)]}))
    };
    assert_eq!(
        phase("Failed"),
        Containers::AllTerminated { finished: true }
    );
    assert_eq!(
        phase("Succeeded"),
        Containers::AllTerminated { finished: true }
    );
    assert_eq!(
        phase("Running"),
        Containers::AllTerminated { finished: false }
    );
}

#[test]
fn a_container_that_nothing_is_reported_of_may_run() {
    let over = json!({"terminated": {"exitCode": 137}});
    let sidecar = |statuses: Value| {
        containers::reported(
            &pod(&json!({
                "spec": {"containers": [{"name": "etcd"}, {"name": "backup-restore"}]},
                "status": {"phase": "Failed", "containerStatuses": statuses},
            })),
            None,
        )
    };
    assert_eq!(
        sidecar(json!([container("etcd", &over)])),
        failed("exit code 137")
    );
    assert_eq!(
        sidecar(json!([
            container("etcd", &over),
            container("backup-restore", &json!({"running": {}}))
        ])),
        failed("exit code 137"),
    );
    assert_eq!(
        sidecar(json!([
            container("etcd", &over),
            container("backup-restore", &over)
        ])),
        Containers::AllTerminated { finished: true },
    );
}

#[test]
fn a_failed_phase_alone_proves_nothing() {
    assert_eq!(reported(&json!({"phase": "Failed"})), Containers::Running);
}

#[test]
fn a_sidecar_among_the_init_containers_counts_and_other_init_containers_do_not() {
    let over = json!({"terminated": {"exitCode": 0}});
    let with_init = |policy: Value, state: &Value| {
        containers::reported(
            &pod(&json!({
                "spec": {"initContainers": [{"name": "init", "restartPolicy": policy}]},
                "status": {
                    "containerStatuses": [container("etcd", &over)],
                    "initContainerStatuses": [container("init", state)],
                },
            })),
            None,
        )
    };
    let running = json!({"running": {}});
    let ended = Containers::AllTerminated { finished: false };
    assert_eq!(with_init(json!("Always"), &running), failed("exit code 0"));
    assert_eq!(with_init(json!("Always"), &over), ended);
    assert_eq!(with_init(Value::Null, &running), ended);
}

#[test]
fn etcd_is_the_container_of_that_name_or_the_only_one() {
    let named = |names: &[&str]| {
        let containers: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let pod = pod(&json!({"spec": {"containers": containers}}));
        etcd_container::of_pod(&pod, None).map(|container| container.name.clone())
    };
    assert_eq!(named(&["backup-restore", "etcd"]), Some("etcd".into()));
    assert_eq!(named(&["main"]), Some("main".into()));
    assert_eq!(named(&["main", "other"]), None);
}

#[test]
fn a_node_is_what_its_conditions_and_taints_say() {
    let node = |ready: &str, taint: &str| {
        let node = json!({
            "metadata": {"name": "n"},
            "spec": {"taints": [{"key": taint, "effect": "NoExecute"}]},
            "status": {"conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": ready}]},
        });
        nodes::state(&serde_json::from_value(node).unwrap())
    };
    let (gone, other) = (
        "node.kubernetes.io/out-of-service",
        "node.kubernetes.io/unreachable",
    );
    assert_eq!(node("True", other), Node::Ready);
    assert_eq!(
        node("True", gone),
        Node::Ready,
        "a taint alone, on a node that reports, proves nothing"
    );
    assert_eq!(node("Unknown", other), Node::NotReady);
    assert_eq!(node("False", gone), Node::OutOfService);
    assert_eq!(
        nodes::state(&serde_json::from_value(json!({"metadata": {}})).unwrap()),
        Node::NotReady
    );
}

#[test]
fn a_pod_becomes_facts() {
    let page = Page::read(budget(&json!({"status": {"members": [
        {"name": "etcd-0", "pod": "etcd-0", "podUID": "u0", "memberID": "a1", "role": "Voter", "serving": true},
    ]}})))
    .unwrap();
    let facts = pods::facts(
        &pod(&json!({})),
        Node::Ready,
        Some(LeaseRole::Leader),
        Some(&page),
    );
    assert_eq!(facts.name, "etcd-0".into());
    assert_eq!(facts.uid, "u0".into());
    assert_eq!(facts.ordinal.map(|o| o.0), Some(0));
    assert!(facts.has_address && facts.ready && facts.etcd_ready && !facts.terminating);
    assert_eq!(facts.revision.as_deref(), Some("etcd-1"));
    assert_eq!(facts.recorded_id, Some(MemberId(0xa1)));
    assert_eq!(facts.lease_role, Some(LeaseRole::Leader));

    let going = pods::facts(
        &pod(&json!({
            "metadata": {"uid": "u9", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"podIP": null, "conditions": [{"type": "Ready", "status": "False"}]},
        })),
        Node::NotReady,
        None,
        Some(&page),
    );
    assert!(going.terminating && !going.has_address && !going.ready);
    assert_eq!(
        going.recorded_id,
        Some(MemberId(0xa1)),
        "by its name, for a new incarnation"
    );
}

#[test]
fn a_sidecar_fails_only_when_it_is_reported_so() {
    let beside = |status: Value, init: Value| {
        containers::sidecar_failing(
            &pod(&json!({
                "spec": {
                    "containers": [{"name": "etcd"}, {"name": "backup-restore"}],
                    "initContainers": [{"name": "once"}, {"name": "lasting", "restartPolicy": "Always"}],
                },
                "status": {"containerStatuses": status, "initContainerStatuses": init},
            })),
            None,
        )
    };
    let ready = |name: &str, ready: bool| {
        let mut status = container(name, &json!({"running": {}}));
        status["ready"] = ready.into();
        status
    };
    assert!(!beside(json!([]), json!([])));
    assert!(!beside(
        json!([ready("etcd", false), ready("backup-restore", true)]),
        json!([])
    ));
    assert!(beside(
        json!([ready("etcd", true), ready("backup-restore", false)]),
        json!([])
    ));
    assert!(!beside(
        json!([]),
        json!([ready("once", false), ready("lasting", true)])
    ));
    assert!(beside(json!([]), json!([ready("lasting", false)])));
}

#[test]
fn an_id_recorded_for_the_incarnation_comes_before_one_for_the_name() {
    let page = Page::read(budget(&json!({"status": {"members": [
        {"name": "etcd-0", "pod": "etcd-0", "podUID": "old", "memberID": "a1", "role": "Voter", "serving": true},
        {"name": "renamed", "podUID": "u0", "memberID": "b2", "role": "Voter", "serving": true},
    ]}})))
    .unwrap();
    assert_eq!(
        page.recorded_id(&"etcd-0".into(), &"u0".into()),
        Some(MemberId(0xb2))
    );
}

#[test]
fn roles_come_from_leases_of_two_or_three_fields() {
    let lease = |name: &str, holder: &str| {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"holderIdentity": holder}}),
        )
        .unwrap()
    };
    for (holder, role) in [
        ("a1:Leader", Some(LeaseRole::Leader)),
        ("a1:c1:Leader", Some(LeaseRole::Leader)),
        ("a1:c1:Member", Some(LeaseRole::Follower)),
        ("a1", None),
        ("a:b:c:Leader", None),
    ] {
        assert_eq!(lease::role(&lease("etcd-0", holder)), role, "{holder}");
    }
    let leases = [
        lease("shoot-etcd-0", "a:Leader"),
        lease("etcd-1", "b:Member"),
    ];
    assert_eq!(
        lease::role_of(&"etcd-0".into(), &leases),
        Some(LeaseRole::Leader),
        "with a prefix"
    );
    assert_eq!(
        lease::role_of(&"etcd-1".into(), &leases),
        Some(LeaseRole::Follower)
    );
    assert_eq!(lease::role_of(&"etcd-2".into(), &leases), None);
}

/// The exit of etcd's container that was restarted as often, in this state, and ended so before.
fn ends(restarts: u32, state: &Value, last: &Value) -> Option<Exit> {
    let mut status = container("etcd", state);
    status["restartCount"] = json!(restarts);
    status["lastState"] = json!({"terminated": last});
    let pod = pod(&json!({"status": {"containerStatuses": [status]}}));
    let now = "2026-01-01T00:10:00Z".parse().unwrap();
    containers::crash_loop(&pod, None, 3, now)
}

#[test]
fn etcd_ends_over_and_over_by_itself_by_memory_or_from_outside() {
    let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let exit =
        |code: i32, reason: &str| ends(3, &waits, &json!({"exitCode": code, "reason": reason}));
    assert_eq!(exit(1, "Error"), Some(Exit::ByItself));
    assert_eq!(exit(2, "Error"), Some(Exit::ByItself));
    assert_eq!(exit(137, "OOMKilled"), Some(Exit::Memory));
    for code in [0, 130, 137, 143] {
        assert_eq!(exit(code, "Error"), Some(Exit::FromOutside), "{code}");
    }
}

#[test]
fn etcd_that_was_restarted_seldom_or_lasts_is_in_no_crash_loop() {
    let error = json!({"exitCode": 2, "reason": "Error"});
    let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let since = |at: &str| json!({"running": {"startedAt": format!("2026-01-01T00:{at}Z")}});
    assert_eq!(ends(2, &waits, &error), None);
    assert_eq!(ends(3, &since("09:30"), &error), Some(Exit::ByItself));
    assert_eq!(ends(3, &since("08:59"), &error), None);
    assert_eq!(ends(3, &waits, &json!(null)), None);
    let ended = json!({"terminated": {"exitCode": 143, "reason": "Error"}});
    assert_eq!(
        ends(3, &ended, &error),
        Some(Exit::FromOutside),
        "the latest end counts"
    );
}

#[test]
fn what_a_node_says_of_a_container_that_does_not_run_is_told() {
    let told = |containers: Value| {
        let pod = pod(&json!({"status": containers}));
        containers::trouble(&pod, None)
    };
    let pulls = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no image etcd:0"}});
    assert_eq!(
        told(json!({"containerStatuses": [container("etcd", &pulls)]})).as_deref(),
        Some("container etcd: ImagePullBackOff, no image etcd:0")
    );
    let waits = json!({"waiting": {"reason": "CrashLoopBackOff"}});
    let mut loops = container("etcd", &waits);
    loops["lastState"] = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
    assert_eq!(
        told(json!({"containerStatuses": [loops]})).as_deref(),
        Some("container etcd: CrashLoopBackOff, it last ended with exit code 137 (OOMKilled)")
    );
    let before = json!({"waiting": {"reason": "PodInitializing"}});
    let config =
        json!({"waiting": {"reason": "CreateContainerConfigError", "message": "no Secret a"}});
    let init = json!({
        "containerStatuses": [container("etcd", &before)],
        "initContainerStatuses": [container("prepare", &config)],
    });
    assert_eq!(
        told(init).as_deref(),
        Some("container prepare: CreateContainerConfigError, no Secret a")
    );
    assert_eq!(
        told(json!({"containerStatuses": [container("etcd", &before)]})),
        None
    );
}
