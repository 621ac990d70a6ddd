//! Updated members that serve and are not Ready. No Service sends requests to them, so the members
//! that are Ready stay.

use anyhow::{Result, ensure};
use quorumgate::api::condition;
use quorumgate_testbed::{eventually, faults};
use serde_json::json;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::change;
use super::told::{finished, waits_on, wish};
use crate::world::{SOON, World};

async fn is_ready(world: &World, pod: &str) -> Result<bool> {
    let status = world.etcd.pod(pod).await?.status;
    let mut conditions = status.and_then(|s| s.conditions).into_iter().flatten();
    Ok(conditions.any(|it| it.type_ == "Ready" && it.status == "True"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_one_stays_until_clients_reach_the_updated_one() -> Result<()> {
    let world = on_delete("unready", |etcd| etcd).start().await?;
    world.etcd.move_leader("etcd-0").await?;
    wish(&world, json!({"rollout": {"progressDeadline": "10s"}})).await?;
    let unready = faults::fail_readiness(&world.sandbox, "etcd-1")?;
    eventually(SOON, "etcd-1 is not Ready", async || {
        ensure!(!is_ready(&world, "etcd-1").await?, "it is");
        Ok(())
    })
    .await?;

    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    let first = watched.next().await?;
    ensure!(first == "etcd-1", "{first} went, which clients reach");
    waits_on(&world, &target, &["Unready"]).await?;
    eventually(SOON, "its owner is told", async || {
        let progressing = world.condition(condition::PROGRESSING).await?;
        let told = progressing.status == "False" && progressing.reason == "Unready";
        ensure!(told, "{progressing:?}");
        Ok(())
    })
    .await?;
    ensure!(watched.gone().is_empty(), "another one went");

    drop(unready);
    finished(&world, &target).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order == ["etcd-2", "etcd-0"], "{order:?}");
    world.close().await
}
