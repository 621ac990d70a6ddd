//! A scale-out that changes the template too, as each of etcd-druid's does: new members join before old ones restart.

use anyhow::{Result, ensure};
use quorumgate_testbed::faults;
use serde_json::json;

use super::scene::{GAP, Watched, on_delete};
use super::template::change_by;
use super::told::{finished, rollout, waits_on};
use crate::scale_out::{joins_as_learner, promote, scheduled};
use crate::world::World;

/// What a rollout says while members have yet to join.
const JOINING: [&str; 3] = ["joining", "learner", "missing-pods"];

#[tokio::test(flavor = "multi_thread")]
async fn from_one_to_three_new_members_join_before_the_old_one_restarts() -> Result<()> {
    let world = on_delete("rollout-growth", |etcd| etcd.replicas(1))
        .start()
        .await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let held = ["etcd-1", "etcd-2"]
        .map(|pod| faults::hold_in_container_creating(&world.sandbox, pod).map(|held| (pod, held)));
    let watched = Watched::begin(&world).await?;
    let template = json!({"metadata": {"annotations": {"checksum/etcd-configmap": "of three"}}});
    let patch = json!({"spec": {"replicas": 3, "template": template}});
    let target = change_by(&world, patch).await?;

    for held in held {
        let (pod, held) = held?;
        scheduled(&world, pod).await?;
        waits_on(&world, &target, &JOINING).await?;
        joins_as_learner(&world, pod, held).await?;
        stays(&world, &uid).await?;
        promote(&world, pod).await?;
        stays_unless_all_joined(&world, pod, &uid).await?;
    }
    let told = finished(&world, &target).await?;
    ensure!(told.updated == 3 && told.targets == 3, "{told:?}");
    let order = watched.end(&world, GAP).await?;
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

async fn stays_unless_all_joined(world: &World, joined: &str, uid: &str) -> Result<()> {
    if joined == "etcd-2" {
        return Ok(());
    }
    stays(world, uid).await
}
