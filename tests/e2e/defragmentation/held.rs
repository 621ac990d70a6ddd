//! A member in the middle of its defragmentation: which others may go, and what becomes of the
//! permission.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use quorumgate_testbed::control_plane::audit::AuditEvent;
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::eventually;

use super::{RUN, count, first_to_begin, fragmented, hold, hold_all, runs, wish, wish_within};
use crate::asking::By;
use crate::rollouts::kills::driver;
use crate::world::{SETTLE_TIME, SOON, World};

/// The shortest time that a defragmentation may be expected to take.
const TIMEOUT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn while_a_member_is_defragmented_no_other_one_may_go_and_the_permission_outlives_its_age()
-> Result<()> {
    let world = fragmented(World::builder("defrag-delete").nodes(4)).await?;
    let all = hold_all(&world).await?;
    wish_within(&world, "Auto", TIMEOUT).await?;
    let (member, held) = first_to_begin(all).await?;
    let others = world.etcd.pod_names().into_iter();
    let others: Vec<_> = others.filter(|other| *other != member).collect();
    for other in &others {
        world.has_to_wait(other, &[member.as_str()]).await?;
    }
    let permissions = world.last_seq().await?;

    let other = others.first().context("no other member")?;
    let (node, uid) = (
        world.node_of(other).await?,
        world.etcd.pod_uid(other).await?,
    );
    let meanwhile = async {
        let log = world.bed().audit_log();
        eventually(SOON, "the drain was refused", async || {
            let events = log.events(world.namespace())?;
            let refused = |event: &AuditEvent| {
                let what = &event.object_ref;
                what.subresource == "eviction"
                    && what.name == *other
                    && event.response_status.code == 429
            };
            ensure!(events.iter().any(refused), "it was not asked");
            anyhow::Ok(())
        })
        .await?;
        let begun = runs(&world).await?.remove(&member).context("no record")?;
        let begun = begun.start_time.0;
        let old = TIMEOUT + SETTLE_TIME + Duration::from_secs(3);
        eventually(RUN, "the permission is older than any", async || {
            let age = Duration::try_from(Timestamp::now().duration_since(begun))?;
            ensure!(age > old, "{age:?}");
            anyhow::Ok(())
        })
        .await?;
        ensure!(
            world.granted().await? == [member.as_str()] && world.last_seq().await? == permissions,
            "the permission was given up while its run goes on"
        );
        ensure!(world.etcd.pod_uid(other).await? == uid, "{other} went");
        // No other run competes with the drain.
        wish(&world, "Off").await?;
        held.release();
        anyhow::Ok(())
    };
    tokio::try_join!(world.drain(&node, &[]), meanwhile)?;

    world.replaced(other, &uid).await?;
    let run = runs(&world).await?.remove(&member).context("no record")?;
    ensure!(
        run.completion_time.is_some() && run.error.is_none(),
        "{run:?}"
    );
    ensure!(count(&world, &member).await? == 1, "it ran more than once");
    world.settled().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_gate_is_killed_is_waited_out_and_is_not_repeated() -> Result<()> {
    let world = fragmented(World::builder("defrag-killed")).await?;
    let all = hold_all(&world).await?;
    wish_within(&world, "Auto", TIMEOUT).await?;
    let gate = driver(&world).await?;
    let (member, held) = first_to_begin(all).await?;
    world.gate.replica(gate).kill().await?;
    let mut other = world.etcd.pod_names().into_iter();
    let other = other.rfind(|other| *other != member);
    let other = other.context("no other member")?;
    world.has_to_wait(&other, &[&member]).await?;
    held.release();
    world.etcd.serves(&member, SOON).await?;
    // Nobody saw the end of the run.
    let (run, ended) = eventually(RUN, "the grant has ended by its age", || async {
        let mut runs = runs(&world).await?;
        let run = runs.remove(&member).context("no record")?;
        ensure!(run.size_after_bytes.is_some(), "{run:?}");
        Ok((run, Timestamp::now()))
    })
    .await?;
    ensure!(run.completion_time.is_none(), "nobody saw its end: {run:?}");
    let waited = Duration::try_from(ended.duration_since(run.start_time.0))?;
    ensure!(
        waited >= TIMEOUT + SETTLE_TIME,
        "the grant was waited out for {waited:?}"
    );
    ensure!(count(&world, &member).await? == 1, "the call was repeated");
    world.close().await
}

/// Checks that the defragmentation of another client is seen, and keeps the others in place.
async fn of_another_client(version: EtcdVersion, name: &str) -> Result<()> {
    let world = World::builder(name)
        .etcd(|etcd| etcd.version(version))
        .start()
        .await?;
    let member = world.etcd.followers().await?.remove(0);
    let held = hold(&world, &member).await?;
    let client = world.etcd.dialer().await?;
    let client = client.dial(world.etcd.pod_ip(&member).await?, SOON).await?;
    let mut client = client.maintenance_client();
    let foreign = tokio::spawn(async move { client.defragment().await });
    eventually(SOON, "it has begun", async || held.has_begun()).await?;
    let mut other = world.etcd.pod_names().into_iter();
    let other = other.rfind(|other| *other != member);
    let other = other.context("no other member")?;
    let seen = format!("{member} (it is defragmenting its database)");
    world.has_to_wait(&other, &[&seen]).await?;
    ensure!(world.granted().await?.is_empty(), "something was permitted");
    held.release();
    foreign.await??;
    world.etcd.serves(&member, SOON).await?;
    ensure!(count(&world, &member).await? == 1, "it ran more than once");
    world.lets_go(By::Delete, &other).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_defragmentation_by_another_client_is_seen_and_keeps_the_others_in_place() -> Result<()> {
    of_another_client(EtcdVersion::V3_7, "defrag-foreign").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_defragmentation_by_another_client_is_seen_on_etcd_3_5() -> Result<()> {
    of_another_client(EtcdVersion::V3_5, "defrag-foreign-3-5").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn a_defragmentation_by_another_client_is_seen_on_etcd_3_4() -> Result<()> {
    of_another_client(EtcdVersion::V3_4, "defrag-foreign-3-4").await
}
