//! The time for which an updated member serves before the next one goes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::etcd_cluster::MARKER;
use quorumgate_testbed::faults::PodFaults;
use serde_json::json;
use tokio::time::Instant;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{change, outdated, patch_set, revision};
use super::told::{finished, waits_on, wish};

const SOAK: Duration = Duration::from_secs(20);

/// A process that lasts for less than the soak time never lets a rollout go on. The way back needs
/// no soak: the others have its revision.
#[tokio::test(flavor = "multi_thread")]
async fn a_regression_while_a_member_soaks_stops_the_rollout_and_a_rollback_goes_on() -> Result<()>
{
    let world = on_delete("rollout-soak", |etcd| etcd).start().await?;
    let soak = format!("{}s", SOAK.as_secs());
    wish(&world, json!({"rollout": {"soak": soak}})).await?;
    let good = revision(&world).await?;
    let watched = Watched::begin(&world).await?;

    let bad = change(&world, "one").await?;
    let told = waits_on(&world, &bad, &["Soaking"]).await?;
    let victim = told.last_step.context("no step")?.pod;
    let member = PodFaults::find(&world.sandbox, &victim).await?;
    // Its process ends again and again, each time before it has served for long enough.
    let until = Instant::now() + SOAK + SOAK / 2;
    while Instant::now() < until {
        member.kill()?;
        waits_on(&world, &bad, &["UpdatedMembers"]).await?;
        waits_on(&world, &bad, &["Soaking"]).await?;
        let rest = outdated(&world, &bad).await?;
        ensure!(rest.len() == 2, "another member went: {rest:?} are left");
    }

    let undo = json!({"metadata": {"annotations": {MARKER: null}}});
    patch_set(&world, json!({"spec": {"template": undo}})).await?;
    finished(&world, &good).await?;
    let left = outdated(&world, &good).await?;
    ensure!(left.is_empty(), "{left:?}");
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order == [victim.clone(), victim], "{order:?}");
    world.close().await
}

/// `minReadySeconds` is how Kubernetes says it.
#[tokio::test(flavor = "multi_thread")]
async fn members_go_as_far_apart_as_min_ready_seconds_says() -> Result<()> {
    let world = on_delete("rollout-min-ready", |etcd| etcd).start().await?;
    let apart = Duration::from_secs(10);
    patch_set(
        &world,
        json!({"spec": {"minReadySeconds": apart.as_secs()}}),
    )
    .await?;
    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    let mut gone = BTreeSet::from([watched.next().await?]);
    for _ in 0..2 {
        let since = Instant::now();
        gone.insert(watched.next().await?);
        let after = since.elapsed();
        ensure!(after > apart, "the next one went after {after:?}");
    }
    ensure!(gone.len() == 3, "{gone:?}");
    finished(&world, &target).await?;
    watched.end(&world, ELECTION).await?;
    world.close().await
}
