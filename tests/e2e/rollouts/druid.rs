//! A cluster as etcd-druid makes it: labels, Secrets, a container beside etcd's, member Leases,
//! names with a prefix, and an operator that writes its update strategy back on every sync.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, Shape};
use quorumgate_testbed::eventually;
use serde_json::json;
use tokio::time::interval;

use super::scene::{ELECTION, GAP, Watched};
use super::template::change;
use super::told::{finished, wish};
use crate::bystanders::sleeper;
use crate::world::{SOON, World, WorldBuilder};

/// The pause between two syncs, which is much shorter than druid's.
const SYNC: Duration = Duration::from_millis(300);
/// The pause between two renewals of a Lease. druid's sidecar renews every ten seconds.
const HEARTBEAT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn a_druid_cluster_is_rolled_out_while_its_operator_writes_its_strategy_back() -> Result<()> {
    let world = druid("rollout-druid").start().await?;
    let heartbeat = world.etcd.heartbeat(HEARTBEAT);
    kept(&world).await?;
    let compaction = compaction(&world).await?;
    let leader = world.etcd.leader().await?;
    let generation = world.etcd.stateful_set().await?.metadata.generation;
    let watched = Watched::begin(&world).await?;
    let rollout = async {
        let target = change(&world, "one").await?;
        finished(&world, &target).await
    };
    let told = tokio::select! {
        ended = sync(&world) => {
            ended?;
            bail!("the operator ended")
        }
        told = rollout => told?,
    };
    ensure!(told.updated == 3, "{told:?}");
    let order = watched.end(&world, ELECTION).await?;
    ensure!(
        order.len() == 3 && order.last() == Some(&leader),
        "{leader} led, and they went in this order: {order:?}"
    );
    let now = world.etcd.stateful_set().await?.metadata.generation;
    ensure!(
        now == generation.map(|before| before + 1),
        "generation {generation:?}, then {now:?}: there was a fight"
    );

    // The pod of a compaction job has the labels that druid's StatefulSet selects by, and no
    // revision.
    let left = world.pods().get("etcd-compactor-x7k2p").await?;
    ensure!(
        left.metadata.uid == compaction && left.metadata.deletion_timestamp.is_none(),
        "the compaction pod was taken"
    );
    // Two PodDisruptionBudgets that select one pod make evictions fail.
    let budgets: Api<PodDisruptionBudget> = world.sandbox.api();
    let budgets = budgets.list(&ListParams::default()).await?.items;
    ensure!(budgets.len() == 1, "{budgets:?}");
    drop(heartbeat);
    world.close().await
}

/// A known limitation of DEP-07: leadership has changed, and the Leases do not show that yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_stale_role_in_the_leases_does_not_mislead() -> Result<()> {
    let world = druid("rollout-stale").start().await?;
    kept(&world).await?;
    world.etcd.move_leader("etcd-1").await?;
    eventually(SOON, "etcd-1 leads", async || {
        let leader = world.etcd.leader().await?;
        ensure!(leader == "etcd-1", "{leader} does");
        Ok(())
    })
    .await?;
    world.etcd.renew_leases().await?;
    world.etcd.move_leader("etcd-0").await?;

    let watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    finished(&world, &target).await?;
    let order = watched.end(&world, GAP).await?;
    // The follower whose data lags goes first.
    ensure!(order.len() == 3, "{order:?}");
    ensure!(
        order.last().is_some_and(|last| last == "etcd-0"),
        "{order:?}"
    );
    world.close().await
}

/// DEP-07 to the letter, where etcd cannot be asked: participation comes from readiness, and roles
/// come from the Leases.
#[tokio::test(flavor = "multi_thread")]
async fn without_access_to_etcd_readiness_and_leases_lead_through_a_rollout() -> Result<()> {
    let world = druid("rollout-readiness").start().await?;
    let heartbeat = world.etcd.heartbeat(HEARTBEAT);
    kept(&world).await?;
    // How many voters there are is learnt from members that answer.
    world.whole().await?;
    wish(&world, json!({"members": {"evidence": "Readiness"}})).await?;
    world.etcd.expire_client_certificate().await?;
    world.etcd.move_leader("etcd-2").await?;
    leases_say(&world, "etcd-2").await?;

    let watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    finished(&world, &target).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order == ["etcd-1", "etcd-0", "etcd-2"], "{order:?}");
    drop(heartbeat);
    world.close().await
}

/// Waits until the Lease of this pod's member, and no other Lease, names the leader.
async fn leases_say(world: &World, leader: &str) -> Result<()> {
    let leases: Api<Lease> = world.sandbox.api();
    eventually(
        SOON,
        format!("the Leases say that {leader} leads"),
        async || {
            let leases = leases.list(&ListParams::default()).await?.items;
            let leads = leases.iter().filter(|lease| {
                let holder = lease.spec.as_ref().and_then(|s| s.holder_identity.as_ref());
                holder.is_some_and(|holder| holder.ends_with(":Leader"))
            });
            let names: Vec<_> = leads.map(kube::ResourceExt::name_any).collect();
            ensure!(names == [format!("virt-{leader}")], "{names:?}");
            Ok(())
        },
    )
    .await
}

fn druid(name: &str) -> WorldBuilder {
    let shaped = |etcd: EtcdClusterBuilder| etcd.shape(Shape::Druid).member_name_prefix("virt");
    World::builder(name)
        .etcd(shaped)
        .feature("QuorumAwareUpdatesWithOnDelete")
}

/// Waits until the gate has set `OnDelete`.
async fn kept(world: &World) -> Result<()> {
    eventually(SOON, "it is kept at OnDelete", async || {
        let spec = world.etcd.stateful_set().await?.spec.context("no spec")?;
        let kind = spec.update_strategy.and_then(|strategy| strategy.type_);
        ensure!(kind.as_deref() == Some("OnDelete"), "{kind:?}");
        Ok(())
    })
    .await
}

/// Writes the operator's update strategy back in a loop.
async fn sync(world: &World) -> Result<()> {
    let mut ticks = interval(SYNC);
    let sets = world.etcd.stateful_set_api();
    let patch = Patch::Merge(json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}}));
    let params = PatchParams::default();
    loop {
        ticks.tick().await;
        sets.patch(world.etcd.name(), &params, &patch).await?;
    }
}

async fn compaction(world: &World) -> Result<Option<String>> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "etcd-compactor-x7k2p", "labels": {
            "app.kubernetes.io/managed-by": "etcd-druid",
            "app.kubernetes.io/part-of": world.etcd.name(),
            "app.kubernetes.io/component": "etcd-snapshot-compaction-job",
        }},
        "spec": sleeper(world, "Never"),
    }))?;
    let created = world.pods().create(&PostParams::default(), &pod).await?;
    Ok(created.metadata.uid)
}
