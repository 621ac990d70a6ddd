//! The number of members, as `spec.members.count` of the budget asks for it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::writer::Writer;
use quorumgate_testbed::{eventually, faults};
use serde_json::json;
use tokio::task::JoinHandle;

use crate::plugin::quorum;
use crate::replacement::{nothing_is_lost, wish};
use crate::rollouts::kills::driver;
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn from_one_to_five_and_back_no_write_is_lost() -> Result<()> {
    goes_up_and_down(EtcdVersion::default(), "count", &[3, 5, 3, 1], false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_is_reached_although_the_gate_is_killed_after_every_step() -> Result<()> {
    goes_up_and_down(EtcdVersion::V3_6, "count-killed", &[3, 2], true).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn from_one_to_five_and_back_on_etcd_3_4_while_the_gate_is_killed() -> Result<()> {
    goes_up_and_down(EtcdVersion::V3_4, "count-3-4", &[3, 5, 3, 1], true).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn from_one_to_five_and_back_on_etcd_3_5_while_the_gate_is_killed() -> Result<()> {
    goes_up_and_down(EtcdVersion::V3_5, "count-3-5", &[3, 5, 3, 1], true).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn from_one_to_five_and_back_on_etcd_3_7_while_the_gate_is_killed() -> Result<()> {
    goes_up_and_down(EtcdVersion::V3_7, "count-3-7", &[3, 5, 3, 1], true).await
}

/// Asks for one number after another while a writer writes, and watches etcd's member list: one
/// member comes or goes at a time, and none loses its pod before it has left.
async fn goes_up_and_down(
    version: EtcdVersion,
    name: &str,
    counts: &[u32],
    kills: bool,
) -> Result<()> {
    let world = World::builder(name).nodes(5);
    let world = world.etcd(|etcd| etcd.version(version).replicas(1));
    let world = world.start().await?;
    if kills {
        // A learner whose pod the replicas do not ask for yet has lost nothing.
        wish(&world, &json!({"replace": "Auto"})).await?;
    }
    let writer = Writer::start(&world.etcd).await?;
    let watch = watch(&world);
    let mut killed = 0;
    for count in counts {
        ask_for(&world, *count).await?;
        if kills {
            killed += kill_until_reached(&world, *count).await?;
        }
        reached(&world, *count).await?;
    }
    ensure!(!kills || killed >= 4, "killed {killed} times");
    watch.abort();
    if let Ok(broken) = watch.await {
        broken?;
    }
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// Watches the member list until it is stopped. Ends only with what it must not see.
fn watch(world: &World) -> JoinHandle<Result<()>> {
    let etcd = world.etcd.clone();
    tokio::spawn(async move {
        let mut before: Option<usize> = None;
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let Ok(members) = etcd.members().await else {
                continue;
            };
            let learners = members.iter().filter(|member| member.is_learner).count();
            ensure!(learners <= 1, "two at once: {members:?}");
            let voters = members.len() - learners;
            ensure!(
                before.is_none_or(|before| before.abs_diff(voters) <= 1),
                "{members:?}"
            );
            before = Some(voters);
        }
    })
}

/// Kills the replica that leads after each step that is seen, until the number is reached. Returns
/// how often.
async fn kill_until_reached(world: &World, count: u32) -> Result<usize> {
    let mut killed = 0;
    let mut before = progress(world).await?;
    loop {
        let now = eventually(SOON, "the next step, or the end", || async {
            let now = progress(world).await?;
            let is_over = is_reached(world, count).await.is_ok();
            ensure!(now != before || is_over, "{now:?}");
            Ok(now)
        })
        .await?;
        if is_reached(world, count).await.is_ok() {
            return Ok(killed);
        }
        before = now;
        let leader = driver(world).await?;
        world.gate.replica(leader).kill().await?;
        world.gate.replica(leader).restart().await?;
        killed += 1;
    }
}

/// The state that shows how far the gate has come: the members, which are learners, the replicas.
async fn progress(world: &World) -> Result<(BTreeMap<u64, bool>, i32)> {
    let members = world.etcd.members().await?;
    let members = members.into_iter().map(|m| (m.id, m.is_learner)).collect();
    let set = world.etcd.stateful_set().await?;
    let replicas = set.spec.and_then(|spec| spec.replicas);
    Ok((members, replicas.unwrap_or(1)))
}

async fn ask_for(world: &World, count: u32) -> Result<()> {
    let change = Patch::Merge(json!({"spec": {"members": {"count": count}}}));
    let (budgets, params) = (world.budgets(), PatchParams::default());
    budgets.patch(world.etcd.name(), &params, &change).await?;
    Ok(())
}

async fn reached(world: &World, count: u32) -> Result<()> {
    eventually(SOON, format!("there are {count} members"), || {
        is_reached(world, count)
    })
    .await?;
    world.etcd.quorate(SOON).await.map(drop)
}

async fn is_reached(world: &World, count: u32) -> Result<()> {
    let budget = world.budget().await?;
    let shown = world.condition("Scaled").await?;
    ensure!(
        shown.status == "True" && shown.observed_generation == budget.metadata.generation,
        "{shown:?}"
    );
    let members = world.etcd.members().await?;
    ensure!(members.len() == usize::try_from(count)?, "{members:?}");
    ensure!(
        members.iter().all(|member| !member.is_learner),
        "{members:?}"
    );
    let (_, replicas) = progress(world).await?;
    ensure!(replicas == i32::try_from(count)?, "{replicas} replicas");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_mind_turns_it_around_and_what_it_leaves_is_said() -> Result<()> {
    let world = World::builder("count-mind").nodes(4).start().await?;
    let held = faults::hold_in_container_creating(&world.sandbox, "etcd-3")?;
    // One joins only while all others serve.
    let broken = world.crash("etcd-1").await?;
    ask_for(&world, 4).await?;
    world
        .reported("Scaled", |c| {
            c.reason == "NotAllServing" && c.message.contains("2 of 3 voters serve")
        })
        .await?;
    broken.mend();
    world
        .reported("Scaled", |c| c.message.contains("etcd-3 starts and joins"))
        .await?;
    ask_for(&world, 3).await?;
    reached(&world, 3).await?;
    held.mend();

    // Its claim was made for the pod that never ran.
    ask_for(&world, 4).await?;
    let left = |message: &str| {
        let (_, rest) = message.split_once("delete persistentvolumeclaim ")?;
        Some(rest.trim_end_matches(')').to_owned())
    };
    world
        .reported("Scaled", |c| {
            c.status == "False" && left(&c.message).is_some()
        })
        .await?;
    let claim = left(&world.condition("Scaled").await?.message).context("no command")?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    claims.delete(&claim, &DeleteParams::default()).await?;
    reached(&world, 4).await?;

    // A scale-in by hand is told how to do it.
    let scaled = world.etcd.scale(3).await;
    let said = scaled.err().context("it was scaled in")?.to_string();
    ensure!(said.contains("kubectl quorum scale"), "{said}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_plugin_asks_for_the_number_and_asks_first_where_members_leave() -> Result<()> {
    let world = World::builder("count-plugin").nodes(3).start().await?;
    let name = world.etcd.name();
    let refused = quorum(&world, &["scale", name, "--replicas=2"]).await?;
    ensure!(
        refused.code == 1 && refused.stderr.contains("add --yes"),
        "{refused:?}"
    );
    let asked = quorum(&world, &["scale", name, "--replicas=2", "--yes"]).await?;
    ensure!(
        asked.code == 0 && asked.stdout.contains("--for=condition=Scaled"),
        "{asked:?}"
    );
    reached(&world, 2).await?;
    world.close().await
}
