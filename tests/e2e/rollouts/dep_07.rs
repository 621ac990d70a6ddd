//! The motivating example of DEP-07, the priorities of its step 2, and its step 3.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::etcd_cluster::Readiness;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{self, PodFaults};
use serde_json::json;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{change, outdated};
use super::told::{finished, rollout, waits_on, wish};
use crate::asking::By;
use crate::world::SOON;

/// The longest time without a write. Four of seven members serve, so each write waits for the
/// slowest of them.
const NONE_TO_SPARE: Duration = Duration::from_secs(10);

/// The motivating example: P-0 is partitioned from its peers when the image changes. The
/// StatefulSet controller would replace P-2 first, and the quorum would be lost. To the kubelet P-0
/// looks as ready as the others.
#[tokio::test(flavor = "multi_thread")]
async fn the_partitioned_p_0_goes_first_although_it_is_ready() -> Result<()> {
    let world = on_delete("rollout-dep-07", |etcd| etcd.readiness(Readiness::Process))
        .start()
        .await?;
    world.etcd.move_leader("etcd-1").await?;
    let watched = Watched::begin(&world).await?;
    // The next incarnation has another address, to which the partition does not apply.
    let cut = PodFaults::find(&world.sandbox, "etcd-0")
        .await?
        .partition()?;

    let target = change(&world, "one").await?;
    finished(&world, &target).await?;
    cut.heal();
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order == ["etcd-0", "etcd-2", "etcd-1"], "{order:?}");
    world.close().await
}

/// Step 3: the same with a dead member, which its update does not repair at once.
#[tokio::test(flavor = "multi_thread")]
async fn while_an_updated_member_does_not_serve_no_serving_one_goes() -> Result<()> {
    let world = on_delete("rollout-step-3", |etcd| etcd).start().await?;
    let broken_pod = world.etcd.followers().await?.pop().context("no follower")?;
    let broken = world.crash(&broken_pod).await?;
    let watched = Watched::begin(&world).await?;

    let target = change(&world, "one").await?;
    let told = waits_on(&world, &target, &["UpdatedMembers"]).await?;
    ensure!(
        told.last_step.context("no step")?.pod == broken_pod,
        "another one went first"
    );
    let left = outdated(&world, &target).await?;
    ensure!(left.len() == 2, "only {left:?} stayed");
    broken.mend();

    finished(&world, &target).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(
        order.first() == Some(&broken_pod) && order.len() == 3,
        "{order:?}"
    );
    world.close().await
}

/// Step 2: Dead before Starting before Alive. The ordinals, which decide among equals, are in the
/// opposite order here.
#[tokio::test(flavor = "multi_thread")]
async fn the_dead_go_before_those_that_start_and_those_before_the_alive() -> Result<()> {
    let world = on_delete("rollout-step-2", |etcd| etcd.replicas(7))
        .start()
        .await?;
    let [dead, starting, alive] = ["etcd-0", "etcd-1", "etcd-2"];
    world.etcd.move_leader("etcd-3").await?;
    let broken = world.crash(dead).await?;
    let cut = PodFaults::find(&world.sandbox, alive).await?.partition()?;
    let held = faults::hold_in_container_creating(&world.sandbox, starting)?;
    let uid = world.etcd.pod_uid(starting).await?;
    world.lets_go(By::Delete, starting).await?;
    eventually(SOON, "it is created anew", || async {
        let now = world.etcd.pod_uid(starting).await?;
        ensure!(now != uid, "it is still there");
        world.node_of(starting).await.map(drop)
    })
    .await?;
    world.settled().await?;

    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    waits_on(&world, &target, &["UpdatedMembers"]).await?;
    let order = watched.gone();
    ensure!(order == [dead, starting, alive], "{order:?}");
    let left = outdated(&world, &target).await?;
    ensure!(left.len() == 4, "only {left:?} stayed");
    let told = rollout(&world).await?;
    ensure!(told.updated == 3 && told.targets == 7, "{told:?}");

    // The rest of the rollout is as with three members.
    wish(&world, json!({"paused": true})).await?;
    broken.mend();
    held.mend();
    let rest = watched.end(&world, NONE_TO_SPARE).await?;
    ensure!(rest.is_empty(), "while it was paused {rest:?} went");
    cut.heal();
    world.close().await
}
