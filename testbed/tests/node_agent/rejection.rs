//! Pods that their node does not admit.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use quorumgate_testbed::faults;
use serde_json::json;

use crate::pods::{Pods, SERVE, condition, is_running, phase, sandbox, shell};

/// Checks for the status of a kubelet that rejects: without containers, addresses and conditions.
fn ensure_rejected(pod: &Pod) -> Result<()> {
    let status = pod.status.clone().context("no status")?;
    let (reason, message) = (status.reason.as_deref(), status.message.as_deref());
    ensure!(status.phase.as_deref() == Some("Failed"), "{status:?}");
    ensure!(reason == Some("OutOfcpu"), "{reason:?}");
    ensure!(
        message.is_some_and(|m| m.starts_with("Pod was rejected: ")),
        "{message:?}"
    );
    let untold = (
        status.container_statuses,
        status.conditions,
        status.pod_ip,
        status.pod_ips,
        status.host_ip,
    );
    ensure!(untold == (None, None, None, None, None), "{untold:?}");
    Ok(())
}

#[tokio::test]
async fn a_rejected_pod_has_failed_without_a_word_of_its_containers_and_goes_at_once() -> Result<()>
{
    let sandbox = sandbox("reject", 1).await?;
    let pods = Pods::new(&sandbox);
    let node = &sandbox.nodes()[0];
    let full = faults::reject(&sandbox, "a")?;
    let spec = json!({"containers": [shell(SERVE)]});
    pods.create("a", spec.clone()).await?;
    let pod = pods
        .wait("a", "is rejected", |p| phase(p) == "Failed")
        .await?;
    ensure_rejected(&pod)?;
    ensure!(pods.pid(&pod).is_err(), "a process of the pod runs");

    // The rejection is final, even if the node has room or another agent.
    full.mend();
    node.stop_agent().await?;
    node.start().await?;
    pods.ready("b", spec.clone()).await?;
    let later = pods.get("a").await?;
    ensure!(later.resource_version() == pod.resource_version());
    pods.delete("a", &DeleteParams::default()).await?;
    pods.gone(&pod).await?;
    pods.ready("a", spec).await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_pod_that_runs_is_rejected_when_its_node_has_lost_power_and_not_before() -> Result<()> {
    let sandbox = sandbox("reject-boot", 1).await?;
    let pods = Pods::new(&sandbox);
    let pod = pods
        .ready("a", json!({"containers": [shell(SERVE)]}))
        .await?;
    let pid = pods.pid(&pod)?;
    let node = &sandbox.nodes()[0];
    let _full = faults::reject(&sandbox, "a")?;
    node.stop_agent().await?;
    node.start().await?;
    pods.ready("b", json!({"containers": [shell(SERVE)]}))
        .await?;
    let still = pods.get("a").await?;
    ensure!(is_running(pid) && condition(&still, "Ready") == "True");

    node.power_off().await?;
    ensure!(!is_running(pid));
    node.start().await?;
    let rejected = pods
        .wait("a", "is rejected", |p| phase(p) == "Failed")
        .await?;
    ensure!(rejected.uid() == pod.uid());
    ensure_rejected(&rejected)?;
    sandbox.close().await
}
