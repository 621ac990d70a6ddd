//! Members whose data goes with their pods.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate::api::DataPlace;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Shape, Storage};
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::json;

use super::{recorded, wish, write_some};
use crate::asking::{By, refusal};
use crate::world::{SOON, World};

/// The longest time without a write: one election on a busy machine.
const ELECTION: Duration = Duration::from_secs(4);
/// The time limit of a drain beside the replacement of a member.
const DRAINED: Duration = Duration::from_secs(240);

/// Drains one node after another, each within `limit`.
pub(super) async fn drain_every_node(world: &World, limit: Duration) -> Result<()> {
    for node in world.sandbox.nodes() {
        eventually(limit, format!("{} is drained", node.name()), || {
            world.drain(node.name(), &[])
        })
        .await?;
        world.kubectl(&["uncordon", node.name()]).await?.success()?;
    }
    Ok(())
}

async fn in_pods(name: &str) -> Result<World> {
    let world = World::builder(name)
        .nodes(4)
        .etcd(|etcd| etcd.storage(Storage::EmptyDir))
        .start()
        .await?;
    recorded(&world).await?;
    Ok(world)
}

async fn ids(etcd: &EtcdCluster) -> Result<BTreeSet<u64>> {
    let members = etcd.members().await?;
    ensure!(
        members.iter().all(|member| !member.is_learner),
        "{members:?}"
    );
    Ok(members.iter().map(|member| member.id).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn drains_of_every_node_leave_members_on_empty_dirs_all_their_data() -> Result<()> {
    let world = in_pods("pods-drain").await?;
    let before = ids(&world.etcd).await?;
    let writer = Writer::start(&world.etcd).await?;
    drain_every_node(&world, DRAINED).await?;
    world.whole().await?;
    let after = ids(&world.etcd).await?;
    ensure!(after.len() == 3, "{after:x?} are voters");
    ensure!(before.is_disjoint(&after), "{before:x?}, then {after:x?}");
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    let gap = report.longest_gap;
    ensure!(gap < ELECTION, "nothing could be written for {gap:?}");
    let status = world.budget().await?.status.context("no status")?;
    let places = status.members.iter().map(|member| member.data);
    let places: Vec<_> = places.collect();
    ensure!(places == [Some(DataPlace::Pod); 3], "{places:?}");
    world
        .reported("DataProtected", |c| {
            c.status == "True" && c.message.contains("is in its pod: it goes with the pod")
        })
        .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_gate_drains_of_every_node_lose_what_was_on_empty_dirs() -> Result<()> {
    let world = World::builder("pods-bare").nodes(4).start().await?;
    let bare = EtcdCluster::builder("bare")
        .shape(Shape::Foreign)
        .storage(Storage::EmptyDir)
        .apply(&world.sandbox)
        .await?;
    bare.quorate(SOON).await?;
    let before = write_some(&bare).await?;
    for node in world.sandbox.nodes() {
        world.drain(node.name(), &[]).await?;
        world.kubectl(&["uncordon", node.name()]).await?.success()?;
    }
    let read = before.assert_nothing_lost(&bare).await;
    ensure!(read.is_err(), "no write was lost");
    world.close().await
}

/// Pods go to other nodes, where their directories are empty. With the gate they come back to
/// theirs: `members_in_directories_of_nodes_come_back_to_their_nodes_with_their_data`.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_gate_drains_lose_what_was_in_directories_of_nodes() -> Result<()> {
    let world = World::builder("nodes-bare").nodes(6).start().await?;
    let (old, others) = world.sandbox.nodes().split_at(3);
    for node in others {
        world.kubectl(&["cordon", node.name()]).await?.success()?;
    }
    let bare = EtcdCluster::builder("bare")
        .shape(Shape::Foreign)
        .storage(Storage::Node)
        .apply(&world.sandbox)
        .await?;
    bare.quorate(SOON).await?;
    let before = write_some(&bare).await?;
    for node in others {
        world.kubectl(&["uncordon", node.name()]).await?.success()?;
    }
    for node in old {
        let args = ["drain", node.name(), "--pod-selector=app=bare"];
        world.kubectl(&args).await?.success()?;
    }
    eventually(SOON, "all are on other nodes", || async {
        for pod in bare.pod_names() {
            let node = world.node_of(&pod).await?;
            let moved = others.iter().any(|other| other.name() == node);
            ensure!(moved, "{pod} is on {node}");
        }
        anyhow::Ok(())
    })
    .await?;
    bare.quorate(SOON).await?;
    let read = before.assert_nothing_lost(&bare).await;
    let lost = read.err().context("no write was lost")?.to_string();
    ensure!(lost.contains("acknowledged writes are lost"), "{lost}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_its_data_in_its_pod_stays_where_the_budget_says_so() -> Result<()> {
    let world = in_pods("pods-stay").await?;
    wish(&world, &json!({"ephemeral": "Refuse"})).await?;
    let seq = world.last_seq().await?;
    for by in By::BOTH {
        let (code, message) = refusal(world.ask(by, "etcd-0").await)?;
        ensure!(
            code == 403 && message.contains("is in its pod"),
            "{code}: {message}"
        );
    }
    ensure!(world.last_seq().await? == seq, "something was permitted");
    world.close().await
}
