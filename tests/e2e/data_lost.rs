//! Committed data that is gone under the same cluster id: seen within seconds, and nobody goes
//! until a person accepts it.

use std::fs;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams};
use quorumgate::api::names::{ACCEPT_DATA_LOSS, REPLACE};
use quorumgate_testbed::etcd_cluster::{EtcdCluster, EtcdVersion};
use quorumgate_testbed::faults::{PodFaults, copy_data, lose_data};
use quorumgate_testbed::{Sandbox, eventually};
use serde_json::json;

use crate::asking::{By, refusal};
use crate::rollouts::kills::driver;
use crate::world::{SOON, World};

/// The pods of the members.
const ALL: [&str; 3] = ["etcd-0", "etcd-1", "etcd-2"];
/// The number of writes that are lost. The record of the log's end moves by 100 entries.
const WRITES: usize = 300;

/// The members of a cluster of three, by pod.
pub(crate) async fn faults(sandbox: &Sandbox) -> Result<Vec<PodFaults>> {
    let mut faults = Vec::new();
    for pod in ALL {
        faults.push(PodFaults::find(sandbox, pod).await?);
    }
    Ok(faults)
}

pub(crate) fn named(faults: &[PodFaults]) -> Vec<(&'static str, &PodFaults)> {
    ALL.into_iter().zip(faults).collect()
}

/// Writes, and waits until the end of the log is on record.
async fn write(etcd: &EtcdCluster, world: &World) -> Result<()> {
    let mut client = etcd.connect().await?;
    for n in 0..WRITES {
        client.put(format!("kept/{n}"), "x", None).await?;
    }
    eventually(SOON, "the end of the log is on record", || async {
        let status = world.budget().await?.status.context("no status")?;
        let end = status.log_end.context("no end of the log")?;
        let least = i64::try_from(WRITES)? - 100;
        ensure!(end.raft_index >= least, "{end:?}");
        Ok(())
    })
    .await
}

/// Checks that the loss is seen soon after the members serve again, that nobody goes, and that a
/// person may accept it.
async fn is_seen_and_accepted(world: World) -> Result<()> {
    world.etcd.quorate(SOON).await?;
    let serves = Instant::now();
    world
        .reported("DataIntact", |c| {
            c.status == "False" && c.reason == "DataLost"
        })
        .await?;
    let took = serves.elapsed();
    ensure!(took.as_secs() < 10, "it took {took:?}");
    for by in By::BOTH {
        eventually(SOON, "etcd-0 stays because of it", || async {
            let (code, message) = refusal(world.ask(by, "etcd-0").await)?;
            let says = code == 429 && message.contains("data is lost");
            ensure!(says, "{code}: {message}");
            Ok(())
        })
        .await?;
    }
    // The log may grow beyond the one that is lost.
    let mut client = world.etcd.connect().await?;
    for n in 0..2 * WRITES {
        client.put(format!("new/{n}"), "x", None).await?;
    }
    world
        .reported("DataIntact", |c| c.message.contains(ACCEPT_DATA_LOSS))
        .await?;
    let told = world.condition("DataIntact").await?.message;
    let accept = told.rsplit_once('=').context("no command")?.1;
    let accepted = json!({"metadata": {"annotations": {ACCEPT_DATA_LOSS: accept}}});
    let (budgets, accepted) = (world.budgets(), Patch::Merge(accepted));
    budgets
        .patch("etcd", &PatchParams::default(), &accepted)
        .await?;
    world.reported("DataIntact", |c| c.status == "True").await?;
    eventually(SOON, "etcd-0 may go", || world.delete("etcd-0")).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_emptied_under_all_members_are_seen_and_nobody_goes() -> Result<()> {
    let world = World::new("lost-emptied").await?;
    write(&world.etcd, &world).await?;
    lose_data(&named(&faults(&world.sandbox).await?), None)?;
    is_seen_and_accepted(world).await
}

#[tokio::test(flavor = "multi_thread")]
async fn older_data_of_all_members_is_seen_and_nobody_goes() -> Result<()> {
    let world = World::new("lost-older").await?;
    let copies = tempfile::tempdir()?;
    copy_data(&named(&faults(&world.sandbox).await?), copies.path())?;
    write(&world.etcd, &world).await?;
    lose_data(&named(&faults(&world.sandbox).await?), Some(copies.path()))?;
    is_seen_and_accepted(world).await
}

/// The only member, on data that a restoration of another cluster would leave.
#[tokio::test(flavor = "multi_thread")]
async fn data_of_another_cluster_is_seen_and_nobody_goes() -> Result<()> {
    let world = World::builder("lost-other").etcd(|etcd| etcd.replicas(1));
    let world = world.start().await?;
    write(&world.etcd, &world).await?;
    let copies = tempfile::tempdir()?;
    let member = PodFaults::find(&world.sandbox, "etcd-0").await?;
    member.data_of_another_cluster(copies.path()).await?;
    let made = fs::read_dir(copies.path())?.next().context("no data")??;
    fs::rename(made.path(), copies.path().join("etcd-0"))?;
    lose_data(&[("etcd-0", &member)], Some(copies.path()))?;
    is_seen_and_accepted(world).await
}

/// Pods that were made to join have started already, on volumes without data.
#[tokio::test(flavor = "multi_thread")]
async fn members_without_any_data_begin_a_new_cluster_when_that_is_announced() -> Result<()> {
    let world = World::new("lost-anew").await?;
    write(&world.etcd, &world).await?;
    for pod in ALL {
        world.lets_go(By::Delete, pod).await?;
        world.whole().await?;
    }
    lose_data(&named(&faults(&world.sandbox).await?), None)?;
    world
        .reported("EvidenceLive", |c| c.message.contains("intent: bootstrap"))
        .await?;
    let anew = json!({"metadata": {"annotations": {"quorumgate.io/intent": "bootstrap"}}});
    let (budgets, params) = (world.budgets(), PatchParams::default());
    budgets.patch("etcd", &params, &Patch::Merge(anew)).await?;
    world.whole().await?;
    world.close().await
}

/// A member that is emptied ends at once while its template says that the cluster is new, or while
/// a leader knows what it had. The gate made its pod join, and another leader gives it everything
/// again: etcd 3.7 by a snapshot, older ones entry by entry.
/// Nobody else goes until it is replaced or a person accepts that.
async fn a_refilled_member_is_told(version: EtcdVersion, name: &str, way_on: WayOn) -> Result<()> {
    let world = World::builder(name)
        .etcd(|etcd| etcd.version(version))
        .start()
        .await?;
    world.etcd.move_leader("etcd-0").await?;
    write(&world.etcd, &world).await?;
    let id = world.etcd.member("etcd-1").await?.id;
    world.lets_go(By::Delete, "etcd-1").await?;
    world.whole().await?;
    // One that restarts with its data is told of by nobody. Its node waits longer each time, so the
    // looks at which it is missing are seconds apart: the gate compares what a member has with what
    // it had a few seconds before.
    for _ in 0..4 {
        PodFaults::find(&world.sandbox, "etcd-2").await?.kill()?;
        world
            .reported("QuorumHealthy", |c| c.message.contains("etcd-2"))
            .await?;
        world.whole().await?;
        world
            .reported("QuorumHealthy", |c| c.reason == "AllServing")
            .await?;
    }
    let member = PodFaults::find(&world.sandbox, "etcd-1").await?;
    lose_data(&[("etcd-1", &member)], None)?;
    if way_on == WayOn::Accept {
        // The next leader knows by the budget what the member had.
        let leader = driver(&world).await?;
        world.gate.replica(leader).restart().await?;
        driver(&world).await?;
    }
    world.etcd.move_leader("etcd-2").await?;
    world.whole().await?;
    let serves = Instant::now();
    let is_told = |c: &Condition| c.status == "False" && c.reason == "Refilled";
    world.reported("DataIntact", is_told).await?;
    let took = serves.elapsed();
    ensure!(took.as_secs() < 10, "it took {took:?}");
    world
        .told_by_event("RefilledUnderOldID", "etcd-1 began without its data")
        .await?;
    let now = world.etcd.member("etcd-1").await?.id;
    ensure!(now == id, "{id:x}, then {now:x}");
    let events = world.events("RefilledUnderOldID").await?;
    ensure!(!events.contains("etcd-2 began"), "{events}");
    for (by, pod) in [(By::Delete, "etcd-0"), (By::Eviction, "etcd-1")] {
        let (code, message) = refusal(world.ask(by, pod).await)?;
        let says = code == 429 && message.contains("etcd-1 began without its data");
        ensure!(says, "{code}: {message}");
    }
    let told = world.condition("DataIntact").await?.message;
    let value = |key: &str| -> Result<String> {
        let rest = told.split_once(&format!("{key}=")).context("no command")?.1;
        let end = rest.find([' ', '.']).unwrap_or(rest.len());
        Ok(rest[..end].to_owned())
    };
    let key = match way_on {
        WayOn::Replace => REPLACE,
        WayOn::Accept => ACCEPT_DATA_LOSS,
    };
    let annotated = json!({"metadata": {"annotations": {key: value(key)?}}});
    let (budgets, annotated) = (world.budgets(), Patch::Merge(annotated));
    budgets
        .patch("etcd", &PatchParams::default(), &annotated)
        .await?;
    world.reported("DataIntact", |c| c.status == "True").await?;
    world.whole().await?;
    let after = world.etcd.member("etcd-1").await?.id;
    ensure!(
        (after == id) == (way_on == WayOn::Accept),
        "{id:x}, then {after:x}"
    );
    eventually(SOON, "etcd-0 may go", || world.delete("etcd-0")).await?;
    world.close().await
}

/// How a person goes on after a member was refilled.
#[derive(Clone, Copy, PartialEq)]
enum WayOn {
    Replace,
    Accept,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_emptied_in_place_and_refilled_is_told_on_etcd_3_7() -> Result<()> {
    a_refilled_member_is_told(EtcdVersion::V3_7, "lost-one-3-7", WayOn::Replace).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_was_emptied_in_place_and_refilled_is_told_on_etcd_3_5() -> Result<()> {
    a_refilled_member_is_told(EtcdVersion::V3_5, "lost-one-3-5", WayOn::Accept).await
}
