//! `kubectl drain`, once or until it is done.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::stage::Stage;

/// How long one `kubectl drain` goes on.
const ONE: &str = "--timeout=20s";
/// How long until a drain that is repeated has to be done: all faults are over long before.
const DONE: Duration = Duration::from_secs(900);

/// Drains a node once, whatever comes of it.
pub(super) async fn once(stage: &Stage, node: &str) -> Result<()> {
    let _permit = stage.drains.acquire().await?;
    let drained = drain(stage, node).await;
    stage.uncordon(node).await?;
    drained
}

/// Drains a node again and again, until nothing is left on it. Fails where that is never.
pub(super) async fn until_done(stage: &Stage, node: &str) -> Result<()> {
    let _permit = stage.drains.acquire().await?;
    let begun = Instant::now();
    let drained = loop {
        let drained = drain(stage, node).await;
        if drained.is_ok() || begun.elapsed() > DONE {
            break drained;
        }
    };
    stage.uncordon(node).await?;
    drained
}

async fn drain(stage: &Stage, node: &str) -> Result<()> {
    let arguments = [
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        ONE,
    ];
    stage.world.kubectl(&arguments).await?.success().map(drop)
}
