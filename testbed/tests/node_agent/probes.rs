//! Probes: the starts, waits and restarts that they cause, and their times.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use crate::pods::{PATIENCE, Pods, SERVE, condition, main_status, sandbox, shell};

/// An exec probe that succeeds while a file exists.
fn while_there(file: &str, period: u32, failures: u32) -> Value {
    json!({
        "exec": {"command": ["test", "-e", format!("/data/{file}")]},
        "periodSeconds": period,
        "failureThreshold": failures,
    })
}

/// A pod that serves, with a volume for the files of its probes.
fn probed(script: &str, probes: &[(&str, Value)]) -> Value {
    let mut container = shell(script);
    for (kind, probe) in probes {
        container[format!("{kind}Probe")] = probe.clone();
    }
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    json!({"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]})
}

#[tokio::test]
async fn readiness_flips_after_threshold_times_period() -> Result<()> {
    let sandbox = sandbox("readiness", 1).await?;
    let pods = Pods::new(&sandbox);
    let script = format!("touch /data/ready; {SERVE}");
    let pod = pods
        .ready(
            "a",
            probed(&script, &[("readiness", while_there("ready", 1, 3))]),
        )
        .await?;
    std::fs::remove_file(pods.file(&pod, "volumes/data/ready")?)?;
    let removed = Instant::now();
    let pod = pods
        .wait("a", "is not ready", |p| condition(p, "Ready") == "False")
        .await?;
    let took = removed.elapsed();
    // The probe fails three times, one second apart, and the first time within a second.
    ensure!(took > Duration::from_millis(1900), "{took:?}");
    ensure!(took < Duration::from_secs(6), "{took:?}");
    ensure!(main_status(&pod).restart_count == 0);
    std::fs::write(pods.file(&pod, "volumes/data/ready")?, "")?;
    pods.wait("a", "is ready again", |p| condition(p, "Ready") == "True")
        .await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_startup_probe_gates_liveness_and_readiness() -> Result<()> {
    let sandbox = sandbox("startup", 1).await?;
    let pods = Pods::new(&sandbox);
    // The liveness probe would fail at once. It must not run before the startup probe has
    // succeeded.
    let probes = [
        ("startup", while_there("started", 1, 60)),
        ("liveness", while_there("alive", 1, 1)),
    ];
    let pod = pods.create("a", probed(SERVE, &probes)).await?;
    let runs = |p: &_| main_status(p).state.is_some_and(|s| s.running.is_some());
    let pod_running = pods.wait("a", "runs", runs).await?;
    ensure!(main_status(&pod_running).started == Some(false));
    ensure!(condition(&pod_running, "Ready") == "False");
    // The time is enough for several liveness periods.
    let watched = Instant::now();
    while watched.elapsed() < Duration::from_secs(3) {
        let status = main_status(&pods.get("a").await?);
        ensure!(
            status.restart_count == 0 && status.started == Some(false),
            "{status:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let bound = pods
        .get(&pod.metadata.name.clone().unwrap_or_default())
        .await?;
    std::fs::write(pods.file(&bound, "volumes/data/started")?, "")?;
    let pod = pods
        .wait("a", "is restarted", |p| main_status(p).restart_count >= 1)
        .await?;
    let last = main_status(&pod).last_state.and_then(|s| s.terminated);
    ensure!(last.is_some());
    sandbox.close().await
}

#[tokio::test]
async fn a_liveness_failure_restarts_the_container_within_the_probes_own_grace() -> Result<()> {
    let sandbox = sandbox("liveness", 1).await?;
    let pods = Pods::new(&sandbox);
    let mut probe = while_there("alive", 1, 2);
    probe["terminationGracePeriodSeconds"] = json!(1);
    let script = "touch /data/alive; trap '' TERM; while :; do sleep 0.05; done";
    let mut spec = probed(script, &[("liveness", probe)]);
    spec["terminationGracePeriodSeconds"] = json!(600);
    let pod = pods.ready("a", spec).await?;
    let first = pods.pid(&pod)?;
    std::fs::remove_file(pods.file(&pod, "volumes/data/alive")?)?;
    let pod = pods
        .wait("a", "is restarted", |p| {
            main_status(p).restart_count == 1 && condition(p, "Ready") == "True"
        })
        .await?;
    let end = main_status(&pod)
        .last_state
        .and_then(|s| s.terminated)
        .expect("an end");
    ensure!(end.exit_code == 137, "{end:?}");
    ensure!(pods.pid(&pod)? != first);
    // The pod ignores SIGTERM and has a grace period of ten minutes, for which the sandbox must not
    // wait.
    pods.delete("a", &kube::api::DeleteParams::default().grace_period(0))
        .await?;
    sandbox.close().await
}

#[tokio::test]
async fn http_and_tcp_probes_ask_the_pods_own_address() -> Result<()> {
    let sandbox = sandbox("network", 1).await?;
    let pods = Pods::new(&sandbox);
    let server = "exec python3 -m http.server 8000 --bind $(POD_IP) --directory /data";
    let field = json!({"fieldRef": {"fieldPath": "status.podIP"}});
    let probes = [
        (
            "readiness",
            json!({"httpGet": {"path": "/ready", "port": "web"}, "periodSeconds": 1}),
        ),
        (
            "liveness",
            json!({"tcpSocket": {"port": 8000}, "periodSeconds": 1, "initialDelaySeconds": 5}),
        ),
    ];
    // Both pods use the same port, each at its own address.
    for name in ["a", "b"] {
        let mut spec = probed(server, &probes);
        spec["containers"][0]["env"] = json!([{"name": "POD_IP", "valueFrom": field}]);
        spec["containers"][0]["ports"] = json!([{"name": "web", "containerPort": 8000}]);
        let pod = pods.create(name, spec).await?;
        let name = pod.metadata.name.unwrap_or_default();
        let runs = |p: &_| main_status(p).state.is_some_and(|s| s.running.is_some());
        let pod = pods.wait(&name, "runs", runs).await?;
        ensure!(condition(&pod, "Ready") == "False");
        std::fs::write(pods.file(&pod, "volumes/data/ready")?, "")?;
    }
    for name in ["a", "b"] {
        let pod = pods
            .wait(name, "is ready", |p| condition(p, "Ready") == "True")
            .await?;
        ensure!(main_status(&pod).restart_count == 0);
    }
    sandbox.close().await
}

#[tokio::test]
async fn a_broken_readiness_probe_is_reported_though_the_process_serves() -> Result<()> {
    let sandbox = sandbox("unready", 1).await?;
    let pods = Pods::new(&sandbox);
    let script = format!("touch /data/ready; {SERVE}");
    let pod = pods
        .ready(
            "a",
            probed(&script, &[("readiness", while_there("ready", 1, 1))]),
        )
        .await?;
    let node = pods.on_node_of(&pod)?;
    node.change_faults(sandbox.namespace(), "a", |f| f.unready = true)?;
    let pod = pods
        .wait("a", "is not ready", |p| condition(p, "Ready") == "False")
        .await?;
    let pid = pods.pid(&pod)?;
    eventually(PATIENCE, "its process runs", async || {
        crate::pods::is_running(pid)
    })
    .await?;
    node.change_faults(sandbox.namespace(), "a", |f| f.unready = false)?;
    pods.wait("a", "is ready", |p| condition(p, "Ready") == "True")
        .await?;
    sandbox.close().await
}
