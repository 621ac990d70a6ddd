//! `kubectl drain`, once or until it is done. With `--force`, since somebody may have taken a pod away from its StatefulSet.

use std::time::Duration;

use anyhow::Result;
use quorumgate_testbed::eventually;

use super::stage::Stage;

/// How long one `kubectl drain` goes on.
const ONE: [&str; 2] = ["--timeout=20s", "--force"];
/// How long until a drain that is repeated has to be done: all faults are over long before.
const DONE: Duration = Duration::from_secs(900);

/// Drains a node once, whatever comes of it.
pub(super) async fn once(stage: &Stage, node: &str) -> Result<()> {
    let _permit = stage.drains.acquire().await?;
    let drained = stage.world.drain(node, &ONE).await;
    stage.uncordon(node).await?;
    drained
}

/// Drains a node again and again, until nothing is left on it. Fails where that is never.
pub(super) async fn until_done(stage: &Stage, node: &str) -> Result<()> {
    let _permit = stage.drains.acquire().await?;
    let what = format!("{node} is drained");
    let drained = eventually(DONE, what, || stage.world.drain(node, &ONE)).await;
    stage.uncordon(node).await?;
    drained
}
