//! The limit of rollouts at one time, over all clusters, and their hours.

use anyhow::{Context as _, Result, ensure};
use jiff::{Timestamp, ToSpan as _};
use quorumgate::api::RolloutStatus;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, MARKER, UpdateStrategy};
use quorumgate_testbed::eventually;
use serde_json::json;

use super::scene::on_delete;
use super::template::{change, change_by, image, outdated};
use super::told::{finished, waits_on, wish};
use crate::world::{SOON, World};

async fn rollout_of(world: &World, etcd: &EtcdCluster) -> Result<RolloutStatus> {
    let status = world.budget_of(etcd).await?.status.context("no status")?;
    Ok(*status.rollout.context("no rollout is told of")?)
}

/// A rollout that is stuck keeps its turn, so a bad template stops after as many clusters as the
/// limit says. Paused, it gives way.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_waits_for_its_turn_and_begins_when_the_other_is_paused() -> Result<()> {
    let world = on_delete("rollout-fleet", |etcd| etcd)
        .argument("--max-rollouts=1")
        .nodes(4)
        .start()
        .await?;
    let other = EtcdCluster::builder("other")
        .update_strategy(UpdateStrategy::OnDelete)
        .apply(&world.sandbox)
        .await?;
    other.quorate(SOON).await?;
    world.trusted_of(&other).await?;
    wish(&world, json!({"rollout": {"progressDeadline": "10s"}})).await?;
    let bad = change_by(&world, image("no.such/image:1")).await?;
    waits_on(&world, &bad, &["Overdue"]).await?;

    let template = json!({"spec": {"template": {"metadata": {"annotations": {MARKER: "one"}}}}});
    let patch = format!("--patch={template}");
    world
        .kubectl(&["patch", "statefulset", "other", "--type=merge", &patch])
        .await?
        .success()?;
    eventually(SOON, "the other cluster waits", || async {
        let rollout = rollout_of(&world, &other).await?;
        let reason = rollout
            .waiting_on
            .as_ref()
            .map(|waits| waits.reason.as_str());
        ensure!(
            reason == Some("RolloutLimit") && rollout.updated == 0,
            "{rollout:?}"
        );
        Ok(())
    })
    .await?;
    wish(&world, json!({"paused": true})).await?;
    eventually(SOON, "the other cluster is rolled out", || async {
        let rollout = rollout_of(&world, &other).await?;
        ensure!(
            rollout.updated == 3 && rollout.completion_time.is_some(),
            "{rollout:?}"
        );
        Ok(())
    })
    .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn outside_its_window_a_rollout_takes_no_member_that_serves() -> Result<()> {
    let world = on_delete("rollout-window", |etcd| etcd).start().await?;
    let hour = |hours: i64| {
        let at = Timestamp::now() + hours.hours();
        at.strftime("%H:%M").to_string()
    };
    let closed = json!({"from": hour(6), "to": hour(7), "timeZone": "Etc/UTC"});
    wish(&world, json!({"rollout": {"window": closed}})).await?;
    let target = change(&world, "one").await?;
    let told = waits_on(&world, &target, &["OutsideWindow"]).await?;
    ensure!(told.updated == 0, "{told:?}");
    let broken = world.crash("etcd-1").await?;
    eventually(SOON, "the broken member is updated", || async {
        let left = outdated(&world, &target).await?;
        ensure!(!left.contains("etcd-1") && left.len() == 2, "{left:?}");
        Ok(())
    })
    .await?;
    broken.mend();
    wish(&world, json!({"rollout": {"window": null}})).await?;
    finished(&world, &target).await?;
    world.close().await
}
