//! Rollouts under `OnDelete`: their order, their cost for writers, their obstacles, and other
//! requests in between.

mod books;
mod defects;
mod dep_06;
mod dep_07;
mod druid;
mod fleet;
mod growth;
mod hung;
pub(crate) mod kills;
mod kills_at_the_leader;
mod not_listening;
mod peer_tls;
mod preflight;
mod refused;
mod rejected;
mod retarget;
pub(crate) mod scene;
mod sizes;
mod soak;
mod staging;
mod strangers;
pub(crate) mod template;
pub(crate) mod told;
mod unblock;
mod unready;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use quorumgate::api::condition;
use serde_json::json;

use scene::{ELECTION, GAP, Watched, on_delete};
use template::{change, change_by, outdated, revision};
use told::{finished, waits_on, wish};

#[tokio::test(flavor = "multi_thread")]
async fn followers_go_first_and_the_leader_last_and_writers_hardly_notice() -> Result<()> {
    let world = on_delete("rollout", |etcd| etcd).start().await?;
    let leader = world.etcd.leader().await?;
    let watched = Watched::begin(&world).await?;

    let target = change(&world, "one").await?;
    let rollout = finished(&world, &target).await?;
    let order = watched.end(&world, GAP).await?;
    ensure!(order.len() == 3, "pods went in this order: {order:?}");
    ensure!(
        order.last() == Some(&leader),
        "{leader} led, and they went in this order: {order:?}"
    );
    ensure!(rollout.updated == 3 && rollout.targets == 3, "{rollout:?}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_template_holds_at_one_member_and_a_rollback_goes_on() -> Result<()> {
    let world = on_delete("rollout-bad", |etcd| etcd).start().await?;
    wish(&world, json!({"rollout": {"progressDeadline": "10s"}})).await?;
    let watched = Watched::begin(&world).await?;
    let good = revision(&world).await?;
    let image = template::current_image(&world).await?;

    let bad = change_by(&world, template::image("no.such/image:1")).await?;
    let told = waits_on(&world, &bad, &["UpdatedMembers"]).await?;
    let victim = told.last_step.context("no step")?.pod;
    ensure!(
        outdated(&world, &good).await? == BTreeSet::from([victim.clone()]),
        "more than one member got the bad template"
    );

    let told = waits_on(&world, &bad, &["Overdue"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    ensure!(message.contains(&victim), "{message}");
    let progressing = world.condition(condition::PROGRESSING).await?;
    ensure!(
        progressing.status == "False" && progressing.reason == "Overdue",
        "{progressing:?}"
    );

    // Without the gate the StatefulSet controller would wait for the broken pod for ever
    // (kubernetes#67250).
    template::patch_set(&world, template::image(&image)).await?;
    finished(&world, &good).await?;
    ensure!(
        outdated(&world, &good).await?.is_empty(),
        "a pod still has the bad template"
    );
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order == [victim.clone(), victim], "{order:?}");
    world.close().await
}
