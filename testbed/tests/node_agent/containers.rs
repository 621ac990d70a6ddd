//! Containers: order, restarts, images, policies.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::pods::{PATIENCE, Pods, SERVE, main_status, phase, sandbox, shell, waiting_reason};
use quorumgate_testbed::agent::control::NodePods;
use quorumgate_testbed::eventually;

fn named(name: &str, script: &str) -> Value {
    let mut container = shell(script);
    container["name"] = json!(name);
    container
}

#[tokio::test]
async fn a_container_starts_soon_after_its_pod_is_bound() -> Result<()> {
    let sandbox = sandbox("quick", 1).await?;
    let pods = Pods::new(&sandbox);
    // The first pod warms caches, as in any other test.
    pods.ready("warm", json!({"containers": [shell(SERVE)]}))
        .await?;
    let begun = Instant::now();
    pods.create(
        "a",
        json!({"containers": [shell("date +%s%N; exec sleep 100")]}),
    )
    .await?;
    let pod = pods.wait("a", "runs", |p| phase(p) == "Running").await?;
    let seen = begun.elapsed();
    // The limit is generous, since the machine may be busy with other tests. The usual time is
    // printed for people.
    eprintln!("created to reported as running: {seen:?}");
    ensure!(seen < Duration::from_secs(5), "{seen:?}");
    ensure!(main_status(&pod).started == Some(true));
    sandbox.close().await
}

#[tokio::test]
async fn a_container_that_fails_is_restarted_with_growing_delays() -> Result<()> {
    let sandbox = sandbox("crash", 1).await?;
    let pods = Pods::new(&sandbox);
    pods.create("a", json!({"containers": [shell("date +%s.%N; exit 3")]}))
        .await?;
    let pod = pods
        .wait("a", "is in back-off", |p| {
            waiting_reason(p) == "CrashLoopBackOff"
        })
        .await?;
    let status = main_status(&pod);
    let last = status
        .last_state
        .clone()
        .and_then(|s| s.terminated)
        .expect("a last state");
    ensure!(
        (last.exit_code, last.reason.as_deref()) == (3, Some("Error")),
        "{last:?}"
    );
    ensure!(status.restart_count >= 1 && !status.ready, "{status:?}");

    let times = eventually(PATIENCE, "it has run four times", async || {
        let log = pods.log(&pod)?;
        let times: Vec<f64> = log.lines().filter_map(|line| line.parse().ok()).collect();
        ensure!(times.len() >= 4, "{log}");
        anyhow::Ok(times)
    })
    .await?;
    let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
    // The restarts come at once, then after the base of 1 s, then after 2 s.
    ensure!(gaps[0] < 0.9, "{gaps:?}");
    ensure!((1.0..2.0).contains(&gaps[1]), "{gaps:?}");
    ensure!((2.0..3.5).contains(&gaps[2]), "{gaps:?}");
    sandbox.close().await
}

#[tokio::test]
async fn restart_policies_are_kept() -> Result<()> {
    let sandbox = sandbox("policy", 1).await?;
    let pods = Pods::new(&sandbox);
    let spec = |policy: &str, script: &str| json!({"containers": [shell(script)], "restartPolicy": policy});
    pods.create("never-fails", spec("Never", "exit 0")).await?;
    pods.create("never", spec("Never", "exit 1")).await?;
    let once = "test -e /tmp/x && exit 0; touch /data/x; exit 1".replace("/tmp", "/data");
    let mut retried = spec("OnFailure", &once);
    retried["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    retried["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pods.create("on-failure", retried).await?;
    pods.wait("never-fails", "has succeeded", |p| phase(p) == "Succeeded")
        .await?;
    pods.wait("never", "has failed", |p| phase(p) == "Failed")
        .await?;
    let pod = pods
        .wait("on-failure", "has succeeded", |p| phase(p) == "Succeeded")
        .await?;
    ensure!(main_status(&pod).restart_count == 1);
    sandbox.close().await
}

#[tokio::test]
async fn init_containers_run_in_order_and_sidecars_stay() -> Result<()> {
    let sandbox = sandbox("init", 1).await?;
    let pods = Pods::new(&sandbox);
    let mut sidecar = named("sidecar", &format!("echo sidecar >>/data/order; {SERVE}"));
    sidecar["restartPolicy"] = json!("Always");
    let mut spec = json!({
        "initContainers": [
            named("first", "sleep 0.3; echo first >>/data/order"),
            sidecar,
            named("second", "echo second >>/data/order"),
        ],
        "containers": [shell(&format!("cat /data/order; {SERVE}"))],
        "volumes": [{"name": "data", "emptyDir": {}}],
    });
    for set in ["initContainers", "containers"] {
        for container in spec[set].as_array_mut().expect("a list") {
            container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        }
    }
    let pod = pods.ready("a", spec).await?;
    let order = std::fs::read_to_string(pods.file(&pod, "volumes/data/order")?)?;
    let lines: Vec<_> = order.lines().collect();
    ensure!(lines[0] == "first" && lines.contains(&"second"), "{order}");
    let inits = pod
        .status
        .and_then(|s| s.init_container_statuses)
        .expect("init containers");
    let state = |i: usize| inits[i].state.clone().unwrap_or_default();
    ensure!(state(0).terminated.is_some_and(|t| t.exit_code == 0));
    ensure!(state(1).running.is_some());
    sandbox.close().await
}

#[tokio::test]
async fn an_unknown_image_is_not_pulled_and_a_new_image_restarts_one_container() -> Result<()> {
    let sandbox = sandbox("image", 1).await?;
    let pods = Pods::new(&sandbox);
    let mut bad = shell(SERVE);
    bad["image"] = json!("nowhere.example/none:1");
    let other = named("other", SERVE);
    pods.create("a", json!({"containers": [bad, other]}))
        .await?;
    let reasons = ["ErrImagePull", "ImagePullBackOff"];
    pods.wait("a", "fails to pull", |p| {
        reasons.contains(&waiting_reason(p).as_str())
    })
    .await?;
    let image = |image: &str| {
        Patch::Strategic(json!({"spec": {"containers": [{"name": "main", "image": image}]}}))
    };
    let params = PatchParams::default();
    pods.api.patch("a", &params, &image("busybox:1")).await?;
    let runs = |p: &_| main_status(p).state.is_some_and(|s| s.running.is_some());
    pods.wait("a", "runs", runs).await?;
    pods.api.patch("a", &params, &image("busybox:2")).await?;
    let changed = |p: &_| main_status(p).restart_count == 1 && runs(p);
    let pod = pods.wait("a", "runs again", changed).await?;
    ensure!(main_status(&pod).image == "busybox:2");
    let all = pod
        .status
        .and_then(|s| s.container_statuses)
        .expect("containers");
    ensure!(
        all.iter().all(|c| c.name == "main" || c.restart_count == 0),
        "{all:?}"
    );
    sandbox.close().await
}

#[tokio::test]
async fn a_pod_past_its_deadline_fails_and_is_killed() -> Result<()> {
    let sandbox = sandbox("deadline", 1).await?;
    let pods = Pods::new(&sandbox);
    let spec = json!({"containers": [shell("exec sleep 1000")], "activeDeadlineSeconds": 2});
    pods.create("a", spec).await?;
    let pod = pods
        .wait("a", "has failed", |p| phase(p) == "Failed")
        .await?;
    ensure!(pod.status.and_then(|s| s.reason).as_deref() == Some("DeadlineExceeded"));
    pods.wait("a", "is terminated", |p| {
        main_status(p).state.is_some_and(|s| s.terminated.is_some())
    })
    .await?;
    sandbox.close().await
}

#[tokio::test]
async fn the_environment_expands_and_tells_the_pod_about_itself() -> Result<()> {
    let sandbox = sandbox("environment", 1).await?;
    let pods = Pods::new(&sandbox);
    let secrets: kube::Api<k8s_openapi::api::core::v1::Secret> = sandbox.api();
    let secret = serde_json::from_value(json!({
        "metadata": {"name": "s"}, "stringData": {"user": "root", "pass": "x y"}
    }))?;
    secrets
        .create(&kube::api::PostParams::default(), &secret)
        .await?;
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut container = shell("");
    container["command"] = json!(["sh", "-c"]);
    container["args"] =
        json!(["echo '$(NAME)|$(IP)|$(BOTH)|$(S_pass)|$$(NAME)' $S_user; pwd; hostname"]);
    container["workingDir"] = json!("/usr");
    container["env"] = json!([
        field("NAME", "metadata.name"),
        field("IP", "status.podIP"),
        {"name": "BOTH", "value": "$(NAME)@$(IP)"},
    ]);
    container["envFrom"] = json!([{"prefix": "S_", "secretRef": {"name": "s"}}]);
    let spec = json!({"containers": [container], "restartPolicy": "Never"});
    pods.create("a", spec).await?;
    let pod = pods
        .wait("a", "has succeeded", |p| phase(p) == "Succeeded")
        .await?;
    let ip = crate::pods::ip(&pod).expect("an address");
    let expected = format!("a|{ip}|a@{ip}|x y|$(NAME) root\n/usr\na\n");
    let log = pods.log(&pod)?;
    ensure!(log == expected, "{log} instead of {expected}");
    sandbox.close().await
}

#[tokio::test]
async fn faults_hold_crash_and_freeze_a_pod() -> Result<()> {
    let sandbox = sandbox("faults", 1).await?;
    let pods = Pods::new(&sandbox);
    let namespace = sandbox.namespace();
    let node = NodePods::new(sandbox.bed().state(), sandbox.nodes()[0].name());
    node.change_faults(namespace, "a", |f| f.hold = true)?;
    pods.create("a", json!({"containers": [shell(SERVE)]}))
        .await?;
    let held = |p: &_| waiting_reason(p) == "ContainerCreating" && crate::pods::ip(p).is_some();
    pods.wait("a", "is held", held).await?;
    ensure!(node.running(namespace, "a")?.is_empty());
    node.change_faults(namespace, "a", |f| f.hold = false)?;
    let pod = pods
        .wait("a", "is ready", |p| {
            crate::pods::condition(p, "Ready") == "True"
        })
        .await?;

    node.freeze(namespace, "a")?;
    let state = |pid: i32| -> Result<String> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        Ok(stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest[..1].to_owned())
            .unwrap_or_default())
    };
    let pid = pods.pid(&pod)?;
    eventually(PATIENCE, "it is frozen", async || {
        state(pid).is_ok_and(|s| s == "T")
    })
    .await?;
    node.thaw(namespace, "a")?;
    eventually(PATIENCE, "it is thawed", async || {
        state(pid).is_ok_and(|s| s != "T")
    })
    .await?;

    node.change_faults(namespace, "a", |f| f.crash = true)?;
    pods.wait("a", "is in back-off", |p| {
        waiting_reason(p) == "CrashLoopBackOff"
    })
    .await?;
    node.change_faults(namespace, "a", |f| f.crash = false)?;
    pods.wait("a", "is ready again", |p| {
        crate::pods::condition(p, "Ready") == "True"
    })
    .await?;
    sandbox.close().await
}
