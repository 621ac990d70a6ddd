//! Nodes: heartbeat, failure, return.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::pods::{PATIENCE, Pods, SERVE, condition, ip, is_running, main_status, sandbox, shell};

/// The tolerations of a pod that stays on a node that is not Ready.
fn tolerant() -> serde_json::Value {
    json!([{"operator": "Exists", "effect": "NoExecute"}])
}

#[tokio::test]
async fn a_node_whose_lease_lapses_is_not_ready_and_comes_back() -> Result<()> {
    let sandbox = sandbox("lapse", 1).await?;
    let pods = Pods::new(&sandbox);
    let spec = json!({"containers": [shell(SERVE)], "tolerations": tolerant()});
    let pod = pods.ready("a", spec).await?;
    let node = &sandbox.nodes()[0];
    node.freeze()?;
    node.wait_ready("Unknown").await?;
    // The node lifecycle controller reports the pod as not Ready, although its process runs.
    pods.wait("a", "is not ready", |p| condition(p, "Ready") == "False")
        .await?;
    ensure!(is_running(pods.pid(&pod)?));
    node.thaw()?;
    node.wait_ready("True").await?;
    let pod = pods
        .wait("a", "is ready again", |p| condition(p, "Ready") == "True")
        .await?;
    ensure!(main_status(&pod).restart_count == 0);
    sandbox.close().await
}

#[tokio::test]
async fn an_agent_that_restarts_adopts_the_containers_that_run() -> Result<()> {
    let sandbox = sandbox("adopt", 1).await?;
    let pods = Pods::new(&sandbox);
    let script = "trap 'exit 7' TERM; while :; do sleep 0.05; done";
    let pod = pods
        .ready(
            "a",
            json!({"containers": [shell(script)], "tolerations": tolerant()}),
        )
        .await?;
    let pid = pods.pid(&pod)?;
    let node = &sandbox.nodes()[0];
    node.stop_agent().await?;
    ensure!(is_running(pid));
    node.start().await?;
    node.wait_ready("True").await?;
    // The new agent notices how the container ends, although the process is not its child.
    ensure!(pods.pid(&pod)? == pid);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(pid),
        nix::sys::signal::Signal::SIGTERM,
    )?;
    let pod = pods
        .wait("a", "is restarted", |p| main_status(p).restart_count == 1)
        .await?;
    let end = main_status(&pod)
        .last_state
        .and_then(|s| s.terminated)
        .expect("an end");
    ensure!(end.exit_code == 7, "{end:?}");
    sandbox.close().await
}

#[tokio::test]
async fn a_pod_deleted_while_its_agent_was_down_is_ended_when_it_is_back() -> Result<()> {
    let sandbox = sandbox("orphan", 1).await?;
    let pods = Pods::new(&sandbox);
    let spec = json!({"containers": [shell(SERVE)], "tolerations": tolerant()});
    let graceful = pods.ready("a", spec.clone()).await?;
    let forced = pods.ready("b", spec).await?;
    let (first, second) = (pods.pid(&graceful)?, pods.pid(&forced)?);
    let node = &sandbox.nodes()[0];
    node.stop_agent().await?;
    pods.delete("a", &kube::api::DeleteParams::default())
        .await?;
    pods.delete("b", &kube::api::DeleteParams::default().grace_period(0))
        .await?;
    pods.gone(&forced).await?;
    ensure!(is_running(first) && is_running(second));
    node.start().await?;
    pods.gone(&graceful).await?;
    eventually(PATIENCE, "both are killed", async || {
        !is_running(first) && !is_running(second)
    })
    .await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_node_that_lost_power_starts_its_pods_again_with_new_addresses() -> Result<()> {
    let sandbox = sandbox("power", 1).await?;
    let pods = Pods::new(&sandbox);
    let spec = json!({"containers": [shell(SERVE)], "tolerations": tolerant()});
    let pod = pods.ready("a", spec).await?;
    let (pid, address) = (pods.pid(&pod)?, ip(&pod));
    let node = &sandbox.nodes()[0];
    node.power_off().await?;
    ensure!(!is_running(pid));
    node.wait_ready("Unknown").await?;
    node.start().await?;
    node.wait_ready("True").await?;
    let again = |p: &Pod| condition(p, "Ready") == "True" && main_status(p).restart_count == 1;
    let back = pods.wait("a", "is ready again", again).await?;
    ensure!(back.uid() == pod.uid() && ip(&back) != address && ip(&back).is_some());
    sandbox.close().await
}

#[tokio::test]
async fn pods_are_evicted_from_a_node_that_is_gone_by_the_real_controller() -> Result<()> {
    // The controller evicts nothing while no node of the whole cluster is ready. Nodes of other
    // tests come and go, so a second node of this one stays.
    let sandbox = sandbox("evict", 2).await?;
    let pods = Pods::new(&sandbox);
    let pod = pods
        .ready("a", json!({"containers": [shell(SERVE)]}))
        .await?;
    let pid = pods.pid(&pod)?;
    let name = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let node = name
        .and_then(|name| sandbox.node(name))
        .context("the pod is on no node")?;
    node.stop_agent().await?;
    let pod = pods
        .wait("a", "is being deleted", |p| {
            p.metadata.deletion_timestamp.is_some()
        })
        .await?;
    ensure!(condition(&pod, "DisruptionTarget") == "True");
    // No component that could know has reported the end of the process.
    ensure!(is_running(pid));
    node.start().await?;
    pods.gone(&pod).await?;
    ensure!(!is_running(pid));
    sandbox.close().await
}
