//! Rollouts of clusters of other sizes than three.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use quorumgate_testbed::{eventually, faults};
use serde_json::json;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{change, outdated};
use super::told::{finished, waits_on, wish};
use crate::asking::refusal;
use crate::vigil::Vigil;
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn the_only_member_is_updated_where_its_owner_lets_it_go() -> Result<()> {
    let world = on_delete("rollout-one", |etcd| etcd.replicas(1))
        .nodes(1)
        .start()
        .await?;
    wish(&world, json!({"policy": {"singleMember": "Never"}})).await?;
    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    waits_on(&world, &target, &["Permission"]).await?;
    ensure!(watched.gone().is_empty(), "it went");

    wish(&world, json!({"policy": {"singleMember": "AllowRollout"}})).await?;
    finished(&world, &target).await?;
    let (order, _) = watched.end_with_any_gap(&world).await?;
    ensure!(order == ["etcd-0"], "{order:?}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_members_the_leader_goes_once_the_follower_is_back() -> Result<()> {
    let world = on_delete("rollout-two", |etcd| etcd.replicas(2))
        .nodes(2)
        .start()
        .await?;
    let leader = world.etcd.leader().await?;
    let follower = world.etcd.followers().await?.pop().context("no follower")?;
    let mut watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let (code, message) = refusal(world.delete(&follower).await)?;
    ensure!(
        code == 429 && message.contains("policy.twoMembers"),
        "a stranger: {code}: {message}"
    );

    let held = faults::hold_in_container_creating(&world.sandbox, &follower)?;
    let target = change(&world, "one").await?;
    waits_on(&world, &target, &["UpdatedMembers"]).await?;
    ensure!(watched.gone() == [follower.clone()], "not the follower");
    held.mend();
    finished(&world, &target).await?;
    vigil.assert_never_below(1).await?;
    let (order, _) = watched.end_with_any_gap(&world).await?;
    ensure!(order == [leader], "{order:?}");
    world.close().await
}

/// The gate's own `PodDisruptionBudget`, which is for planners, does not block a member that the
/// budget's policy lets the rollout evict.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_members_both_are_evicted_when_asked_the_leader_last() -> Result<()> {
    let world = on_delete("rollout-two-evicted", |etcd| etcd.replicas(2))
        .nodes(2)
        .start()
        .await?;
    wish(&world, json!({"rollout": {"removal": "EvictHealthy"}})).await?;
    let leader = world.etcd.leader().await?;
    let follower = world.etcd.followers().await?.pop().context("no follower")?;
    for_planners(&world, 2).await?;
    let watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;

    let held = faults::hold_in_container_creating(&world.sandbox, &follower)?;
    let target = change(&world, "one").await?;
    let told = waits_on(&world, &target, &["UpdatedMembers"]).await?;
    let step = told.last_step.context("no step")?;
    ensure!(step.pod == follower && step.action == "Evict", "{step:?}");
    held.mend();
    let told = finished(&world, &target).await?;
    let step = told.last_step.context("no step")?;
    ensure!(
        step.pod == leader && step.because.contains("leader"),
        "{step:?}"
    );
    vigil.assert_never_below(1).await?;
    let (order, _) = watched.end_with_any_gap(&world).await?;
    ensure!(order == [follower, leader], "{order:?}");
    for_planners(&world, 2).await?;
    world.close().await
}

/// Waits until the companion requires this number of members.
async fn for_planners(world: &World, members: i32) -> Result<()> {
    let budgets: Api<PodDisruptionBudget> = world.sandbox.api();
    let name = format!("quorumgate-{}", world.etcd.name());
    let what = format!("{members} members have to stay");
    eventually(SOON, what, async || {
        let spec = budgets.get(&name).await?.spec.context("no spec")?;
        let least = spec.min_available;
        ensure!(least == Some(IntOrString::Int(members)), "{least:?}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_members_that_nobody_may_take_none_is_updated() -> Result<()> {
    let world = on_delete("rollout-never", |etcd| etcd.replicas(2))
        .nodes(2)
        .start()
        .await?;
    wish(&world, json!({"policy": {"twoMembers": "Never"}})).await?;
    let watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    let told = waits_on(&world, &target, &["Permission"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    ensure!(message.contains("policy.twoMembers"), "{message}");
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order.is_empty(), "{order:?} went");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_five_members_two_at_a_time_are_updated_when_asked_and_never_three() -> Result<()> {
    let world = on_delete("rollout-five", |etcd| etcd.replicas(5))
        .start()
        .await?;
    wish(&world, json!({"maxUnavailable": 2})).await?;
    let leader = world.etcd.leader().await?;
    let mut watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let followers = world.etcd.followers().await?;
    let held: Vec<_> = followers
        .iter()
        .map(|pod| faults::hold_in_container_creating(&world.sandbox, pod))
        .collect::<Result<_>>()?;

    let target = change(&world, "one").await?;
    // No member that went comes back for the moment, so those that are out now are all there will
    // be.
    let what = ["UpdatedMembers"];
    eventually(SOON, "two are out", async || {
        waits_on(&world, &target, &what).await?;
        let left = outdated(&world, &target).await?;
        ensure!(left.len() == 3, "{left:?} are left");
        Ok(())
    })
    .await?;
    let out = watched.gone();
    ensure!(
        out.len() == 2 && !out.contains(&leader),
        "{leader} leads, and {out:?} went"
    );
    drop(held);

    finished(&world, &target).await?;
    vigil.assert_never_below(3).await?;
    let rest = watched.end(&world, ELECTION).await?;
    ensure!(
        rest.len() == 3 && rest.last() == Some(&leader),
        "{leader} led, and the others went in this order: {rest:?}"
    );
    world.close().await
}
