//! Nodes without power.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::{Node, eventually};
use tokio::time::sleep;

use crate::nodes::OUT_OF_SERVICE;

use super::stage::Stage;

/// How long the cluster may take to notice, and a node to come back.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long its pods may take to be gone once it is declared out of service.
const MOVED: Duration = Duration::from_secs(8);

/// The node loses its power, and gets it back.
pub(super) async fn off(stage: &Stage, node: &str, length: Duration) -> Result<()> {
    let _turn = stage.power.lock().await;
    let node = found(stage, node)?;
    node.power_off().await?;
    sleep(length).await;
    on(node).await
}

/// The node loses its power, somebody notices and says so, and in the end it is back.
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

fn found<'a>(stage: &'a Stage, node: &str) -> Result<&'a Node> {
    stage.world.sandbox.node(node).context("no such node")
}

async fn on(node: &Node) -> Result<()> {
    node.start().await?;
    node.wait_ready_within(PATIENCE, "True").await
}

/// Also while the API server is away.
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
