//! A template that changes again during its rollout.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::{eventually, faults};
use serde_json::json;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{change, outdated, patch_set, revision};
use super::told::{finished, rollout, waits_on};
use crate::world::SOON;

/// The time limit for the second change. It is far more than needed, and far less than a wait for
/// the member with the first change would take.
const AT_ONCE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_changes_midway_is_the_target_at_once() -> Result<()> {
    let world = on_delete("rollout-retarget", |etcd| etcd).start().await?;
    let leader = world.etcd.leader().await?;
    let followers = world.etcd.followers().await?;
    let held: Vec<_> = followers
        .iter()
        .map(|pod| faults::hold_in_container_creating(&world.sandbox, pod))
        .collect::<Result<_>>()?;
    let mut watched = Watched::begin(&world).await?;
    let first = change(&world, "one").await?;
    let told = waits_on(&world, &first, &["UpdatedMembers"]).await?;
    let held_pod = told.last_step.context("no step")?.pod;
    ensure!(watched.gone() == [held_pod.clone()], "more than one went");

    // The member that waits to start with the first change is outdated again, and starts with the
    // second change instead.
    let second = change(&world, "two").await?;
    eventually(AT_ONCE, "the held pod has the second change", async || {
        let left = outdated(&world, &second).await?;
        ensure!(!left.contains(&held_pod), "{left:?} are outdated");
        let told = rollout(&world).await?;
        ensure!(told.target.as_ref() == Some(&second), "{told:?}");
        Ok(())
    })
    .await?;
    ensure!(watched.gone() == [held_pod], "another went");
    drop(held);

    let told = finished(&world, &second).await?;
    ensure!(told.updated == 3, "{told:?}");
    let rest = watched.end(&world, ELECTION).await?;
    ensure!(
        rest.len() == 2 && rest.last() == Some(&leader),
        "{leader} led, and the others went in this order: {rest:?}"
    );
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_anything_but_the_template_restarts_nobody() -> Result<()> {
    let world = on_delete("rollout-nothing", |etcd| etcd.replicas(1))
        .nodes(1)
        .start()
        .await?;
    let mut watched = Watched::begin(&world).await?;
    let before = revision(&world).await?;
    finished(&world, &before).await?;
    let change = json!({"spec": {"minReadySeconds": 1, "revisionHistoryLimit": 3}});
    patch_set(&world, change).await?;
    eventually(SOON, "it was read", async || {
        let now = revision(&world).await?;
        ensure!(now == before, "{now}");
        Ok(())
    })
    .await?;
    finished(&world, &before).await?;
    ensure!(watched.gone().is_empty(), "a pod was replaced");
    watched.end(&world, ELECTION).await?;
    world.close().await
}
