//! Members whose data is neither on one claim nor in the pod.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use quorumgate::api::DataPlace;
use quorumgate_testbed::etcd_cluster::Storage;
use quorumgate_testbed::eventually;
use quorumgate_testbed::writer::Writer;
use serde_json::json;

use super::in_pods::drain_every_node;
use super::{finished, is_whole_without, nothing_is_lost, recorded, request, write_some};
use crate::asking::{By, refusal};
use crate::teardown::{announce, no_pods};
use crate::world::{SOON, World};

/// The time limit of a drain beside a member that comes back.
const DRAINED: Duration = Duration::from_secs(240);

/// Each pod with its node.
async fn nodes(world: &World) -> Result<BTreeMap<String, String>> {
    let pods = world.etcd.pods().await?.into_iter();
    pods.map(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        Ok((pod.name_any(), node.context("no node")?))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn members_in_directories_of_nodes_come_back_to_their_nodes_with_their_data() -> Result<()> {
    let world = World::builder("on-nodes")
        .nodes(4)
        .etcd(|etcd| etcd.storage(Storage::Node))
        .start()
        .await?;
    recorded(&world).await?;
    let before = nodes(&world).await?;
    let members = world.etcd.members().await?;
    let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
    let writer = Writer::start(&world.etcd).await?;
    drain_every_node(&world, DRAINED).await?;
    world.whole().await?;
    let after = nodes(&world).await?;
    ensure!(before == after, "{before:?}, then {after:?}");
    let members = world.etcd.members().await?;
    let now: Vec<u64> = members.iter().map(|member| member.id).collect();
    ensure!(ids == now, "{ids:x?}, then {now:x?}");
    nothing_is_lost(writer, &world.etcd).await?;
    let status = world.budget().await?.status.context("no status")?;
    let places: Vec<_> = status.members.iter().map(|member| member.data).collect();
    ensure!(places == [Some(DataPlace::Node); 3], "{places:?}");
    world.close().await
}

/// The write-ahead log has the writes that were acknowledged last. etcd without it begins anew.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_ahead_log_on_its_own_claim_is_guarded_and_replaced_with_the_data() -> Result<()> {
    let world = World::builder("wal-apart")
        .etcd(|etcd| etcd.storage(Storage::WalApart))
        .start()
        .await?;
    recorded(&world).await?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    for claim in ["data-etcd-1", "wal-etcd-1"] {
        let (code, message) = refusal(claims.delete(claim, &DeleteParams::default()).await)?;
        ensure!(code == 403 && message.contains(claim), "{code}: {message}");
    }
    let uids = async || -> Result<BTreeMap<String, Option<String>>> {
        let all = claims.list(&ListParams::default()).await?;
        let uids = all.into_iter().map(|claim| (claim.name_any(), claim.uid()));
        Ok(uids.collect())
    };
    let before = uids().await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-1").await?.id;
    request(&world, &format!("{id:x}")).await?;
    finished(&world, "etcd-1").await?;
    is_whole_without(&world, id).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    let after = uids().await?;
    for (claim, uid) in &before {
        let is_new = after.get(claim) != Some(uid);
        ensure!(is_new == claim.ends_with("etcd-1"), "{claim}: {after:?}");
    }
    world.close().await
}

/// No pod mounts the claims then, so their names and the record tell whose they are.
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_stopped_members_stay_whatever_their_template_and_owners_say_by_now() -> Result<()>
{
    let world = World::new("asleep-claims").await?;
    recorded(&world).await?;
    let before = write_some(&world.etcd).await?;
    announce(&world, "hibernate").await?;
    world.etcd.scale(0).await?;
    no_pods(&world).await?;

    let sets: Api<StatefulSet> = world.sandbox.api();
    let params = PatchParams::default();
    let elsewhere = |path: &str| {
        json!({"spec": {
            "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"},
            "template": {"spec": {"containers": [{
                "name": "etcd", "volumeMounts": [{"name": "data", "mountPath": path}],
            }]}},
        }})
    };
    let template = sets.get("etcd").await?.spec.context("no spec")?.template;
    let patch = Patch::Strategic(elsewhere("/elsewhere"));
    sets.patch("etcd", &params, &patch).await?;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    let stale = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "none",
    }]}});
    let all = ["data-etcd-0", "data-etcd-1", "data-etcd-2"];
    for claim in all {
        let (_, message) = refusal(claims.delete(claim, &DeleteParams::default()).await)?;
        ensure!(message.contains("etcd"), "{message}");
        claims.patch(claim, &params, &Patch::Merge(&stale)).await?;
    }
    eventually(SOON, "the garbage collector was refused", || async {
        let events = world.kubectl(&["get", "events", "-o", "wide"]).await?;
        let events = events.success()?;
        let of_claim = |claim: &&str| {
            let about = format!("persistentvolumeclaim/{claim}");
            events.lines().filter(|line| line.contains(&about)).count() > 1
        };
        ensure!(all.iter().all(of_claim), "{events}");
        Ok(())
    })
    .await?;
    for claim in all {
        let found = claims.get(claim).await?;
        ensure!(found.metadata.deletion_timestamp.is_none(), "{claim} goes");
        let none = json!({"metadata": {"ownerReferences": null}});
        claims.patch(claim, &params, &Patch::Merge(&none)).await?;
    }

    let back = json!({"spec": {"template": template}});
    sets.patch("etcd", &params, &Patch::Merge(&back)).await?;
    world.etcd.scale(3).await?;
    world.whole().await?;
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

/// The volume is the one on record, and the member would begin empty on it under its old id.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_with_another_data_directory_empties_no_member() -> Result<()> {
    let world = World::new("other-dir").await?;
    recorded(&world).await?;
    let before = write_some(&world.etcd).await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    let params = PatchParams::default();
    let template = sets.get("etcd").await?.spec.context("no spec")?.template;
    let text = serde_json::to_string(&template)?;
    let other = text.replace("/new.etcd", "/other.etcd");
    ensure!(other != text, "nothing is changed in {text}");
    let other = json!({"spec": {"template": serde_json::from_str::<serde_json::Value>(&other)?}});
    let uids = pod_uids(&world).await?;
    sets.patch("etcd", &params, &Patch::Merge(&other)).await?;
    world
        .reported("DataProtected", |c| {
            c.message.contains("another directory of its volume")
        })
        .await?;
    let now = pod_uids(&world).await?;
    let changed = uids.iter().filter(|(pod, uid)| now.get(*pod) != Some(*uid));
    ensure!(changed.count() == 1, "{uids:?}, then {now:?}");

    let back = json!({"spec": {"template": template}});
    sets.patch("etcd", &params, &Patch::Merge(&back)).await?;
    world.whole().await?;
    before.assert_nothing_lost(&world.etcd).await?;
    world.close().await
}

async fn pod_uids(world: &World) -> Result<BTreeMap<String, Option<String>>> {
    let pods = world.etcd.pods().await?.into_iter();
    Ok(pods.map(|pod| (pod.name_any(), pod.uid())).collect())
}

/// Kubernetes gives a pod that waits for a node the next claim of that name.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_not_deleted_under_a_pod_that_waits_for_a_node() -> Result<()> {
    let world = World::new("claim-awaited").await?;
    recorded(&world).await?;
    let id = world.etcd.member("etcd-2").await?.id;
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    for node in world.sandbox.nodes() {
        world.kubectl(&["cordon", node.name()]).await?.success()?;
    }
    let old = world.etcd.pod_uid("etcd-2").await?;
    world.lets_go(By::Delete, "etcd-2").await?;
    eventually(SOON, "the next pod waits for a node", || async {
        let pod = world.pods().get("etcd-2").await?;
        ensure!(
            pod.metadata.uid != Some(old.clone()),
            "the old one is there"
        );
        Ok(())
    })
    .await?;
    let how = DeleteParams::default();
    let (code, message) = refusal(claims.delete("data-etcd-2", &how).await)?;
    let command = format!("quorumgate.io/replace={id:x}");
    ensure!(
        code == 403 && message.contains(&command),
        "{code}: {message}"
    );
    request(&world, &format!("{id:x}")).await?;
    for node in world.sandbox.nodes() {
        world.kubectl(&["uncordon", node.name()]).await?.success()?;
    }
    finished(&world, "etcd-2").await?;
    is_whole_without(&world, id).await?;
    world.close().await
}
