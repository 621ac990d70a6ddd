//! Faults of the gate itself.

use std::time::Duration;

use anyhow::{Context as _, Result};
use quorumgate_testbed::eventually;
use tokio::sync::MutexGuard;
use tokio::time::sleep;

use super::stage::Stage;

/// How long a replica may take to be ready again, on a machine that does other things besides.
const BACK: Duration = Duration::from_secs(300);

pub(super) async fn kill(stage: &Stage, replica: usize, length: Duration) -> Result<()> {
    let _turn = turn(stage, replica).await?;
    let replica = stage.world.gate.replica(replica);
    replica.kill().await?;
    sleep(length).await;
    // Without an API server it ends again, and a kubelet starts it again.
    eventually(BACK, "the replica is ready again", || replica.restart()).await
}

pub(super) async fn freeze(stage: &Stage, replica: usize, length: Duration) -> Result<()> {
    let _turn = turn(stage, replica).await?;
    let replica = stage.world.gate.replica(replica);
    replica.freeze()?;
    sleep(length).await;
    replica.thaw()
}

/// The clock of one replica jumps, and jumps back.
pub(super) async fn set_clock(
    stage: &Stage,
    replica: usize,
    seconds: i64,
    length: Duration,
) -> Result<()> {
    let _turn = turn(stage, replica).await?;
    let replica = stage.world.gate.replica(replica);
    replica.set_clock(seconds)?;
    sleep(length).await;
    replica.set_clock(0)
}

async fn turn(stage: &Stage, replica: usize) -> Result<MutexGuard<'_, ()>> {
    let turn = stage.replicas.get(replica).context("no such replica")?;
    Ok(turn.lock().await)
}
