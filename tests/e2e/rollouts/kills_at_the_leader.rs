//! The replica that drives is killed at each point of the last step, the leader's, and another one
//! continues from there.

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::eventually;
use serde_json::json;

use super::kills::driver;
use super::scene::{ELECTION, Watched, on_delete};
use super::template::{change, outdated};
use super::told::{ROLLOUT, finished, rollout, waits_on, wish};
use crate::vigil::Vigil;
use crate::world::{SOON, World};

const LEADER: &str = "etcd-0";

/// A rollout in which only the leader is left, because of the partition.
struct LeaderLeft {
    world: World,
    watched: Watched,
    vigil: Vigil,
    target: String,
}

impl LeaderLeft {
    async fn reach(name: &str) -> Result<Self> {
        let world = on_delete(name, |etcd| etcd).start().await?;
        world.etcd.move_leader(LEADER).await?;
        wish(&world, json!({"partition": 1})).await?;
        let mut watched = Watched::begin(&world).await?;
        let vigil = Vigil::start(&world.etcd).await?;
        let target = change(&world, "one").await?;
        finished(&world, &target).await?;
        world.whole().await?;
        let mut gone = watched.gone();
        gone.sort();
        ensure!(gone == ["etcd-1", "etcd-2"], "{gone:?}");
        ensure!(world.etcd.leader().await? == LEADER, "another one leads");
        Ok(Self {
            world,
            watched,
            vigil,
            target,
        })
    }

    /// Checks that the leader is replaced once, no other member is, and no acknowledged write is
    /// lost. `gone` has the pods that went before.
    async fn goes_once(self, mut gone: Vec<String>) -> Result<()> {
        let Self {
            world,
            watched,
            vigil,
            target,
        } = self;
        eventually(ROLLOUT, "the rollout is complete once more", async || {
            let told = rollout(&world).await?;
            ensure!(
                told.updated == 3 && told.completion_time.is_some(),
                "{told:?}"
            );
            let left = outdated(&world, &target).await?;
            ensure!(left.is_empty(), "{left:?}");
            Ok(())
        })
        .await?;
        gone.extend(watched.end(&world, ELECTION).await?);
        ensure!(gone == [LEADER], "{gone:?}");
        vigil.assert_never_below(2).await?;
        world.close().await
    }
}

/// Leadership has not moved yet.
#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_leaders_move_it_moves_and_the_leader_goes_once() -> Result<()> {
    let mut left = LeaderLeft::reach("killed-unmoved").await?;
    let world = &left.world;
    wish(world, json!({"paused": true, "partition": 0})).await?;
    waits_on(world, &left.target, &["Paused"]).await?;
    world.gate.replica(driver(world).await?).kill().await?;
    ensure!(left.watched.gone().is_empty(), "it went");
    wish(world, json!({"paused": false})).await?;

    finished_by_a_move(world).await?;
    left.goes_once(Vec::new()).await
}

/// Waits until the last step of the rollout replaced the leader, and the leader handed over.
async fn finished_by_a_move(world: &World) -> Result<()> {
    eventually(ROLLOUT, "the leader has handed over and gone", async || {
        let step = rollout(world).await?.last_step.context("no step")?;
        let moved = step.pod == LEADER && step.action == "MoveLeader";
        ensure!(moved, "{step:?}");
        Ok(())
    })
    .await
}

/// Leadership has moved, the driver's grant is in the ledger, and its delete gets no answer,
/// because the replica that is asked is frozen.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_leaders_move_and_grant_it_goes_once() -> Result<()> {
    let mut left = LeaderLeft::reach("killed-moved").await?;
    let world = &left.world;
    let driver = driver(world).await?;
    let other = 1 - driver;
    wish(world, json!({"paused": true, "partition": 0})).await?;
    waits_on(world, &left.target, &["Paused"]).await?;
    world.gate.balancer().pin(other);
    world.gate.replica(other).freeze()?;

    wish(world, json!({"paused": false})).await?;
    eventually(SOON, "the leader has its grant and led", async || {
        let granted = world.granted().await?;
        ensure!(granted == [LEADER], "{granted:?}");
        ensure!(world.etcd.leader().await? != LEADER, "it leads");
        Ok(())
    })
    .await?;
    world.gate.replica(driver).kill().await?;
    ensure!(left.watched.gone().is_empty(), "it went");
    world.gate.replica(other).thaw()?;
    left.goes_once(Vec::new()).await
}

/// The leader's pod terminates.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_leaders_delete_it_goes_once() -> Result<()> {
    let mut left = LeaderLeft::reach("killed-leader-gone").await?;
    let world = &left.world;
    let driver = driver(world).await?;
    wish(world, json!({"partition": 0})).await?;
    let gone = vec![left.watched.next().await?];
    world.gate.replica(driver).kill().await?;
    left.goes_once(gone).await
}
