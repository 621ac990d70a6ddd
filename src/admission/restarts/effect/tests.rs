use serde_json::{Value, json};

use super::*;

/// A pod with etcd and a sidecar, both with one CPU and 1 GiB.
fn pod() -> Value {
    let resources = json!({
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "1", "memory": "1Gi"},
    });
    json!({
        "containers": [
            {"name": "backup-restore", "image": "etcdbr:1", "resources": resources},
            {"name": "etcd", "image": "etcd:1", "resources": resources},
        ],
        "initContainers": [{"name": "permissions", "image": "alpine:1"}],
        "ephemeralContainers": [{"name": "debug", "image": "busybox"}],
    })
}

/// The pod with changed fields, by JSON pointer.
fn with(fields: &[(&str, Value)]) -> Value {
    changed(pod(), fields)
}

fn changed(mut pod: Value, fields: &[(&str, Value)]) -> Value {
    for (pointer, value) in fields {
        let mut place = &mut pod;
        for key in pointer.split('/').skip(1) {
            place = match key.parse::<usize>() {
                Ok(index) => &mut place[index],
                Err(_) => &mut place[key],
            };
        }
        place.clone_from(value);
    }
    pod
}

#[test]
fn a_pod_that_waits_for_its_data_starts_by_the_loss_of_the_gates_scheduling_gate_only() {
    let gated = |names: &[&str]| {
        let gates: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let mut pod = pod();
        pod["schedulingGates"] = json!(gates);
        pod
    };
    let held = gated(&[IDENTITY, "other"]);
    assert_eq!(effect(&held, &gated(&["other"])), Some(InPlace::Start));
    assert_eq!(effect(&held, &pod()), Some(InPlace::Start));
    assert_eq!(effect(&held, &gated(&[IDENTITY])), None);
    assert_eq!(effect(&gated(&["other"]), &pod()), None);
}

/// The effect whatever the budget says.
fn effect(old: &Value, new: &Value) -> Option<InPlace> {
    let effect = compare(&read(old), &read(new));
    effect
        .filter(|effect| effect.only_of.is_empty())
        .map(|effect| effect.by)
}

fn read(spec: &Value) -> Spec {
    serde_json::from_value(spec.clone()).unwrap()
}

#[test]
fn a_container_without_signs_of_etcd_takes_the_member_where_the_budget_names_it() {
    let only_of = |changed: &Value| compare(&read(&pod()), &read(changed)).unwrap().only_of;
    let sidecar = with(&[(SIDECAR_IMAGE, json!("etcdbr:2"))]);
    assert_eq!(only_of(&sidecar), ["backup-restore"]);
    let both = with(&[
        (SIDECAR_IMAGE, json!("etcdbr:2")),
        (ETCD_IMAGE, json!("etcd:2")),
    ]);
    assert_eq!(only_of(&both), [""; 0]);
}

fn policy(cpu: &str, memory: &str) -> Value {
    json!([
        {"resourceName": "cpu", "restartPolicy": cpu},
        {"resourceName": "memory", "restartPolicy": memory},
    ])
}

const POLICY: &str = "/containers/1/resizePolicy";
const ETCD_IMAGE: &str = "/containers/1/image";
const SIDECAR_IMAGE: &str = "/containers/0/image";
const CPU_LIMIT: &str = "/containers/1/resources/limits/cpu";
const CPU_REQUEST: &str = "/containers/1/resources/requests/cpu";
const MEMORY_LIMIT: &str = "/containers/1/resources/limits/memory";
const MEMORY_REQUEST: &str = "/containers/1/resources/requests/memory";

#[test]
fn k3_a_new_image_of_etcd_restarts_it_whatever_any_policy_says() {
    for image in ["etcd:2", "etcd@sha256:0123"] {
        let new = with(&[(ETCD_IMAGE, json!(image))]);
        assert_eq!(effect(&pod(), &new), Some(InPlace::Image), "{image}");
    }
    let never = with(&[(POLICY, policy("NotRequired", "NotRequired"))]);
    let new = changed(never.clone(), &[(ETCD_IMAGE, json!("etcd:2"))]);
    assert_eq!(effect(&never, &new), Some(InPlace::Image));
}

#[test]
fn k3_new_images_of_other_containers_restart_only_those() {
    for other in [SIDECAR_IMAGE, "/initContainers/0/image"] {
        let new = with(&[(other, json!("another"))]);
        assert_eq!(effect(&pod(), &new), None, "{other}");
    }
}

#[test]
fn an_ephemeral_container_comes_without_a_restart() {
    let more = json!([{"name": "debug", "image": "busybox"}, {"name": "more", "image": "busybox"}]);
    let new = with(&[("/ephemeralContainers", more)]);
    assert_eq!(effect(&pod(), &new), None);
}

#[test]
fn k3_what_changes_neither_image_nor_deadline_nor_resources_restarts_nothing() {
    assert_eq!(effect(&pod(), &pod()), None);
    let tolerating = with(&[("/tolerations", json!([{"operator": "Exists"}]))]);
    assert_eq!(effect(&pod(), &tolerating), None);
    // Only the written image counts. The status of a running container may name the same image in
    // another way.
    let by_digest = with(&[(
        ETCD_IMAGE,
        json!("etcd@sha256:a9286defaba7b3a519d585ba0e37d0b2"),
    )]);
    let tolerating = changed(by_digest.clone(), &[("/tolerations", json!([]))]);
    assert_eq!(effect(&by_digest, &tolerating), None);
}

#[test]
fn the_only_container_is_etcd_whatever_its_name() {
    let old = json!({"containers": [{"name": "main", "image": "etcd:1"}]});
    let new = changed(old.clone(), &[("/containers/0/image", json!("etcd:2"))]);
    assert_eq!(effect(&old, &new), Some(InPlace::Image));
}

#[test]
fn where_nobody_can_tell_which_container_is_etcd_it_may_be_any() {
    let old = with(&[("/containers/1/name", json!("member"))]);
    for image in [SIDECAR_IMAGE, ETCD_IMAGE] {
        let new = changed(old.clone(), &[(image, json!("another"))]);
        assert_eq!(effect(&old, &new), Some(InPlace::Image), "{image}");
    }
}

#[test]
fn a_container_that_restarts_all_others_takes_etcd_along() {
    let rule =
        |action: &str| json!([{"action": action, "exitCodes": {"operator": "In", "values": [42]}}]);
    let rules = "/containers/0/restartPolicyRules";
    for (action, expected) in [
        ("RestartAllContainers", Some(InPlace::Image)),
        ("Restart", None),
    ] {
        let old = with(&[(rules, rule(action))]);
        let new = changed(old.clone(), &[(SIDECAR_IMAGE, json!("another"))]);
        assert_eq!(effect(&old, &new), expected, "{action}");
    }
}

#[test]
fn of_the_init_containers_only_a_running_sidecar_can_take_etcd_along() {
    let rules = json!([{"action": "RestartAllContainers"}]);
    let runs_once = with(&[("/initContainers/0/restartPolicyRules", rules)]);
    let always = ("/initContainers/0/restartPolicy", json!("Always"));
    let sidecar = changed(runs_once.clone(), &[always]);
    for (old, expected) in [(runs_once, None), (sidecar, Some(InPlace::Image))] {
        let new = changed(
            old.clone(),
            &[("/initContainers/0/image", json!("another"))],
        );
        assert_eq!(effect(&old, &new), expected, "{old}");
    }
}

/// A container called `backup` beside etcd, which runs as a native sidecar.
fn native() -> Value {
    json!({
        "containers": [{"name": "backup", "image": "etcdbr:1", "command": ["sleep", "9"]}],
        "initContainers": [
            {"name": "permissions", "image": "alpine:1"},
            {
                "name": "etcd", "image": "etcd:1", "command": ["etcd"], "restartPolicy": "Always",
                "resources": {"requests": {"cpu": "1"}}, "resizePolicy": policy("RestartContainer", "NotRequired"),
            },
        ],
    })
}

#[test]
fn etcd_as_a_native_sidecar_is_restarted_by_its_image_and_its_resize() {
    for (place, value, expected) in [
        (
            "/initContainers/1/image",
            json!("etcd:2"),
            Some(InPlace::Image),
        ),
        (
            "/initContainers/1/resources/requests/cpu",
            json!("2"),
            Some(InPlace::Resize),
        ),
        ("/initContainers/0/image", json!("alpine:2"), None),
        ("/containers/0/image", json!("etcdbr:2"), None),
        ("/activeDeadlineSeconds", json!(1), Some(InPlace::Deadline)),
    ] {
        let new = changed(native(), &[(place, value)]);
        assert_eq!(effect(&native(), &new), expected, "{place}");
    }
}

#[test]
fn a_container_that_runs_etcd_is_etcds_whatever_another_is_called() {
    let old = json!({"containers": [
        {"name": "etcd", "image": "a:1", "command": ["sleep", "9"]},
        {"name": "main", "image": "b:1", "command": ["sh", "-c", "exec etcd --name=$(NAME)"]},
    ]});
    let main = changed(old.clone(), &[("/containers/1/image", json!("b:2"))]);
    assert_eq!(effect(&old, &main), Some(InPlace::Image));
    let sleeps = changed(old.clone(), &[("/containers/0/image", json!("a:2"))]);
    assert_eq!(effect(&old, &sleeps), None);
}

#[test]
fn a_deadline_that_is_set_or_comes_nearer_ends_the_pod() {
    let with_deadline = |seconds: i64| with(&[("/activeDeadlineSeconds", json!(seconds))]);
    assert_eq!(effect(&pod(), &with_deadline(1)), Some(InPlace::Deadline));
    let sooner = effect(&with_deadline(100), &with_deadline(99));
    assert_eq!(sooner, Some(InPlace::Deadline));
    assert_eq!(effect(&with_deadline(100), &with_deadline(100)), None);
    // The API server refuses these two itself.
    assert_eq!(effect(&with_deadline(100), &with_deadline(101)), None);
    assert_eq!(effect(&with_deadline(100), &pod()), None);
}

#[test]
fn k6_a_resize_restarts_by_the_policy_of_the_resource_that_changes() {
    let changes = [
        (CPU_LIMIT, "2", "cpu"),
        (CPU_REQUEST, "500m", "cpu"),
        (MEMORY_LIMIT, "2Gi", "memory"),
        (MEMORY_LIMIT, "512Mi", "memory"),
        (MEMORY_REQUEST, "512Mi", "memory"),
    ];
    for (field, amount, resource) in changes {
        for (cpu, memory) in [
            ("NotRequired", "NotRequired"),
            ("RestartContainer", "NotRequired"),
            ("NotRequired", "RestartContainer"),
            ("RestartContainer", "RestartContainer"),
        ] {
            let old = with(&[(POLICY, policy(cpu, memory))]);
            let new = changed(old.clone(), &[(field, json!(amount))]);
            let policy = if resource == "cpu" { cpu } else { memory };
            let expected = (policy == "RestartContainer").then_some(InPlace::Resize);
            assert_eq!(effect(&old, &new), expected, "{field} {cpu} {memory}");
        }
    }
}

#[test]
fn k6_a_resize_without_a_policy_restarts_nothing() {
    let new = with(&[(CPU_LIMIT, json!("2")), (MEMORY_LIMIT, json!("512Mi"))]);
    assert_eq!(effect(&pod(), &new), None);
}

#[test]
fn k6_a_resize_of_another_container_restarts_only_that_one() {
    let restart = policy("RestartContainer", "RestartContainer");
    let old = with(&[
        ("/containers/0/resizePolicy", restart.clone()),
        (POLICY, restart),
    ]);
    let new = changed(
        old.clone(),
        &[("/containers/0/resources/limits/cpu", json!("2"))],
    );
    assert_eq!(effect(&old, &new), None);
}

#[test]
fn k6_other_resources_are_not_resized_in_place() {
    let old = with(&[(POLICY, policy("RestartContainer", "RestartContainer"))]);
    let storage = "/containers/1/resources/limits/ephemeral-storage";
    let new = changed(old.clone(), &[(storage, json!("1Gi"))]);
    assert_eq!(effect(&old, &new), None);
}

#[test]
fn a_resize_to_the_same_amount_in_another_notation_restarts_nothing() {
    let old = with(&[(POLICY, policy("RestartContainer", "RestartContainer"))]);
    let new = changed(
        old.clone(),
        &[
            (CPU_LIMIT, json!("1000m")),
            (MEMORY_LIMIT, json!("1073741824")),
        ],
    );
    assert_eq!(effect(&old, &new), None);
}

#[test]
fn a_limit_of_the_whole_pod_is_that_of_a_container_without_its_own() {
    let shared = "/resources/limits/memory";
    let own = with(&[
        (POLICY, policy("NotRequired", "RestartContainer")),
        (shared, json!("2Gi")),
    ]);
    let wider = |pod: &Value| changed(pod.clone(), &[(shared, json!("3Gi"))]);
    assert_eq!(effect(&own, &wider(&own)), None);
    let without = changed(own, &[("/containers/1/resources/limits", json!({}))]);
    assert_eq!(effect(&without, &wider(&without)), Some(InPlace::Resize));
}

/// A container whose settings come from elsewhere may be etcd's, too.
#[test]
fn beside_a_proxy_at_its_port_etcd_with_variables_from_elsewhere_is_not_restarted() {
    let port = json!([{"name": "client", "containerPort": 2379}]);
    let from = json!([{"configMapRef": {"name": "etcd-settings"}}]);
    let pod = json!({"containers": [
        {"name": "proxy", "image": "proxy:1", "ports": port},
        {"name": "main", "image": "etcd:1", "envFrom": from},
    ]});
    let new = changed(pod.clone(), &[("/containers/1/image", json!("etcd:2"))]);
    assert_eq!(effect(&pod, &new), Some(InPlace::Image));
}
