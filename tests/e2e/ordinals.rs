//! A StatefulSet whose range of ordinals moves: the pods that leave it go as in a scale-in.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy;
use kube::api::{Patch, PatchParams, PostParams};
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use crate::asking::refusal;
use crate::teardown::{announce, orphaned, recreate};
use crate::world::{SOON, World};

/// The new StatefulSet adopts the pods, and its controller deletes those that it does not keep.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_made_anew_with_fewer_replicas_takes_no_member_until_that_is_announced() -> Result<()>
{
    let world = World::new("fewer").await?;
    let before = world.pod_uids().await?;
    made_anew(&world, 2).await?;
    let (code, message) = refusal(world.delete("etcd-2").await)?;
    let leads = message.contains("member remove") && message.contains("scale");
    ensure!(code == 403 && leads, "{code}: {message}");
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        world.etcd.serves(pod, SOON).await?;
    }
    let after = world.pod_uids().await?;
    ensure!(before == after, "{before:?}, then {after:?}");
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");

    announce(&world, "scale-in").await?;
    eventually(SOON, "the last pod is gone", || async {
        let left = world.pod_uids().await?;
        ensure!(left.len() == 2, "{left:?}");
        anyhow::Ok(())
    })
    .await?;
    for pod in ["etcd-0", "etcd-1"] {
        world.etcd.serves(pod, SOON).await?;
    }
    world.close().await
}

/// Makes the StatefulSet anew with fewer replicas, and waits until a pod is kept for that. The
/// claims of such pods would go with them.
pub(crate) async fn made_anew(world: &World, replicas: i32) -> Result<()> {
    let mut set = orphaned(world).await?;
    let spec = set.spec.as_mut().context("no spec")?;
    spec.replicas = Some(replicas);
    spec.persistent_volume_claim_retention_policy =
        Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
            when_deleted: None,
            when_scaled: Some("Delete".into()),
        });
    recreate(world, set).await?;
    world
        .told_by_event("OutsideOrdinals", "intent=scale-in")
        .await
}

/// The change to a range of ordinals.
fn range(start: i32, replicas: i32) -> Value {
    json!({"spec": {"replicas": replicas, "ordinals": {"start": start}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_of_the_ordinals_waits_until_the_members_are_removed_from_etcd() -> Result<()> {
    let world = World::new("ordinals").await?;
    let before = world.pod_uids().await?;
    let (sets, params) = (world.etcd.stateful_set_api(), PatchParams::default());
    for (start, replicas, leaving) in [
        (1, 3, &["etcd-0"][..]),
        (3, 3, &["etcd-0", "etcd-1", "etcd-2"]),
        (2, 5, &["etcd-0", "etcd-1"]),
    ] {
        let change = range(start, replicas);
        let patched = sets.patch("etcd", &params, &Patch::Merge(&change)).await;
        let mut set = world.etcd.stateful_set().await?;
        let mut spec = serde_json::to_value(&set.spec)?;
        json_patch::merge(&mut spec, change.get("spec").unwrap_or(&Value::Null));
        set.spec = serde_json::from_value(spec)?;
        let put = sets.replace("etcd", &PostParams::default(), &set).await;
        for answer in [patched, put] {
            let (code, message) = refusal(answer)?;
            ensure!(code == 403, "{change}: {code}: {message}");
            for part in leaving.iter().chain(&["member remove"]) {
                ensure!(message.contains(part), "nothing of {part}: {message}");
            }
        }
    }
    let start = json!([{"op": "add", "path": "/spec/ordinals", "value": {"start": 1}}]);
    let file = world.sandbox.directory().join("start.json");
    std::fs::write(&file, start.to_string())?;
    let file = format!("--patch-file={}", file.display());
    let patched = ["patch", "statefulset", "etcd", "--type=json", &file];
    let patched = world.kubectl(&patched).await?;
    ensure!(
        !patched.succeeded() && patched.stderr.contains("etcd-0"),
        "{patched:?}"
    );
    let after = world.pod_uids().await?;
    ensure!(before == after, "{before:?}, then {after:?}");
    ensure!(world.granted().await?.is_empty(), "a refusal took a grant");

    world.etcd.remove("etcd-0").await?;
    let moved = range(1, 2);
    let moved = Patch::Merge(&moved);
    eventually(SOON, "the move is accepted", || async {
        sets.patch("etcd", &params, &moved).await
    })
    .await?;
    eventually(SOON, "two pods are left", || async {
        let left = world.pod_uids().await?;
        let same = left.iter().all(|(pod, uid)| before.get(pod) == Some(uid));
        ensure!(same, "{before:?}, then {left:?}");
        let names: Vec<_> = left.keys().map(String::as_str).collect();
        ensure!(names == ["etcd-1", "etcd-2"], "{names:?}");
        anyhow::Ok(())
    })
    .await?;
    for pod in ["etcd-1", "etcd-2"] {
        world.etcd.serves(pod, SOON).await?;
    }
    // Nobody leaves by the way back. To go on takes one more.
    let back = range(0, 3);
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    sets.patch("etcd", &dry, &Patch::Merge(&back)).await?;
    let on = range(2, 2);
    eventually(SOON, "etcd-1 has to stay", || async {
        let (code, message) = refusal(sets.patch("etcd", &dry, &Patch::Merge(&on)).await)?;
        ensure!(
            code == 403 && message.contains("etcd-1"),
            "{code}: {message}"
        );
        Ok(())
    })
    .await?;
    world.close().await
}
