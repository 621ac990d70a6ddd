//! An outdated member that hangs is replaced first while the others make the majority: its restart
//! may repair it.

use std::time::Duration;

use anyhow::{Result, ensure};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::PodFaults;
use tokio::time::Instant;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::change;
use super::told::{finished, waits_on};
use crate::world::{SOON, World};

/// The time limit from the change of the template to the first step.
const FIRST_STEP: Duration = Duration::from_secs(15);

async fn world_with(name: &str) -> Result<World> {
    // A stopped process ends by SIGKILL only, so the grace period is short.
    let ends_soon = |etcd: quorumgate_testbed::etcd_cluster::EtcdClusterBuilder| {
        etcd.grace_period(Duration::from_secs(2))
    };
    on_delete(name, ends_soon).start().await
}

async fn is_replaced_first(world: World, hanging: &str) -> Result<()> {
    let frozen = PodFaults::find(&world.sandbox, hanging).await?.freeze()?;
    eventually(SOON, format!("{hanging} is not Ready"), async || {
        ensure!(!world.etcd.is_ready(hanging).await?, "not yet");
        anyhow::Ok(())
    })
    .await?;
    let mut watched = Watched::begin(&world).await?;
    let changed = Instant::now();
    let target = change(&world, "one").await?;
    let first = watched.next().await?;
    let after = changed.elapsed();
    ensure!(first == hanging, "{first} went first");
    ensure!(after < FIRST_STEP, "the first step came after {after:?}");
    finished(&world, &target).await?;
    drop(frozen);
    watched.end(&world, ELECTION).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_follower_is_replaced_first() -> Result<()> {
    let world = world_with("rollout-hung").await?;
    world.etcd.move_leader("etcd-1").await?;
    is_replaced_first(world, "etcd-2").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_leader_is_replaced_first() -> Result<()> {
    let world = world_with("rollout-hung-leader").await?;
    world.etcd.move_leader("etcd-0").await?;
    is_replaced_first(world, "etcd-0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_from_everybody_is_replaced_first() -> Result<()> {
    let world = world_with("rollout-cut-off").await?;
    world.etcd.move_leader("etcd-1").await?;
    let member = PodFaults::find(&world.sandbox, "etcd-0").await?;
    let cuts = [member.partition()?, member.ignore_clients()?];
    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    let first = watched.next().await?;
    ensure!(first == "etcd-0", "{first} went first");
    finished(&world, &target).await?;
    drop(cuts);
    watched.end(&world, ELECTION).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_member_stays_while_the_others_make_no_majority() -> Result<()> {
    let world = world_with("rollout-two-hung").await?;
    let mut frozen = Vec::new();
    for pod in ["etcd-1", "etcd-2"] {
        frozen.push(PodFaults::find(&world.sandbox, pod).await?.freeze()?);
    }
    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    waits_on(&world, &target, &["Evidence", "Permission", "QuorumLost"]).await?;
    // The time is several times what the gate waits before a member counts as hanging.
    let until = Instant::now() + FIRST_STEP;
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(200)).await;
        ensure!(watched.gone().is_empty(), "a pod was replaced");
    }
    drop(frozen);
    finished(&world, &target).await?;
    watched.end_with_any_gap(&world).await?;
    world.close().await
}
