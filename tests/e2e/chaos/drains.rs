//! `kubectl drain`, once or until it is done. It runs with `--force`, since a pod may have lost its
//! StatefulSet.

use std::time::Duration;

use anyhow::Result;
use quorumgate_testbed::eventually;

use super::stage::Stage;

/// The arguments of one `kubectl drain`.
const ONE: [&str; 2] = ["--timeout=20s", "--force"];
/// The time limit for a drain that is repeated. All faults end long before.
const DONE: Duration = Duration::from_secs(900);

/// Drains a node once, and uncordons it. Fails if `kubectl drain` does.
pub(super) async fn once(stage: &Stage, node: &str) -> Result<()> {
    let _permit = stage.drains.acquire().await?;
    let drained = stage.world.drain(node, &ONE).await;
    stage.uncordon(node).await?;
    drained
}

/// Drains a node again and again until it is empty, and uncordons it. Fails after [`DONE`].
pub(super) async fn until_done(stage: &Stage, node: &str) -> Result<()> {
    let _permit = stage.drains.acquire().await?;
    let what = format!("{node} is drained");
    let drained = eventually(DONE, what, || stage.world.drain(node, &ONE)).await;
    stage.uncordon(node).await?;
    drained
}
