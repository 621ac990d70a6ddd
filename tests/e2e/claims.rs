//! Claims of members: which may be deleted, and what a claim that is terminating means for its pod.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Shape};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::asking::{By, refusal};
use crate::teardown::{no_pods, own};
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_serving_member_stays_and_that_of_no_member_goes() -> Result<()> {
    let world = World::new("claim-serves").await?;
    let (code, message) = refusal(delete(&world, "etcd-1").await)?;
    let says = "etcd-1 serves from the volume of data-etcd-1";
    ensure!(code == 403 && message.contains(says), "{code}: {message}");
    let (code, message) = refusal(delete_all(&world).await)?;
    ensure!(code == 403, "{code}: {message}");
    nothing_is_marked(&world).await?;
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");

    let before = world.last_seq().await?;
    for foreign in ["cache", "data-web-0", "data-web-etcd-1"] {
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": foreign},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
        }))?;
        claims(&world)
            .create(&PostParams::default(), &claim)
            .await?;
        claims(&world)
            .delete(foreign, &DeleteParams::default())
            .await?;
    }
    ensure!(world.last_seq().await? == before, "the ledger was written");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_quorum_no_claim_goes() -> Result<()> {
    let world = World::new("claim-lost").await?;
    let broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        let what = format!("the claim of {pod} is kept for the sake of quorum");
        eventually(SOON, what, || async {
            let (code, message) = refusal(delete(&world, pod).await)?;
            ensure!(code == 429, "{code}: {message}");
            Ok(())
        })
        .await?;
    }
    nothing_is_marked(&world).await?;
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");
    drop(broken);
    world.whole().await?;
    world.close().await
}

/// The claim of a dead member goes while the others keep the data, and then no other may. What is
/// marked does not hold the namespace back.
#[tokio::test(flavor = "multi_thread")]
async fn one_claim_of_a_dead_member_goes_and_the_namespace_with_all_of_them() -> Result<()> {
    let world = World::new("claim-dead").await?;
    let broken = world.crash("etcd-2").await?;
    // The member restarts again and again. While it starts nobody knows whether it will serve.
    eventually(SOON, "the claim of etcd-2 may go", || {
        delete(&world, "etcd-2")
    })
    .await?;
    ensure!(is_marked(&world, "etcd-2").await?, "it is not terminating");
    ensure!(
        causes(&world, "etcd-2").await? == ["Replace"],
        "no permission is open"
    );
    let (code, message) = refusal(delete(&world, "etcd-1").await)?;
    ensure!(code == 403, "{code}: {message}");
    let (code, message) = refusal(world.delete("etcd-1").await)?;
    ensure!(code == 429, "{code}: {message}");

    broken.mend();
    world.etcd.serves("etcd-2", SOON).await?;
    // Its data goes with its pod, so it does not count.
    world
        .has_to_wait_by(By::Delete, "etcd-1", &["etcd-2"])
        .await?;
    world.delete_namespace().await?;
    world.close().await
}

/// By an override the claim of a serving member is marked. Its pod then takes the data along, and
/// the member has to join anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_whose_claim_is_marked_goes_while_all_others_serve_and_counts_when_it_is_back()
-> Result<()> {
    let world = World::new("claim-marked").await?;
    let old = claims(&world).get("data-etcd-2").await?.metadata.uid;
    lift(&world, "pod", "etcd-2").await?;
    delete(&world, "etcd-2").await?;
    world
        .kubectl(&["annotate", "pod", "etcd-2", "quorumgate.io/override-until-"])
        .await?
        .success()?;
    ensure!(is_marked(&world, "etcd-2").await?, "it is not terminating");
    let broken = world.crash("etcd-1").await?;
    for by in By::BOTH {
        let (code, message) = refusal(world.ask(by, "etcd-2").await)?;
        ensure!(code == 429, "{by:?}: {code}: {message}");
    }
    broken.mend();
    world.etcd.serves("etcd-1", SOON).await?;

    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    let pods = world.pods();
    eventually(SOON, "etcd-2 may go", || pods.delete("etcd-2", &dry)).await?;

    // etcd takes no empty member under its old identity.
    world.etcd.remove("etcd-2").await?;
    world.etcd.add_learner("etcd-2").await?;
    eventually(SOON, "etcd-2 goes", || world.delete("etcd-2")).await?;
    let open = causes(&world, "etcd-2").await?;
    ensure!(open.contains(&"Replace".to_owned()), "{open:?}");
    eventually(SOON, "the data is gone with the pod", || async {
        let claim = claims(&world).get_opt("data-etcd-2").await?;
        let uid = claim.context("there is no new claim")?.metadata.uid;
        ensure!(uid != old, "it is the old claim");
        anyhow::Ok(())
    })
    .await?;
    eventually(SOON, "etcd-2 is promoted", || world.etcd.promote("etcd-2")).await?;
    world.whole().await?;
    world.close().await
}

/// The only member of a cluster may go by the default policy. With its claim marked it would take
/// the only copy along.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_marked_before_the_enrolment_keeps_its_pod() -> Result<()> {
    let world = World::new("claim-before").await?;
    let single = EtcdCluster::builder("single")
        .replicas(1)
        .shape(Shape::Foreign)
        .apply(&world.sandbox)
        .await?;
    single.quorate(SOON).await?;
    delete(&world, "single-0").await?;
    ensure!(
        is_marked(&world, "single-0").await?,
        "it is not terminating"
    );
    let enrol = json!({"metadata": {"labels": {"quorumgate.io/enroll": "true"}}});
    patch(&world, "single", &enrol).await?;
    eventually(SOON, "it is enrolled", || world.budget_of(&single)).await?;
    world.trusted_of(&single).await?;
    eventually(SOON, "its pod stays for the data", || async {
        let (code, message) = refusal(world.delete("single-0").await)?;
        let says = "the data of single-0 would be destroyed";
        ensure!(code == 429 && message.contains(says), "{code}: {message}");
        Ok(())
    })
    .await?;
    lift(&world, "statefulset", "single").await?;
    world.lets_go(By::Delete, "single-0").await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_takes_the_claims_along_by_the_retention_policy_even_without_a_quorum()
-> Result<()> {
    let world = World::new("claim-owner").await?;
    let owner = own(&world).await?;
    retain(&world, "Delete", "Delete").await?;
    let _broken = world.crash_all(&["etcd-1", "etcd-2"]).await?;
    let owners: Api<ConfigMap> = world.sandbox.api();
    owners.delete(&owner, &DeleteParams::background()).await?;
    no_pods(&world).await?;
    eventually(SOON, "no claim is left", || async {
        let left = claims(&world).list(&ListParams::default()).await?.items;
        let names: Vec<String> = left.iter().map(ResourceExt::name_any).collect();
        ensure!(names.is_empty(), "{} are left", names.join(", "));
        anyhow::Ok(())
    })
    .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claims_that_a_deleted_set_left_may_go() -> Result<()> {
    let world = World::new("claim-left").await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    sets.delete("etcd", &DeleteParams::foreground()).await?;
    no_pods(&world).await?;
    let every = ListParams::default();
    eventually(SOON, "every claim goes", || async {
        delete_all(&world).await?;
        let left = claims(&world).list(&every).await?.items.len();
        ensure!(left == 0, "{left} are left");
        anyhow::Ok(())
    })
    .await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scale_in_takes_its_claims_along_by_the_retention_policy() -> Result<()> {
    let world = World::new("claim-scale-in").await?;
    retain(&world, "Retain", "Delete").await?;
    scale_in(&world).await?;
    no_claim(&world, "etcd-2").await?;
    nothing_else_goes(&world).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_claim_of_a_removed_member_stays_until_somebody_deletes_it() -> Result<()> {
    let world = World::new("claim-removed").await?;
    scale_in(&world).await?;
    ensure!(!is_marked(&world, "etcd-2").await?, "nobody deleted it");
    let what = "the claim of a removed member may go";
    eventually(SOON, what, || delete(&world, "etcd-2")).await?;
    no_claim(&world, "etcd-2").await?;
    nothing_else_goes(&world).await?;
    world.close().await
}

/// Removes `etcd-2` from etcd, and its pod.
async fn scale_in(world: &World) -> Result<()> {
    world.etcd.remove("etcd-2").await?;
    eventually(SOON, "the scale-in is accepted", || world.etcd.scale(2)).await?;
    eventually(SOON, "two pods are left", || async {
        let pods = world.etcd.pods().await?;
        ensure!(pods.len() == 2, "there are {}", pods.len());
        anyhow::Ok(())
    })
    .await
}

/// Checks that the claims of the members that are left stay, and waits until no grant is open.
async fn nothing_else_goes(world: &World) -> Result<()> {
    for pod in ["etcd-0", "etcd-1"] {
        let (code, message) = refusal(delete(world, pod).await)?;
        ensure!(code == 403, "{code}: {message}");
    }
    world.settled().await
}

fn claims(world: &World) -> Api<PersistentVolumeClaim> {
    world.sandbox.api()
}

/// Deletes the claim of a pod.
async fn delete(world: &World, pod: &str) -> Result<(), kube::Error> {
    let claim = format!("data-{pod}");
    claims(world)
        .delete(&claim, &DeleteParams::default())
        .await
        .map(drop)
}

async fn delete_all(world: &World) -> Result<(), kube::Error> {
    claims(world)
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .map(drop)
}

async fn is_marked(world: &World, pod: &str) -> Result<bool> {
    let claim = claims(world).get(&format!("data-{pod}")).await?;
    Ok(claim.metadata.deletion_timestamp.is_some())
}

async fn nothing_is_marked(world: &World) -> Result<()> {
    for pod in world.etcd.pod_names() {
        ensure!(
            !is_marked(world, &pod).await?,
            "the claim of {pod} is terminating"
        );
    }
    Ok(())
}

async fn no_claim(world: &World, pod: &str) -> Result<()> {
    let claim = format!("data-{pod}");
    eventually(SOON, format!("{claim} is gone"), || async {
        let left = claims(world).get_opt(&claim).await?;
        ensure!(left.is_none(), "it is still there");
        anyhow::Ok(())
    })
    .await
}

/// The kinds of the open causes of a member's grant.
async fn causes(world: &World, pod: &str) -> Result<Vec<String>> {
    let status = world.budget().await?.status.unwrap_or_default();
    let grants = status
        .grants
        .into_iter()
        .filter(|grant| grant.member == pod);
    Ok(grants
        .flat_map(|grant| grant.causes)
        .map(|cause| cause.kind)
        .collect())
}

async fn patch(world: &World, set: &str, change: &serde_json::Value) -> Result<()> {
    let sets: Api<StatefulSet> = world.sandbox.api();
    sets.patch(set, &PatchParams::default(), &Patch::Merge(change))
        .await?;
    Ok(())
}

/// Sets the retention policy of the StatefulSet. Waits until its claims have the owners that follow
/// from that.
async fn retain(world: &World, when_deleted: &str, when_scaled: &str) -> Result<()> {
    let policy = json!({"whenDeleted": when_deleted, "whenScaled": when_scaled});
    let change = json!({"spec": {"persistentVolumeClaimRetentionPolicy": policy}});
    patch(world, "etcd", &change).await?;
    let owned = when_deleted == "Delete";
    eventually(SOON, "the claims have their owners", || async {
        let all = claims(world).list(&ListParams::default()).await?.items;
        let owners: BTreeMap<String, usize> = all
            .iter()
            .map(|claim| (claim.name_any(), claim.owner_references().len()))
            .collect();
        let is_so = owners.values().all(|owners| (*owners > 0) == owned);
        ensure!(is_so, "{owners:?}");
        anyhow::Ok(())
    })
    .await
}

/// Overrides the gate for ten minutes.
async fn lift(world: &World, kind: &str, name: &str) -> Result<()> {
    let until = Timestamp::now().checked_add(SignedDuration::from_mins(10))?;
    let annotation = format!("quorumgate.io/override-until={until}");
    let annotate = ["annotate", kind, name, "--overwrite", &annotation];
    world.kubectl(&annotate).await?.success().map(drop)
}
