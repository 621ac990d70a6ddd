//! Recovery from a permanent loss of quorum: one member starts alone, with what it has, and the
//! others join it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use quorumgate::api::{RecoveryPhase, RecoveryStatus};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, EtcdVersion, PodManagement, Readiness};
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use crate::plugin::quorum;
use crate::replacement::{gates, write_some};
use crate::rollouts::kills::driver;
use crate::world::{SOON, World};

/// The time limit for a recovery: the others join one after another.
const RECOVERED: Duration = Duration::from_mins(6);

#[tokio::test(flavor = "multi_thread")]
async fn the_last_of_three_brings_back_what_it_has_and_the_others_join_it() -> Result<()> {
    one_starts_alone(EtcdVersion::V3_7, "recover-3", 3, &[0, 1], false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_survivors_of_five_brings_back_what_it_has() -> Result<()> {
    one_starts_alone(EtcdVersion::V3_5, "recover-5", 5, &[0, 1, 2], false).await
}

/// The pods behind one that waits are created as the others join.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_three_brings_back_the_others_although_pods_are_created_in_order() -> Result<()>
{
    let ordered = |etcd: EtcdClusterBuilder| {
        let etcd = etcd.readiness(Readiness::Process);
        etcd.pod_management(PodManagement::OrderedReady)
    };
    starts_alone("recover-ordered", ordered, 3, (0, &[1, 2]), false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_goes_on_although_the_gate_is_killed_after_every_step() -> Result<()> {
    one_starts_alone(EtcdVersion::V3_6, "recover-killed", 3, &[0, 1], true).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn a_recovery_goes_on_on_etcd_3_4_although_the_gate_is_killed() -> Result<()> {
    one_starts_alone(EtcdVersion::V3_4, "recover-3-4", 3, &[0, 1], true).await
}

/// The same of a cluster of this version, with its last member.
async fn one_starts_alone(
    version: EtcdVersion,
    name: &str,
    replicas: u32,
    lost: &[u32],
    kills: bool,
) -> Result<()> {
    let of_version = |etcd: EtcdClusterBuilder| etcd.version(version);
    starts_alone(name, of_version, replicas, (replicas - 1, lost), kills).await
}

/// Loses the members of these ordinals, asks for a recovery with another one, and checks that all
/// are back with every write that it had.
async fn starts_alone(
    name: &str,
    choose: impl FnOnce(EtcdClusterBuilder) -> EtcdClusterBuilder,
    replicas: u32,
    (survivor, lost): (u32, &[u32]),
    kills: bool,
) -> Result<()> {
    let world = World::builder(name).nodes(usize::try_from(replicas)?);
    let world = world.etcd(|etcd| choose(etcd.replicas(replicas)));
    let world = world.start().await?;
    are_recorded(&world, replicas).await?;
    let before = write_some(&world.etcd).await?;
    let survivor = format!("etcd-{survivor}");
    let id = world.etcd.member(&survivor).await?.id;
    let old: BTreeSet<u64> = world.etcd.members().await?.iter().map(|m| m.id).collect();
    lose(&world, lost).await?;
    eventually(SOON, "the survivor says what it has", || async {
        let status = world.budget().await?.status.unwrap_or_default();
        let mut members = status.members.into_iter();
        let member = members.find(|member| member.name == survivor);
        let why = member.and_then(|member| member.why);
        ensure!(why.is_some(), "it still serves");
        Ok(())
    })
    .await?;
    world
        .reported("DataProtected", |c| {
            c.message.contains("kubectl quorum recover etcd")
        })
        .await?;
    let asked = format!("{id:x}");
    if kills {
        ask(&world, &json!(asked)).await?;
    } else {
        by_plugin(&world, &asked).await?;
    }
    let killed = if kills {
        kill_until_recovered(&world).await?
    } else {
        0
    };
    ensure!(!kills || killed >= 4, "killed {killed} times");
    let done = eventually(RECOVERED, "all members are back", || async {
        let recovery = recovery(&world).await?.context("none has begun")?;
        ensure!(recovery.completion_time.is_some(), "{recovery:?}");
        Ok(recovery)
    })
    .await?;
    ensure!(done.member == survivor, "{done:?}");
    world.whole().await?;
    let members = world.etcd.members().await?;
    ensure!(members.len() == usize::try_from(replicas)?, "{members:?}");
    ensure!(
        members.iter().all(|member| !member.is_learner),
        "{members:?}"
    );
    let kept: BTreeSet<u64> = members.iter().map(|m| m.id).collect();
    let kept: Vec<&u64> = kept.intersection(&old).collect();
    ensure!(kept == [&id], "of the old members there are {kept:x?}");
    before.assert_nothing_lost(&world.etcd).await?;
    for pod in world.etcd.pod_names() {
        let spec = serde_json::to_string(&world.pods().get(&pod).await?.spec)?;
        ensure!(
            !spec.contains("FORCE_NEW_CLUSTER"),
            "{pod} would start alone again: {spec}"
        );
    }
    world.reported("Recovered", |c| c.status == "True").await?;
    world.reported("Ready", |c| c.status == "True").await?;

    // The request does not count again, whoever writes it, and the condition goes with it.
    ask(&world, &Value::Null).await?;
    is_untold(&world).await?;
    let again = json!({"quorumgate.io/recover": done.request});
    let again = Patch::Merge(json!({"metadata": {"annotations": again}}));
    world
        .budgets()
        .patch("etcd", &PatchParams::default(), &again)
        .await?;
    let after = write_some(&world.etcd).await?;
    after.assert_nothing_lost(&world.etcd).await?;
    is_untold(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_majority_may_come_back_nobody_starts_alone() -> Result<()> {
    let world = World::builder("recover-refused").start().await?;
    are_recorded(&world, 3).await?;
    let id = world.etcd.member("etcd-2").await?.id;
    let uid = world.etcd.pod_uid("etcd-2").await?;
    ask(&world, &json!("77")).await?;
    world
        .reported("Recovered", |c| c.reason == "NoSuchMember")
        .await?;
    let hours_ago = Timestamp::now() - SignedDuration::from_hours(2);
    let old = json!({"quorumgate.io/recover": format!("{id:x}@{hours_ago}")});
    let old = Patch::Merge(json!({"metadata": {"annotations": old}}));
    world
        .budgets()
        .patch("etcd", &PatchParams::default(), &old)
        .await?;
    world
        .reported("Recovered", |c| c.reason == "Expired")
        .await?;
    ask(&world, &json!(format!("{id:x}"))).await?;
    world
        .reported("Recovered", |c| c.reason == "QuorumKept")
        .await?;
    let broken = world.crash_all(&["etcd-0", "etcd-1"]).await?;
    world
        .reported("Recovered", |c| {
            c.reason == "MayReturn" && c.message.contains("etcd-0, etcd-1")
        })
        .await?;
    drop(broken);
    world.whole().await?;
    ask(&world, &Value::Null).await?;
    is_untold(&world).await?;
    ensure!(recovery(&world).await?.is_none(), "a recovery has begun");
    ensure!(
        world.etcd.pod_uid("etcd-2").await? == uid,
        "the pod is another one"
    );
    ensure!(
        world.etcd.member("etcd-2").await?.id == id,
        "the member is another one"
    );
    world.close().await
}

async fn is_untold(world: &World) -> Result<()> {
    eventually(SOON, "nothing is said of it any more", || async {
        let status = world.budget().await?.status.unwrap_or_default();
        let mut conditions = status.conditions.iter();
        ensure!(!conditions.any(|c| c.type_ == "Recovered"), "it is");
        Ok(())
    })
    .await
}

async fn are_recorded(world: &World, replicas: u32) -> Result<()> {
    eventually(SOON, "the volumes are on record", || async {
        let status = world.budget().await?.status.context("no status yet")?;
        let known = status.volumes.len();
        ensure!(known == usize::try_from(replicas)?, "{known} are");
        Ok(())
    })
    .await
}

/// Gives up the volumes of the members of these ordinals, as a person may under an override. Their
/// new pods wait.
async fn lose(world: &World, lost: &[u32]) -> Result<()> {
    let sets: Api<StatefulSet> = world.sandbox.api();
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    let lift = async |until: Option<String>| {
        let annotations = json!({"quorumgate.io/override-until": until});
        let lifted = Patch::Merge(json!({"metadata": {"annotations": annotations}}));
        sets.patch("etcd", &PatchParams::default(), &lifted).await
    };
    let until = Timestamp::now() + SignedDuration::from_mins(10);
    lift(Some(until.to_string())).await?;
    for n in lost {
        claims
            .delete(&format!("data-etcd-{n}"), &DeleteParams::default())
            .await?;
    }
    for n in lost {
        world
            .pods()
            .delete(&format!("etcd-{n}"), &DeleteParams::default())
            .await?;
    }
    for n in lost {
        let pod = format!("etcd-{n}");
        // A StatefulSet may create no pod behind one that waits.
        eventually(SOON, format!("{pod} is kept from starting"), || async {
            let is_first = lost.first() == Some(n);
            if world.pods().get_opt(&pod).await?.is_none() && !is_first {
                return Ok(());
            }
            let gates = gates(world, &pod).await?;
            ensure!(gates == ["quorumgate.io/identity"], "{gates:?}");
            anyhow::Ok(())
        })
        .await?;
    }
    lift(None).await?;
    Ok(())
}

/// Lists what the survivors have, and asks for the member with this id.
async fn by_plugin(world: &World, id: &str) -> Result<()> {
    let namespace = world.namespace();
    let recover = ["recover", "etcd", "-n", namespace];
    eventually(SOON, "the survivors are listed", || async {
        let told = quorum(world, &recover).await?.success()?;
        let parts = ["REVISION", "snapshot save", &format!("--member-id={id}")];
        ensure!(parts.iter().all(|part| told.contains(part)), "{told}");
        Ok(())
    })
    .await?;
    let member = format!("--member-id={id}");
    let begin = [&recover[..], &[&member, "--yes"]].concat();
    let refused = quorum(world, &begin).await?;
    ensure!(refused.stderr.contains("--snapshot=FILE"), "{refused:?}");
    let begin = [&begin[..], &["--without-snapshot"]].concat();
    quorum(world, &begin).await?.success()?;
    Ok(())
}

async fn ask(world: &World, id: &Value) -> Result<()> {
    let id = match id.as_str() {
        Some(id) => json!(format!("{id}@{}", Timestamp::now())),
        None => id.clone(),
    };
    let asked = Patch::Merge(json!({"metadata": {"annotations": {"quorumgate.io/recover": id}}}));
    let (budgets, params) = (world.budgets(), PatchParams::default());
    budgets.patch(world.etcd.name(), &params, &asked).await?;
    Ok(())
}

async fn recovery(world: &World) -> Result<Option<RecoveryStatus>> {
    let status = world.budget().await?.status.unwrap_or_default();
    Ok(status.recovery.map(|recovery| *recovery))
}

/// Kills the replica that leads after each step that is seen, until all members are back. Returns
/// how often.
async fn kill_until_recovered(world: &World) -> Result<usize> {
    let mut killed = 0;
    let mut before = progress(world).await?;
    loop {
        let now = eventually(RECOVERED, "the next step, or the end", || async {
            let now = progress(world).await?;
            ensure!(now != before, "{now:?}");
            Ok(now)
        })
        .await?;
        if now.is_over {
            return Ok(killed);
        }
        before = now;
        let leader = driver(world).await?;
        world.gate.replica(leader).kill().await?;
        world.gate.replica(leader).restart().await?;
        killed += 1;
    }
}

/// How far the gate has come.
#[derive(Debug, PartialEq)]
struct Progress {
    phase: Option<RecoveryPhase>,
    is_over: bool,
    pods: Vec<Option<String>>,
    members: Vec<(u64, bool)>,
}

async fn progress(world: &World) -> Result<Progress> {
    let recovery = recovery(world).await?;
    let mut pods = Vec::new();
    for pod in world.etcd.pod_names() {
        let pod = world.pods().get_opt(&pod).await?;
        pods.push(pod.and_then(|pod| pod.metadata.uid));
    }
    let members = world.etcd.members().await.unwrap_or_default();
    Ok(Progress {
        phase: recovery.as_ref().map(|recovery| recovery.phase),
        is_over: recovery.is_some_and(|recovery| recovery.completion_time.is_some()),
        pods,
        members: members.iter().map(|m| (m.id, m.is_learner)).collect(),
    })
}
