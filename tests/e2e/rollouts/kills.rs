//! The replica that drives a rollout is killed at each point of a step, and another one continues
//! from there.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use quorumgate_testbed::eventually;
use serde_json::json;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::change;
use super::told::{finished, rollout, waits_on, wish};
use crate::vigil::Vigil;
use crate::world::{SOON, World};

/// The driver has reported the rollout, and has no grant yet.
#[tokio::test(flavor = "multi_thread")]
async fn killed_before_the_grant_nothing_is_lost_or_repeated() -> Result<()> {
    let world = on_delete("killed-looking", |etcd| etcd).start().await?;
    wish(&world, json!({"paused": true})).await?;
    let watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let target = change(&world, "one").await?;
    waits_on(&world, &target, &["Paused"]).await?;
    let driver = driver(&world).await?;
    world.gate.replica(driver).kill().await?;
    wish(&world, json!({"paused": false})).await?;
    each_goes_once(world, watched, vigil, Vec::new(), &target).await
}

/// The driver's grant is in the ledger, and its delete gets no answer, because the replica that is
/// asked is frozen.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_grant_nothing_is_lost_or_repeated() -> Result<()> {
    let world = on_delete("killed-granted", |etcd| etcd).start().await?;
    let mut watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let driver = driver(&world).await?;
    let other = 1 - driver;
    world.gate.balancer().pin(other);
    world.gate.replica(other).freeze()?;

    let target = change(&world, "one").await?;
    let what = "a step has its grant";
    let granted = eventually(SOON, what, async || {
        let granted = world.granted().await?;
        ensure!(!granted.is_empty(), "none has");
        Ok(granted)
    })
    .await?;
    world.gate.replica(driver).kill().await?;
    ensure!(
        watched.gone().is_empty(),
        "{granted:?} had gone before the driver was killed"
    );
    world.gate.replica(other).thaw()?;
    each_goes_once(world, watched, vigil, Vec::new(), &target).await
}

/// The pod of the driver's step terminates.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_delete_nothing_is_lost_or_repeated() -> Result<()> {
    let world = on_delete("killed-deleted", |etcd| etcd).start().await?;
    let mut watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let driver = driver(&world).await?;
    let target = change(&world, "one").await?;
    let gone = vec![watched.next().await?];
    world.gate.replica(driver).kill().await?;
    each_goes_once(world, watched, vigil, gone, &target).await
}

/// The driver hangs, and wakes up after another one has continued. For a moment it does not know
/// that it no longer leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_wakes_up_late_does_no_harm() -> Result<()> {
    let world = on_delete("driver-stale", |etcd| etcd).start().await?;
    let mut watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let driver = driver(&world).await?;
    let target = change(&world, "one").await?;
    let first = watched.next().await?;
    world.gate.replica(driver).freeze()?;
    // The API server must not wait for the frozen replica.
    world.gate.balancer().pin(1 - driver);
    let gone = vec![first, watched.next().await?];
    world.gate.replica(driver).thaw()?;
    each_goes_once(world, watched, vigil, gone, &target).await
}

/// Checks that every member is replaced once, the leader last. `gone` has those that went before.
async fn each_goes_once(
    world: World,
    watched: Watched,
    vigil: Vigil,
    mut gone: Vec<String>,
    target: &str,
) -> Result<()> {
    let told = finished(&world, target).await?;
    ensure!(told.updated == 3, "{told:?}");
    gone.extend(watched.end(&world, ELECTION).await?);
    vigil.assert_never_below(2).await?;
    let last = rollout(&world).await?.last_step.context("no step")?;
    ensure!(
        gone.last() == Some(&last.pod) && last.because.contains("leader"),
        "{last:?} was the last step, and pods went in this order: {gone:?}"
    );
    gone.sort();
    ensure!(gone == world.etcd.pod_names(), "{gone:?}");
    world.close().await
}

/// The index of the replica that drives.
pub(crate) async fn driver(world: &World) -> Result<usize> {
    let home = format!("{}-gate", world.namespace());
    let leases: Api<Lease> = Api::namespaced(world.sandbox.client(), &home);
    eventually(Duration::from_secs(30), "a replica leads", async || {
        let spec = leases.get("quorumgate").await?.spec.context("no spec")?;
        let holder = spec.holder_identity.context("the Lease has no holder")?;
        let mut replicas = world.gate.replicas().iter();
        let found = replicas.position(|replica| replica.name() == holder);
        found.with_context(|| format!("{holder} is none of ours"))
    })
    .await
}
