//! A change that cannot be rolled out member by member: TLS between members is switched on, and
//! members with it cannot talk to members without it.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use quorumgate::api::{condition, names};
use quorumgate_testbed::etcd_cluster::Tls;
use quorumgate_testbed::eventually;
use serde_json::json;

use super::scene::{Watched, on_delete};
use super::template::revision;
use super::told::{all_updated, finished, waits_on, wish};
use crate::world::{SOON, World};

/// Annotates the budget, so that this revision may proceed without quorum.
async fn accept(world: &World, revision: &str) -> Result<()> {
    let annotations = json!({names::PROCEED_WITHOUT_QUORUM: revision});
    let patch = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
    let (name, parameters) = (world.etcd.name(), PatchParams::default());
    world.budgets().patch(name, &parameters, &patch).await?;
    Ok(())
}

/// Switches TLS between the members. Returns the new update revision.
async fn switch(world: &mut World, tls: Tls) -> Result<String> {
    let before = revision(world).await?;
    world.etcd.switch_peer_tls(tls).await?;
    eventually(SOON, "the template has a new revision", async || {
        let now = revision(world).await?;
        ensure!(now != before, "still {now}");
        Ok(now)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_of_peer_tls_holds_and_goes_on_for_exactly_the_annotated_revision() -> Result<()> {
    let mut world = on_delete("rollout-peer-tls", |etcd| etcd.peer_tls(Tls::None))
        .start()
        .await?;
    let leader = world.etcd.leader().await?;
    let mut watched = Watched::begin(&world).await?;
    let old = revision(&world).await?;
    let target = switch(&mut world, Tls::Mutual).await?;
    let told = waits_on(&world, &target, &["Obstacle"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    let way_on = format!("{}: {target}", names::PROCEED_WITHOUT_QUORUM);
    ensure!(
        message.contains("TLS") && message.ends_with(&way_on),
        "{message}"
    );
    let progressing = world.condition(condition::PROGRESSING).await?;
    ensure!(progressing.status == "False", "{progressing:?}");

    // The annotation names another revision, so it does not apply to this change. A look each is
    // needed to be paused and to continue.
    accept(&world, &old).await?;
    wish(&world, json!({"paused": true})).await?;
    waits_on(&world, &target, &["Paused"]).await?;
    wish(&world, json!({"paused": false})).await?;
    let told = waits_on(&world, &target, &["Obstacle"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    let no_effect = format!("has no effect: it names {old}, and the update revision is {target}");
    ensure!(message.ends_with(&no_effect), "{message}");
    let gone = watched.gone();
    ensure!(gone.is_empty(), "{gone:?} went");

    accept(&world, &target).await?;
    all_updated(&world, &target).await?;
    finished(&world, &target).await?;
    let (order, _) = watched.end_with_any_gap(&world).await?;
    ensure!(
        order.len() == 3 && order.last() == Some(&leader),
        "{leader} led, and they went in this order: {order:?}"
    );

    // The annotation does not apply to the next switch.
    let mut watched = Watched::begin(&world).await?;
    let back = switch(&mut world, Tls::None).await?;
    waits_on(&world, &back, &["Obstacle"]).await?;
    let gone = watched.gone();
    ensure!(gone.is_empty(), "{gone:?} went");
    world.close().await
}
