//! An eviction from its grant to the end of its pod, which a finalizer delays.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{Patch, PatchParams};
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use super::raw::{answered, evict};
use crate::asking::{By, eviction};
use crate::world::{SOON, World};

const POD: &str = "etcd-1";

/// Sets the finalizers of a pod.
pub(super) async fn hold(world: &World, pod: &str, finalizers: &[&str]) -> Result<()> {
    let patch = json!({"metadata": {"finalizers": finalizers}});
    let params = PatchParams::default();
    world
        .pods()
        .patch(pod, &params, &Patch::Merge(&patch))
        .await?;
    Ok(())
}

/// Waits until the companion, its condition and the gate's own budget all allow this number of
/// disruptions.
async fn allowed(world: &World, disruptions: i32) -> Result<()> {
    let pdbs: Api<PodDisruptionBudget> = world.sandbox.api();
    eventually(SOON, format!("{disruptions} may go"), || async {
        let status = world.budget().await?.status.context("no status")?;
        let ours = status.disruptions_allowed.map(i64::from);
        ensure!(ours == Some(disruptions.into()), "ours: {ours:?}");
        let status = pdbs
            .get("quorumgate-etcd")
            .await?
            .status
            .context("no status")?;
        ensure!(status.disruptions_allowed == disruptions, "{status:?}");
        let mut conditions = status.conditions.into_iter().flatten();
        let condition = conditions.find(|c| c.type_ == "DisruptionAllowed");
        let says = condition.context("no condition")?.status;
        ensure!(
            says == if disruptions > 0 { "True" } else { "False" },
            "{says}"
        );
        Ok(())
    })
    .await
}

pub(super) async fn s1_s2_s3_s16_an_eviction_is_granted_and_the_next_one_waits(
    world: &World,
) -> Result<()> {
    allowed(world, 1).await?;
    hold(world, POD, &["example.com/hold"]).await?;
    let uid = world.etcd.pod_uid(POD).await?;
    let own = json!({"preconditions": {"uid": uid}});
    let asked = eviction(POD, &own);
    answered(world, Method::POST, "etcd-1/eviction", &asked, 201).await?;
    let granted = world.granted().await?;
    ensure!(granted == [POD], "grants: {granted:?}");
    for by in By::BOTH {
        world.has_to_wait_by(by, "etcd-0", &[POD]).await?;
    }
    Ok(())
}

pub(super) async fn p10_p17_p22_a_finalizer_keeps_the_grant_and_its_pod_may_be_evicted_again(
    world: &World,
) -> Result<()> {
    let pod = world.etcd.pod(POD).await?;
    let uid = pod.metadata.uid.context("no UID")?;
    ensure!(pod.metadata.deletion_timestamp.is_some(), "it stays");
    let mut conditions = pod
        .status
        .and_then(|status| status.conditions)
        .into_iter()
        .flatten();
    let told = conditions.find(|c| c.type_ == "DisruptionTarget");
    let told = told.context("it was not told to go")?;
    ensure!(
        told.status == "True" && told.reason.as_deref() == Some("EvictionByEvictionAPI"),
        "{told:?}"
    );
    allowed(world, 0).await?;

    let seq = world.last_seq().await?;
    evict(world, POD, &eviction(POD, &json!({})))
        .await?
        .is(201)?;
    ensure!(world.last_seq().await? == seq, "it took another grant");

    eventually(SOON, "its containers have ended", || async {
        let pod = serde_json::to_value(world.etcd.pod(POD).await?)?;
        let states = pod
            .pointer("/status/containerStatuses")
            .and_then(Value::as_array);
        let ended = |container: &Value| container.pointer("/state/terminated").is_some();
        ensure!(
            states.is_some_and(|all| all.iter().all(ended)),
            "{states:?}"
        );
        Ok(())
    })
    .await?;
    let granted = world.granted().await?;
    ensure!(granted == [POD], "grants: {granted:?}");
    world.has_to_wait("etcd-0", &[POD]).await?;

    hold(world, POD, &[]).await?;
    world.replaced(POD, &uid).await?;
    world.whole().await?;
    allowed(world, 1).await
}
