//! Claims that the garbage collector deletes, because the StatefulSet or the pod that they name is
//! gone: only those go that somebody meant.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, PodManagement, Readiness};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::asking::{By, refusal};
use crate::claims::{claims, lift, patch, retain};
use crate::ordinals::made_anew;
use crate::teardown::announce;
use crate::world::{SOON, World};

/// The claims still name the StatefulSet: its controller changes that only at pods that are ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_cluster_loses_no_claim_to_a_retention_policy_that_was_taken_back() -> Result<()> {
    let world = ordered("policy-back").await?;
    retain(&world, "Delete", "Retain").await?;
    let broken = world.crash_all(&["etcd-0", "etcd-1", "etcd-2"]).await?;
    let policy = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    let change = json!({"spec": {"persistentVolumeClaimRetentionPolicy": policy}});
    patch(&world, "etcd", &change).await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    let delete = DeleteParams::background();
    eventually(SOON, "the delete is to be announced", || async {
        let (code, message) = refusal(sets.delete("etcd", &delete).await)?;
        let says = message.contains("metadata.ownerReferences");
        ensure!(code == 403 && says, "{code}: {message}");
        Ok(())
    })
    .await?;
    ensure!(uids(&world).await?.len() == 3, "a claim is gone");
    drop(broken);
    world.close().await
}

/// The controller deletes the pods that it does not keep, and has their claims go with them.
#[tokio::test(flavor = "multi_thread")]
async fn pods_beyond_the_replicas_that_end_take_no_quorum_of_claims_along() -> Result<()> {
    let world = World::new("beyond").await?;
    let before = uids(&world).await?;
    made_anew(&world, 1).await?;
    eventually(SOON, "the pods own their claims", || async {
        let all = claims(&world).list(&ListParams::default()).await?.items;
        let owned = all.iter().filter(|c| !c.owner_references().is_empty());
        let owned = owned.count();
        ensure!(owned == 2, "{owned} have an owner");
        Ok(())
    })
    .await?;
    let leaving = ["etcd-1", "etcd-2"];
    for pod in leaving {
        hold(&world, pod, true).await?;
        lift(&world, "pod", pod).await?;
    }
    for pod in leaving {
        world.delete(pod).await?;
    }
    for pod in leaving {
        hold(&world, pod, false).await?;
    }
    let pods: Api<Pod> = world.sandbox.api();
    for pod in leaving {
        eventually(SOON, format!("{pod} is gone"), || async {
            ensure!(pods.get_opt(pod).await?.is_none(), "it is there");
            Ok(())
        })
        .await?;
    }
    let events = "the garbage collector was refused";
    eventually(SOON, events, || async {
        let all = world.kubectl(&["get", "events", "-o", "wide"]).await?;
        let all = all.success()?;
        let refused = all.lines().filter(|line| line.contains("NoHeadroom"));
        let refused: Vec<&str> = refused
            .filter(|line| line.contains("garbage-collector"))
            .collect();
        let of = |pod: &str| {
            refused
                .iter()
                .any(|line| line.contains(&format!("data-{pod}")))
        };
        ensure!(leaving.into_iter().all(of), "{all}");
        Ok(())
    })
    .await?;
    ensure!(uids(&world).await? == before, "a claim is gone");
    world.close().await
}

/// A scale-in that is taken back while the pod ends. The claim names that pod, so the controller
/// creates none on it until it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_scale_in_that_was_taken_back_keeps_the_claim_and_says_what_frees_the_pod() -> Result<()>
{
    let world = ordered("taken-back").await?;
    retain(&world, "Retain", "Delete").await?;
    let before = uids(&world).await?;
    hold(&world, "etcd-2", true).await?;
    announce(&world, "scale-in").await?;
    world.etcd.scale(2).await?;
    let pods: Api<Pod> = world.sandbox.api();
    eventually(SOON, "etcd-2 ends", || async {
        let pod = pods.get("etcd-2").await?;
        ensure!(pod.metadata.deletion_timestamp.is_some(), "it runs");
        Ok(())
    })
    .await?;
    world.etcd.scale(3).await?;
    hold(&world, "etcd-2", false).await?;
    let part = "kubernetes.io/change-cause=data-etcd-2";
    world.told_by_event("ClaimDisowned", part).await?;
    let remove = json!([{"op": "remove", "path": "/metadata/ownerReferences"}]);
    let remove: Patch<PersistentVolumeClaim> = Patch::Json(serde_json::from_value(remove)?);
    let claims = claims(&world);
    claims
        .patch("data-etcd-2", &PatchParams::default(), &remove)
        .await?;
    let cause = json!({"metadata": {"annotations": {"kubernetes.io/change-cause": "kept"}}});
    patch(&world, "etcd", &cause).await?;
    world.whole().await?;
    let owners = claims.get("data-etcd-2").await?.metadata.owner_references;
    ensure!(owners.unwrap_or_default().is_empty(), "it names an owner");
    world.lets_go(By::Delete, "etcd-2").await?;
    world.whole().await?;
    ensure!(uids(&world).await? == before, "a claim is another");
    world.close().await
}

/// A cluster whose pods are created, and their claims looked after, one after the other.
async fn ordered(name: &str) -> Result<World> {
    let ordered = |etcd: EtcdClusterBuilder| {
        etcd.pod_management(PodManagement::OrderedReady)
            .readiness(Readiness::Process)
    };
    World::builder(name).etcd(ordered).start().await
}

/// Adds or removes a finalizer, which keeps the pod for as long as it terminates.
async fn hold(world: &World, pod: &str, is_held: bool) -> Result<()> {
    let finalizers: &[&str] = if is_held { &["e2e.test/hold"] } else { &[] };
    let change = json!({"metadata": {"finalizers": finalizers}});
    let pods: Api<Pod> = world.sandbox.api();
    let (params, change) = (PatchParams::default(), Patch::Merge(&change));
    pods.patch(pod, &params, &change).await?;
    Ok(())
}

/// The claims that are there and not terminating, with their UIDs.
async fn uids(world: &World) -> Result<Vec<(String, Option<String>)>> {
    let all = claims(world).list(&ListParams::default()).await?.items;
    let here = all
        .iter()
        .filter(|claim| claim.metadata.deletion_timestamp.is_none());
    Ok(here.map(|claim| (claim.name_any(), claim.uid())).collect())
}
