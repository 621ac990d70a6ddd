//! A scale-out that also changes the template, as each of etcd-druid's does. New members join
//! before old ones restart.

use anyhow::{Result, ensure};
use quorumgate_testbed::faults;
use serde_json::json;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::change_by;
use super::told::{finished, rollout, waits_on};
use crate::scale_out::{joins_as_learner, promote, scheduled};
use crate::world::World;

/// The reasons to wait while members have yet to join.
const JOINING: [&str; 3] = ["Joining", "Learner", "MissingPods"];

#[tokio::test(flavor = "multi_thread")]
async fn from_one_to_three_new_members_join_before_the_old_one_restarts() -> Result<()> {
    let world = on_delete("rollout-growth", |etcd| etcd.replicas(1))
        .start()
        .await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let held = faults::hold_in_container_creating(&world.sandbox, "etcd-2")?;
    let watched = Watched::begin(&world).await?;
    // A single member cannot spare a learner that has started. So the learner is added before its
    // pod starts.
    world.etcd.add_learner("etcd-1").await?;
    let template = json!({"metadata": {"annotations": {"checksum/etcd-configmap": "of three"}}});
    let patch = json!({"spec": {"replicas": 3, "template": template}});
    let target = change_by(&world, patch).await?;
    waits_on(&world, &target, &JOINING).await?;
    promote(&world, "etcd-1").await?;
    stays(&world, &uid).await?;

    scheduled(&world, "etcd-2").await?;
    waits_on(&world, &target, &JOINING).await?;
    joins_as_learner(&world, "etcd-2", held).await?;
    waits_on(&world, &target, &JOINING).await?;
    stays(&world, &uid).await?;
    promote(&world, "etcd-2").await?;

    let told = finished(&world, &target).await?;
    ensure!(told.updated == 3 && told.targets == 3, "{told:?}");
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order == ["etcd-0"], "{order:?}");
    ensure!(
        world.etcd.leader().await? != "etcd-0",
        "it leads again without having been asked to"
    );
    world.close().await
}

async fn stays(world: &World, uid: &str) -> Result<()> {
    let now = world.etcd.pod_uid("etcd-0").await?;
    ensure!(now == uid, "it went: {:?}", rollout(world).await?);
    Ok(())
}
