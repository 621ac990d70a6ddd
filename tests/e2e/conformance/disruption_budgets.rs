//! `PodDisruptionBudgets` of others: the gate foresees their refusals, neither more nor fewer.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use quorumgate_testbed::{eventually, faults};
use serde_json::{Value, json};

use super::raw::evict;
use crate::asking::{eviction, refusal};
use crate::bystanders;
use crate::world::{SOON, World};

/// The label of a pod that runs and is not Ready. Its name has no ordinal, so the gate is not asked
/// about it.
const BESIDE: &str = "beside";

fn pdbs(world: &World) -> Api<PodDisruptionBudget> {
    world.sandbox.api()
}

async fn create(world: &World, name: &str, spec: Value) -> Result<()> {
    let pdb: PodDisruptionBudget =
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
    pdbs(world).create(&PostParams::default(), &pdb).await?;
    Ok(())
}

/// Changes a budget, and waits until its controller has counted this number of healthy pods.
async fn change(world: &World, name: &str, spec: Value, healthy: i32) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    pdbs(world)
        .patch(name, &PatchParams::default(), &patch)
        .await?;
    eventually(SOON, format!("{name} counts {healthy}"), || async {
        let pdb = pdbs(world).get(name).await?;
        let status = pdb.status.context("no status")?;
        ensure!(
            status.observed_generation == pdb.metadata.generation,
            "not seen"
        );
        ensure!(
            status.current_healthy == healthy,
            "{}",
            status.current_healthy
        );
        Ok(())
    })
    .await
}

/// Waits until an eviction is refused for a reason that mentions `because`. A member that answers
/// too late is mentioned first.
async fn stays(world: &World, pod: &str, because: &str) -> Result<()> {
    eventually(
        SOON,
        format!("{pod} stays because of {because}"),
        || async {
            let (code, message) = refusal(world.evict(pod).await)?;
            ensure!(
                code == 429 && message.contains(because),
                "{code}: {message}"
            );
            Ok(())
        },
    )
    .await
}

/// The code and the message of an eviction in a dry run.
async fn try_to_evict(world: &World, pod: &str) -> Result<(u16, String)> {
    let dry = eviction(pod, &json!({"dryRun": ["All"]}));
    let answer = evict(world, pod, &dry).await?;
    let said = answer.body["message"].as_str().unwrap_or_default();
    Ok((answer.code, said.to_owned()))
}

/// Compares two unready pods: a member that is down, and a pod beside it. For the first, the gate
/// has to foresee the answer that the API server, which knows no members, gives for the second.
pub(super) async fn p1_p11_p12_p23_every_policy_for_unhealthy_pods_is_foreseen(
    world: &World,
) -> Result<()> {
    let mut spec = bystanders::sleeper(world, "Always");
    spec["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["false"]}, "periodSeconds": 1});
    let beside: Pod = serde_json::from_value(
        json!({"metadata": {"name": BESIDE, "labels": {"app": BESIDE}}, "spec": spec}),
    )?;
    world.pods().create(&PostParams::default(), &beside).await?;
    bystanders::run(world, BESIDE, 1).await?;
    let both =
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["etcd", BESIDE]}]});
    create(
        world,
        "strict",
        json!({"minAvailable": 3, "selector": both}),
    )
    .await?;
    companion_is_there(world, false).await?;

    let broken = world.crash("etcd-2").await?;
    let seq = world.last_seq().await?;
    for (policy, min_available, goes) in [
        (Value::Null, 1, true),
        (Value::Null, 2, true),
        (Value::Null, 3, false),
        (json!("IfHealthyBudget"), 2, true),
        (json!("IfHealthyBudget"), 3, false),
        (json!("AlwaysAllow"), 2, true),
        (json!("AlwaysAllow"), 3, true),
    ] {
        let case = format!("{policy} of {min_available}");
        let spec = json!({"minAvailable": min_available, "unhealthyPodEvictionPolicy": policy});
        change(world, "strict", spec, 2).await?;
        let expected = if goes { 201 } else { 429 };
        eventually(SOON, format!("{case} is foreseen"), || async {
            let theirs = try_to_evict(world, BESIDE).await?;
            ensure!(theirs.0 == expected, "the API server says {theirs:?}");
            let ours = try_to_evict(world, "etcd-2").await?;
            ensure!(ours.0 == expected, "the gate says {ours:?}");
            ensure!(
                goes || ours.1.contains("PodDisruptionBudget strict"),
                "{ours:?}"
            );
            // A healthy member has to stay under every policy for unhealthy pods.
            let healthy = try_to_evict(world, "etcd-0").await?;
            ensure!(
                healthy.0 == 429 && healthy.1.contains("etcd-2"),
                "{healthy:?}"
            );
            Ok(())
        })
        .await?;
    }
    // The same without a dry run: a refused request takes no grant.
    change(
        world,
        "strict",
        json!({"minAvailable": 3, "unhealthyPodEvictionPolicy": null}),
        2,
    )
    .await?;
    stays(world, "etcd-2", "strict").await?;
    ensure!(world.last_seq().await? == seq, "the ledger was written");
    broken.mend();
    world.whole().await
}

pub(super) async fn p1_a_pending_member_goes_past_a_budget_that_refuses(
    world: &World,
) -> Result<()> {
    change(world, "strict", json!({"minAvailable": 3}), 3).await?;
    stays(world, "etcd-2", "strict").await?;

    let held = faults::hold_in_container_creating(&world.sandbox, "etcd-2")?;
    let uid = world.etcd.pod_uid("etcd-2").await?;
    eventually(SOON, "etcd-2 is deleted", || world.delete("etcd-2")).await?;
    let uid = pending(world, &uid).await?;
    eventually(SOON, "the pending etcd-2 is evicted", || {
        world.evict("etcd-2")
    })
    .await?;
    pending(world, &uid).await?;
    held.mend();
    world.whole().await
}

/// Waits for an incarnation of etcd-2 other than `uid` that is on a node and has not started.
/// Returns its UID.
async fn pending(world: &World, uid: &str) -> Result<String> {
    eventually(SOON, "another etcd-2 is pending", || async {
        let pod = world.etcd.pod("etcd-2").await?;
        let now = pod.metadata.uid.context("no UID")?;
        ensure!(now != uid, "it is still there");
        let scheduled = pod.spec.and_then(|spec| spec.node_name);
        scheduled.context("it is on no node")?;
        let phase = pod.status.and_then(|status| status.phase);
        ensure!(phase.as_deref() == Some("Pending"), "{phase:?}");
        Ok(now)
    })
    .await
}

pub(super) async fn p4_a_budget_that_selects_everything_counts(world: &World) -> Result<()> {
    let seq = world.last_seq().await?;
    create(
        world,
        "everything",
        json!({"minAvailable": 0, "selector": {}}),
    )
    .await?;
    stays(world, "etcd-0", "2 PodDisruptionBudgets").await?;
    pdbs(world)
        .delete("strict", &DeleteParams::default())
        .await?;
    change(world, "everything", json!({"minAvailable": 100}), 3).await?;
    stays(world, "etcd-0", "PodDisruptionBudget everything").await?;
    ensure!(world.last_seq().await? == seq, "the ledger was written");
    pdbs(world)
        .delete("everything", &DeleteParams::default())
        .await?;
    companion_is_there(world, true).await
}

pub(super) async fn p2_p20_a_finished_pod_leaves_its_budget_as_it_was(world: &World) -> Result<()> {
    let mut spec = bystanders::sleeper(world, "Never");
    spec["containers"][0]["command"] = json!(["true"]);
    // The pod's name is like that of a StatefulSet's pod, so that the gate is asked.
    let done: Pod = serde_json::from_value(
        json!({"metadata": {"name": "done-0", "labels": {"app": "done"}}, "spec": spec}),
    )?;
    world.pods().create(&PostParams::default(), &done).await?;
    eventually(SOON, "done-0 has ended", || async {
        let phase = world
            .pods()
            .get("done-0")
            .await?
            .status
            .and_then(|s| s.phase);
        ensure!(phase.as_deref() == Some("Succeeded"), "{phase:?}");
        Ok(())
    })
    .await?;
    let selector = json!({"matchLabels": {"app": "done"}});
    create(
        world,
        "done",
        json!({"minAvailable": 1, "selector": selector}),
    )
    .await?;
    change(world, "done", json!({"minAvailable": 2}), 0).await?;
    let before = pdbs(world).get("done").await?.status.context("no status")?;
    ensure!(before.disruptions_allowed == 0, "{before:?}");

    world.evict("done-0").await?;
    let after = pdbs(world).get("done").await?.status.context("no status")?;
    ensure!(after.disruptions_allowed == 0, "{after:?}");
    ensure!(
        after.disrupted_pods.is_none_or(|pods| pods.is_empty()),
        "it was written"
    );

    // The budget selects no member, so it does not matter for evictions of members.
    let uid = world.etcd.pod_uid("etcd-0").await?;
    eventually(SOON, "etcd-0 is evicted", || world.evict("etcd-0")).await?;
    world.replaced("etcd-0", &uid).await
}

async fn companion_is_there(world: &World, there: bool) -> Result<()> {
    eventually(SOON, format!("a companion: {there}"), || async {
        let companion = pdbs(world).get_opt("quorumgate-etcd").await?;
        ensure!(companion.is_some() == there, "not yet");
        Ok(())
    })
    .await
}
