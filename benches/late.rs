//! A rollout whose first member is down for long, so that the driver looks least often in the end.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::faults;
use serde_json::Value;
use tokio::time::sleep;

use crate::arena::Arena;
use crate::condition::Condition;
use crate::promptness::{Delay, Promptness};

/// The time after which a waiting driver looks least often.
const LONG: Duration = Duration::from_secs(45);
const SOON: Duration = Duration::from_secs(60);

/// The delay of the step after the long wait, from the moment at which it might begin.
pub(crate) async fn delay(arena: &mut Arena, strategy: &Value, round: usize) -> Result<Delay> {
    let leader = Condition::Healthy.leader(round);
    let prepared = arena.prepare(Condition::Healthy.readiness(), strategy, &leader);
    prepared.await?;
    let revision = arena.revision().await?;
    let followers = arena.etcd.followers().await?;
    let held = followers
        .iter()
        .map(|pod| faults::hold_in_container_creating(&arena.sandbox, pod));
    let held: Vec<_> = held.collect::<Result<_>>()?;
    let promptness = Promptness::watch(&arena.etcd, &arena.watch).await?;

    arena.change().await?;
    arena
        .watch
        .until("one is created anew", SOON, |pods| {
            let new = |pod: &&crate::incarnations::Incarnation| pod.revision != revision;
            pods.values().filter(new).count() == 1
        })
        .await?;
    sleep(LONG).await;
    drop(held);
    arena.updated(&revision).await?;
    arena.rolled_out();
    let delays = promptness.delays().await?;
    ensure!(delays.len() == 2, "{delays:?}");
    delays.first().copied().context("no step")
}
