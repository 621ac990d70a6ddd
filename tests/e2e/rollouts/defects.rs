//! Cases that rollouts by readiness get wrong, with real processes: nodes that died, pods that fit
//! no node, members that hang.

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::PodFaults;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{change, outdated};
use super::told::{finished, waits_on};
use crate::asking::By;
use crate::nodes::out_of_service;
use crate::world::{SOON, World};

/// The reasons to wait while a member is not known to serve, or cannot be replaced.
const SOMEBODY: [&str; 4] = ["Evidence", "InFlight", "MissingPods", "UpdatedMembers"];

/// The API server keeps the last status that the kubelet wrote, in which the containers are ready.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_member_is_on_a_dead_node_no_serving_one_goes() -> Result<()> {
    let world = on_delete("rollout-dead-node", |etcd| etcd)
        .nodes(4)
        .start()
        .await?;
    let lost = world.etcd.followers().await?.pop().context("no follower")?;
    let node = world.agent_of(&lost).await?;
    node.power_off().await?;
    node.wait_ready("Unknown").await?;
    let statuses = world.etcd.pod(&lost).await?.status.context("no status")?;
    let containers = statuses.container_statuses.unwrap_or_default();
    ensure!(containers.iter().all(|c| c.ready), "{containers:?}");

    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    waits_on(&world, &target, &SOMEBODY).await?;
    let gone = watched.gone();
    ensure!(gone.iter().all(|pod| *pod == lost), "{gone:?} went");

    out_of_service(&world, &node).await?;
    finished(&world, &target).await?;
    let rest = watched.end(&world, ELECTION).await?;
    let mut others: Vec<_> = rest.into_iter().filter(|pod| *pod != lost).collect();
    others.sort();
    let mut expected = world.etcd.pod_names();
    expected.retain(|pod| *pod != lost);
    ensure!(others == expected, "{others:?}");
    world.close().await
}

/// A pod without a node has no container statuses, and its member counts as out all the same. It is
/// replaced first, and its successor is no better.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_no_node_takes_goes_first_and_no_serving_one_beside_it() -> Result<()> {
    let world = on_delete("rollout-pending", |etcd| etcd).start().await?;
    let leader = world.etcd.leader().await?;
    let pending = world.etcd.followers().await?.pop().context("no follower")?;
    on_all_nodes(&world, "cordon").await?;
    let uid = world.etcd.pod_uid(&pending).await?;
    world.lets_go(By::Delete, &pending).await?;
    eventually(SOON, "no node takes it", async || {
        let pod = world.etcd.pod(&pending).await?;
        ensure!(pod.metadata.uid.as_ref() != Some(&uid), "it is still there");
        let conditions = pod.status.and_then(|status| status.conditions);
        let refused = conditions.unwrap_or_default().into_iter();
        let mut refused = refused.filter(|c| c.type_ == "PodScheduled" && c.status == "False");
        ensure!(refused.next().is_some(), "no condition says so");
        Ok(())
    })
    .await?;
    world.settled().await?;

    let mut watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    eventually(SOON, "it has been replaced", async || {
        let left = outdated(&world, &target).await?;
        ensure!(!left.contains(&pending), "{left:?} are outdated");
        Ok(())
    })
    .await?;
    waits_on(&world, &target, &["UpdatedMembers"]).await?;
    let gone = watched.gone();
    ensure!(gone == [pending], "{gone:?} went");

    on_all_nodes(&world, "uncordon").await?;
    finished(&world, &target).await?;
    let rest = watched.end(&world, ELECTION).await?;
    ensure!(
        rest.len() == 2 && rest.last() == Some(&leader),
        "{leader} led, and the others went in this order: {rest:?}"
    );
    world.close().await
}

async fn on_all_nodes(world: &World, verb: &str) -> Result<()> {
    for node in world.sandbox.nodes() {
        world.kubectl(&[verb, node.name()]).await?.success()?;
    }
    Ok(())
}

/// A kubelet needs up to half a minute to notice the hang.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_just_begun_to_hang_does_not_count() -> Result<()> {
    let world = on_delete("rollout-hangs", |etcd| etcd).start().await?;
    let leader = world.etcd.leader().await?;
    let hanging = world.etcd.followers().await?.pop().context("no follower")?;
    let mut watched = Watched::begin(&world).await?;
    let frozen = PodFaults::find(&world.sandbox, &hanging).await?.freeze()?;
    let target = change(&world, "one").await?;
    let told = waits_on(&world, &target, &["Evidence"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    ensure!(message.contains(&hanging), "{message}");
    ensure!(watched.gone().is_empty(), "a pod was replaced");
    frozen.thaw();

    finished(&world, &target).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(
        order.len() == 3 && order.last() == Some(&leader),
        "{leader} led, and they went in this order: {order:?}"
    );
    world.close().await
}
