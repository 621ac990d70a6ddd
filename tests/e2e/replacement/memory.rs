//! The memory of the identity guard: notes on the members' claims outlive the budget.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::DeleteParams;
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::json;

use super::{
    REPLACED, finished, is_whole_without, nothing_is_lost, protected, recorded, request, wish,
    write_some,
};
use crate::sequences::loses_claim_and_pod_and_is_replaced;
use crate::world::{SOON, World};

/// Waits until each claim has a note with its member.
async fn noted(world: &World) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    for pod in world.etcd.pod_names() {
        let id = world.etcd.member(&pod).await?.id;
        eventually(SOON, format!("the claim of {pod} has a note"), || async {
            let claim = claims.get(&format!("data-{pod}")).await?;
            let annotations = claim.metadata.annotations.unwrap_or_default();
            let note = annotations.get("quorumgate.io/holds");
            let says = note.is_some_and(|note| note.starts_with(&format!("member {id:x} of")));
            ensure!(says, "{note:?}");
            anyhow::Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The new budget saw two members serve. Nothing on record tells that the third had data.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_on_a_new_claim_waits_although_the_budget_is_new_too() -> Result<()> {
    let world = protected("forgotten", EtcdVersion::default(), "Manual").await?;
    noted(&world).await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-2").await?.id;
    let broken = world.crash("etcd-2").await?;
    let gone = DeleteParams::default();
    world.budgets().delete("etcd", &gone).await?;
    eventually(SOON, "the other two are on record", || async {
        let status = world.budget().await?.status.unwrap_or_default();
        ensure!(status.cluster_id.is_some(), "no cluster is on record");
        let members: Vec<_> = status.volumes.iter().map(|v| &v.member).collect();
        ensure!(members.contains(&&"etcd-0".to_owned()), "{members:?}");
        ensure!(members.contains(&&"etcd-1".to_owned()), "{members:?}");
        anyhow::Ok(())
    })
    .await?;
    world.trusted().await?;
    loses_claim_and_pod_and_is_replaced(&world, broken, id).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// Removes the last members from etcd and scales in, and out again on the claims that stayed.
async fn scale_in_and_out(world: &World, replicas: u32) -> Result<()> {
    for n in (replicas..3).rev() {
        world.etcd.remove(&format!("etcd-{n}")).await?;
        let scaled = || world.etcd.scale(n);
        eventually(SOON, "the scale-in is accepted", scaled).await?;
    }
    eventually(SOON, "the others are gone", || async {
        let pods = world.etcd.pods().await?.len();
        let status = world.budget().await?.status.unwrap_or_default();
        let recorded = status.volumes.len();
        let left = usize::try_from(replicas)?;
        ensure!(pods == left && recorded == left, "{pods}, {recorded}");
        anyhow::Ok(())
    })
    .await?;
    Ok(world.etcd.scale(3).await?)
}

/// On the data of a removed member etcd ends over and over. Its record ended with the member, and
/// its claim says whose data it has.
#[tokio::test(flavor = "multi_thread")]
async fn members_on_the_claims_of_removed_ones_are_told_and_replaced() -> Result<()> {
    let world = protected("three-two-three", EtcdVersion::default(), "Manual").await?;
    noted(&world).await?;
    let before = write_some(&world.etcd).await?;
    let removed = world.etcd.member("etcd-2").await?.id;
    scale_in_and_out(&world, 2).await?;
    let said = format!("quorumgate.io/replace={removed:x}");
    world
        .reported("DataProtected", |c| {
            c.reason == "NotRequested" && c.message.contains(&said)
        })
        .await?;
    wish(&world, &json!({"replace": "Auto"})).await?;
    let replacement = finished(&world, "etcd-2").await?;
    ensure!(replacement.reason == "Removed", "{replacement:?}");
    is_whole_without(&world, removed).await?;
    recorded(&world).await?;
    noted(&world).await?;

    // With `Auto` a removed member is replaced before anybody scales in.
    wish(&world, &json!({"replace": "Manual"})).await?;
    scale_in_and_out(&world, 1).await?;
    world
        .reported("DataProtected", |c| {
            let waits = ["NotRequested", "SeveralRemoved"].contains(&c.reason.as_str());
            waits && c.message.contains("etcd does not list the member any more")
        })
        .await?;
    let id = world.budget().await?.status.unwrap_or_default().volumes;
    let id = id.iter().find(|volume| volume.member == "etcd-1");
    request(&world, &id.context("etcd-1 is not on record")?.member_id).await?;
    world
        .reported("DataProtected", |c| {
            c.reason == "SeveralRemoved" && c.message.contains("etcd lists 1 members")
        })
        .await?;
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

/// Waits until a replacement that lost its record has ended.
async fn three_vote(world: &World) -> Result<()> {
    eventually(REPLACED, "there are three voters", || async {
        let members = world.etcd.members().await?;
        let voters = members.iter().filter(|member| !member.is_learner);
        ensure!(voters.count() == 3, "{members:?}");
        anyhow::Ok(())
    })
    .await
}

/// The record of the replacement goes with the budget, and etcd lists a learner.
#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_whose_budget_is_deleted_still_ends_with_three_voters() -> Result<()> {
    let world = protected("record-gone", EtcdVersion::default(), "Manual").await?;
    noted(&world).await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-1").await?.id;
    request(&world, &format!("{id:x}")).await?;
    eventually(SOON, "the new member has started", || async {
        let members = world.etcd.members().await?;
        let is_new = members.iter().all(|member| member.id != id);
        let started = members.iter().all(|member| !member.name.is_empty());
        ensure!(is_new && started && members.len() == 3, "{members:?}");
        anyhow::Ok(())
    })
    .await?;
    let gone = DeleteParams::default();
    world.budgets().delete("etcd", &gone).await?;
    three_vote(&world).await?;
    is_whole_without(&world, id).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

/// The record of the replacement goes with the budget before the pod is made anew: on the data of
/// the removed member etcd ends over and over, and the learner never starts.
#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_whose_budget_is_deleted_before_the_pod_went_is_told() -> Result<()> {
    let world = protected("record-early", EtcdVersion::default(), "Manual").await?;
    noted(&world).await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-1").await?.id;
    // What a replacement does first.
    world.etcd.remove("etcd-1").await?;
    let learner = world.etcd.add_learner("etcd-1").await?.id;
    world
        .budgets()
        .delete("etcd", &DeleteParams::default())
        .await?;
    let asked = [id, learner].map(|id| format!("quorumgate.io/replace={id:x}"));
    world
        .reported("DataProtected", |c| {
            let says = |asked: &String| c.message.contains(asked);
            c.reason == "NotRequested" && asked.iter().any(says)
        })
        .await?;
    wish(&world, &json!({"replace": "Auto"})).await?;
    three_vote(&world).await?;
    is_whole_without(&world, id).await?;
    is_whole_without(&world, learner).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}
