//! Nodes that lose power.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use quorumgate_testbed::{Node, eventually};
use tokio::time::sleep;

use crate::nodes::OUT_OF_SERVICE;

use super::gates;
use super::operation::Broken;
use super::stage::Stage;

/// The time limit until Kubernetes notices a lost node, and until a node is back.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time for which the node stays off after it was declared out of service, so that its pods
/// move.
const MOVED: Duration = Duration::from_secs(8);

/// Cuts the power of a node, and restores it.
pub(super) async fn off(stage: &Stage, node: &str, length: Duration) -> Result<()> {
    let _turn = stage.power.lock().await;
    let node = found(stage, node)?;
    node.power_off().await?;
    sleep(length).await;
    on(node).await
}

/// Cuts the power of a node, declares the node out of service when its loss was noticed, and
/// restores the power in the end.
pub(super) async fn lost(stage: &Stage, node: &str) -> Result<()> {
    let _turn = stage.power.lock().await;
    let node = found(stage, node)?;
    node.power_off().await?;
    node.wait_ready_within(PATIENCE, "Unknown").await?;
    taint(stage, node, &[OUT_OF_SERVICE, "--overwrite"]).await?;
    sleep(MOVED).await;
    on(node).await?;
    taint(stage, node, &[&format!("{OUT_OF_SERVICE}-")]).await
}

/// Cuts the power of a node, and with it that of the replicas of the gate that run there. Neither
/// these replicas nor the kernel of their node answer any more. The other replicas take them out of
/// the Service meanwhile. In the end all are in the Service.
pub(super) async fn off_with_gates(
    stage: &Stage,
    node: &str,
    replicas: &[usize],
    length: Duration,
) -> Result<()> {
    let _turn = stage.power.lock().await;
    let _turns = gates::all_turns(stage).await;
    let node = found(stage, node)?;
    ensure!(
        replicas.len() < stage.replicas.len(),
        "no replica would stay"
    );
    gates::all_stand_but(stage, &[]).await?;
    let mut silenced = Vec::new();
    for replica in replicas {
        silenced.push(stage.world.gate.replica(*replica).power_off().await?);
    }
    let since = Timestamp::now();
    node.power_off().await?;
    let (out, ()) = tokio::join!(gates::all_stand_but(stage, replicas), sleep(length));
    drop(silenced);
    on(node).await?;
    stage.was_broken(Broken::Node(node.name().to_owned()), since);
    for replica in replicas {
        gates::restart(stage, *replica).await?;
    }
    out?;
    gates::all_stand_but(stage, &[]).await
}

fn found<'a>(stage: &'a Stage, node: &str) -> Result<&'a Node> {
    stage.world.sandbox.node(node).context("no such node")
}

async fn on(node: &Node) -> Result<()> {
    node.start().await?;
    node.wait_ready_within(PATIENCE, "True").await
}

/// Changes a taint. Repeated while the API server is away.
async fn taint(stage: &Stage, node: &Node, taint: &[&str]) -> Result<()> {
    let mut arguments = vec!["taint", "nodes", node.name()];
    arguments.extend(taint);
    eventually(
        PATIENCE,
        format!("{taint:?} is said of the node"),
        || async {
            let said = stage.world.kubectl(&arguments).await?;
            let done = said.succeeded() || said.stderr.contains("not found");
            ensure!(done, "{}", said.stderr);
            Ok(())
        },
    )
    .await
}
