//! Faults of the gate itself.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::eventually;
use tokio::sync::MutexGuard;
use tokio::time::sleep;

use super::stage::Stage;

/// The time limit until a replica is ready again, on a busy machine.
const BACK: Duration = Duration::from_secs(300);

pub(super) async fn kill(stage: &Stage, replica: usize, length: Duration) -> Result<()> {
    let _turn = turn(stage, replica).await?;
    stage.world.gate.replica(replica).kill().await?;
    sleep(length).await;
    restart(stage, replica).await
}

pub(super) async fn freeze(stage: &Stage, replica: usize, length: Duration) -> Result<()> {
    let _turn = turn(stage, replica).await?;
    let replica = stage.world.gate.replica(replica);
    replica.freeze()?;
    sleep(length).await;
    replica.thaw()
}

/// Sets the clock of one replica forward or back for a while.
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

/// The turns of all replicas, so that no other operation touches any of them.
pub(super) async fn all_turns(stage: &Stage) -> Vec<MutexGuard<'_, ()>> {
    let mut turns = Vec::new();
    // Every operation takes the turns in the same order, so that no two wait for each other.
    for turn in &stage.replicas {
        turns.push(turn.lock().await);
    }
    turns
}

/// Waits until these replicas are not in the Service and all others are.
pub(super) async fn all_stand_but(stage: &Stage, out: &[usize]) -> Result<()> {
    let gate = &stage.world.gate;
    let what = format!("all replicas stand in the Service but {out:?}");
    eventually(BACK, what, || async {
        let standing = gate.standing().await?;
        let wanted = |replica| !out.contains(&replica);
        let right = standing.iter().enumerate();
        let right = right.filter(|(replica, stands)| **stands == wanted(*replica));
        ensure!(right.count() == standing.len(), "{standing:?}");
        Ok(())
    })
    .await
}

/// Starts a replica again.
pub(super) async fn restart(stage: &Stage, replica: usize) -> Result<()> {
    let replica = stage.world.gate.replica(replica);
    // Without an API server the replica ends again. A kubelet would restart it, so the test does.
    eventually(BACK, "the replica is ready again", || replica.restart()).await
}

pub(super) async fn turn(stage: &Stage, replica: usize) -> Result<MutexGuard<'_, ()>> {
    let turn = stage.replicas.get(replica).context("no such replica")?;
    Ok(turn.lock().await)
}
