//! The end of a pod.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use kube::ResourceExt;
use kube::api::DeleteParams;
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::pods::{PATIENCE, Pods, SERVE, ip, is_running, main_status, sandbox, shell};

#[tokio::test]
async fn a_pod_ends_on_sigterm_and_its_node_deletes_it_for_good() -> Result<()> {
    let sandbox = sandbox("sigterm", 1).await?;
    let pods = Pods::new(&sandbox);
    let audit = sandbox.bed().audit_log();
    let script = "trap 'echo asked to end; exit 0' TERM; echo up; while :; do sleep 0.05; done";
    let pod = pods
        .ready("a", json!({"containers": [shell(script)]}))
        .await?;
    let pid = pods.pid(&pod)?;
    eventually(PATIENCE, "it is up", async || {
        pods.log(&pod).is_ok_and(|l| l == "up\n")
    })
    .await?;
    pods.delete("a", &DeleteParams::default()).await?;
    pods.gone(&pod).await?;
    ensure!(!is_running(pid));
    ensure!(pods.log(&pod)?.ends_with("asked to end\n"));

    let node = format!("system:node:{}", sandbox.nodes()[0].name());
    let events = audit.events(sandbox.namespace())?;
    let deletes: Vec<_> = events
        .iter()
        .filter(|e| e.verb == "delete" && e.object_ref.resource == "pods")
        .collect();
    let last = deletes.last().expect("a delete");
    ensure!(last.user.username == node, "{:?}", last.user);
    ensure!(last.request_object["gracePeriodSeconds"] == 0);
    ensure!(last.request_object["preconditions"]["uid"] == json!(pod.uid()));
    ensure!(deletes.len() == 2, "{deletes:?}");
    sandbox.close().await
}

#[tokio::test]
async fn a_container_that_ignores_sigterm_is_killed_when_its_grace_is_over() -> Result<()> {
    let sandbox = sandbox("grace", 1).await?;
    let pods = Pods::new(&sandbox);
    let script = "trap 'echo no' TERM; echo up; while :; do sleep 0.05; done";
    let spec = json!({"containers": [shell(script)], "terminationGracePeriodSeconds": 3});
    let pod = pods.ready("a", spec).await?;
    let pid = pods.pid(&pod)?;
    eventually(PATIENCE, "it is up", async || {
        pods.log(&pod).is_ok_and(|l| l == "up\n")
    })
    .await?;
    let asked = Instant::now();
    pods.delete("a", &DeleteParams::default()).await?;
    let api = &pods.api;
    eventually(PATIENCE, "its end is reported", async || {
        // The terminated state is visible only for a moment before the final delete. So the test
        // looks at the process.
        let _ = api.get_opt("a").await;
        !is_running(pid)
    })
    .await?;
    let took = asked.elapsed();
    ensure!(took > Duration::from_millis(2900), "killed after {took:?}");
    ensure!(took < Duration::from_secs(8), "killed after {took:?}");
    pods.gone(&pod).await?;
    ensure!(pods.log(&pod)?.contains("no"));
    sandbox.close().await
}

#[tokio::test]
async fn a_pre_stop_hook_runs_before_sigterm() -> Result<()> {
    let sandbox = sandbox("prestop", 1).await?;
    let pods = Pods::new(&sandbox);
    let mut container =
        shell("trap 'echo term >>/data/order; exit 0' TERM; while :; do sleep 0.05; done");
    container["lifecycle"] =
        json!({"preStop": {"exec": {"command": ["sh", "-c", "echo hook >>/data/order"]}}});
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let kept = sandbox.directory().join("data");
    std::fs::create_dir_all(&kept)?;
    let volume = json!({"name": "data", "hostPath": {"path": kept, "type": "Directory"}});
    let pod = pods
        .ready("a", json!({"containers": [container], "volumes": [volume]}))
        .await?;
    pods.delete("a", &DeleteParams::default()).await?;
    pods.gone(&pod).await?;
    ensure!(std::fs::read_to_string(kept.join("order"))? == "hook\nterm\n");
    sandbox.close().await
}

#[tokio::test]
async fn a_pod_that_is_deleted_by_force_is_killed() -> Result<()> {
    let sandbox = sandbox("force", 1).await?;
    let pods = Pods::new(&sandbox);
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let pod = pods
        .ready("a", json!({"containers": [shell(script)]}))
        .await?;
    let pid = pods.pid(&pod)?;
    pods.delete("a", &DeleteParams::default().grace_period(0))
        .await?;
    pods.gone(&pod).await?;
    eventually(Duration::from_secs(10), "it is killed", async || {
        !is_running(pid)
    })
    .await?;
    sandbox.close().await
}

#[tokio::test]
async fn every_incarnation_has_a_new_address() -> Result<()> {
    let sandbox = sandbox("address", 1).await?;
    let pods = Pods::new(&sandbox);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let pod = pods
            .ready("a", json!({"containers": [shell(SERVE)]}))
            .await?;
        seen.push(ip(&pod).expect("an address"));
        pods.delete("a", &DeleteParams::default()).await?;
        pods.gone(&pod).await?;
    }
    seen.dedup();
    ensure!(seen.len() == 3, "{seen:?}");
    ensure!(seen.iter().all(|ip| ip.starts_with("127.")), "{seen:?}");
    sandbox.close().await
}

#[tokio::test]
async fn the_last_status_says_how_the_containers_ended() -> Result<()> {
    let sandbox = sandbox("laststatus", 1).await?;
    let pods = Pods::new(&sandbox);
    let pod = pods
        .ready("a", json!({"containers": [shell("exec sleep 1000")]}))
        .await?;
    // A finalizer keeps the object, so that the test can read it.
    let patch = json!({"metadata": {"finalizers": ["testbed.quorumgate.io/look"]}});
    let params = kube::api::PatchParams::default();
    pods.api
        .patch("a", &params, &kube::api::Patch::Merge(patch))
        .await?;
    pods.delete("a", &DeleteParams::default()).await?;
    let ended = pods
        .wait("a", "is terminated", |p| {
            main_status(p).state.is_some_and(|s| s.terminated.is_some())
        })
        .await?;
    let end = main_status(&ended)
        .state
        .and_then(|s| s.terminated)
        .expect("an end");
    ensure!(end.exit_code == 143, "{end:?}");
    ensure!(crate::pods::phase(&ended) == "Failed");
    let patch = json!({"metadata": {"finalizers": null}});
    pods.api
        .patch("a", &params, &kube::api::Patch::Merge(patch))
        .await?;
    pods.gone(&pod).await?;
    sandbox.close().await
}
