//! Rollouts that stop halfway: because the owner staged them, or because the change separates old
//! members from new ones.

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::etcd_cluster::Tls;
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{change, change_by, outdated, patch_set, revision};
use super::told::{ROLLOUT, finished, waits_on};
use crate::world::World;

/// The owner stages by the partition of a `RollingUpdate`, and still does when the gate has
/// replaced the strategy by `OnDelete`.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_goes_as_far_as_the_owner_has_staged_it() -> Result<()> {
    let world = World::builder("rollout-staged")
        .feature("QuorumAwareUpdatesWithOnDelete")
        .start()
        .await?;
    stage(&world, 2).await?;
    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    let told = finished(&world, &target).await?;
    ensure!((told.updated, told.targets) == (1, 1), "{told:?}");
    ensure!(watched.gone() == ["etcd-2"], "others went too");

    stage(&world, 0).await?;
    eventually(ROLLOUT, "the others are updated", async || {
        let left = outdated(&world, &target).await?;
        ensure!(left.is_empty(), "{left:?} are not");
        Ok(())
    })
    .await?;
    let mut rest = watched.end(&world, ELECTION).await?;
    rest.sort();
    ensure!(rest == ["etcd-0", "etcd-1"], "{rest:?}");
    world.close().await
}

async fn stage(world: &World, partition: u32) -> Result<()> {
    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
    patch_set(world, json!({"spec": {"updateStrategy": strategy}})).await
}

/// TLS between members cannot be switched on one by one: the first member with TLS would not reach
/// the others.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_keeps_members_apart_holds_until_it_is_taken_back() -> Result<()> {
    let world = on_delete("rollout-apart", |etcd| etcd.tls(Tls::None))
        .start()
        .await?;
    let good = revision(&world).await?;
    let spec = world.etcd.stateful_set().await?.spec.context("no spec")?;
    let template = spec.template.spec.context("no template")?;
    let plain = template.containers.first().and_then(|c| c.args.clone());
    let plain = plain.context("no arguments")?;
    let secure: Vec<_> = plain.iter().map(|arg| with_peer_tls(arg)).collect();
    ensure!(secure != plain, "{plain:?}");

    let watched = Watched::begin(&world).await?;
    let target = change_by(&world, arguments(&secure)).await?;
    let told = waits_on(&world, &target, &["Obstacle"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    let way_out = format!("quorumgate.io/proceed-without-quorum: {target}");
    ensure!(message.contains(&way_out), "{message}");

    patch_set(&world, arguments(&plain)).await?;
    finished(&world, &good).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order.is_empty(), "{order:?} went");
    world.close().await
}

fn with_peer_tls(argument: &str) -> String {
    let peers = "--listen-peer-urls=http:";
    argument.replace(peers, "--listen-peer-urls=https:")
}

fn arguments(arguments: &[String]) -> Value {
    let containers = json!([{"name": "etcd", "args": arguments}]);
    json!({"spec": {"template": {"spec": {"containers": containers}}}})
}
