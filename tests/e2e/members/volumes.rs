//! Members whose volumes were swapped.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::eventually;
use serde_json::json;

use super::{field, lift, with_members};
use crate::world::{SOON, World};

/// The members whose volumes are swapped.
const SWAPPED: [&str; 2] = ["etcd-1", "etcd-2"];

/// The name of the volume behind a member's claim.
async fn volume(world: &World, pod: &str) -> Result<String> {
    let claims: Api<PersistentVolumeClaim> = world.sandbox.api();
    let claim = claims.get(&format!("data-{pod}")).await?;
    let spec = claim.spec.context("a claim without spec")?;
    spec.volume_name.context("it is not bound")
}

/// The id of the volume of this name, as the gate records it.
async fn id(world: &World, volume: &str) -> Result<String> {
    let all: Api<PersistentVolume> = Api::all(world.sandbox.client());
    let uid = all.get(volume).await?.metadata.uid.context("no UID")?;
    Ok(format!("{volume}/{uid}"))
}

/// Gives both members new claims on these volumes. The StatefulSet is away meanwhile, so that it
/// makes neither pods nor claims.
async fn mount(world: &World, volumes: [&str; 2]) -> Result<()> {
    let sets: Api<StatefulSet> = world.sandbox.api();
    let mut set = sets.get("etcd").await?;
    sets.delete("etcd", &DeleteParams::orphan()).await?;
    gone("the StatefulSet", || async {
        Ok(sets.get_opt("etcd").await?.is_some())
    })
    .await?;
    let (pods, claims) = (world.pods(), world.sandbox.api::<PersistentVolumeClaim>());
    let all: Api<PersistentVolume> = Api::all(world.sandbox.client());
    for (pod, volume) in SWAPPED.into_iter().zip(volumes) {
        let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
        all.patch(volume, &PatchParams::default(), &Patch::Merge(keep))
            .await?;
        pods.delete(pod, &DeleteParams::default()).await?;
    }
    let mut made = Vec::new();
    for (pod, volume) in SWAPPED.into_iter().zip(volumes) {
        let name = format!("data-{pod}");
        let mut claim = claims.get(&name).await?;
        gone(pod, || async { Ok(pods.get_opt(pod).await?.is_some()) }).await?;
        claims.delete(&name, &DeleteParams::default()).await?;
        gone(&name, || async {
            Ok(claims.get_opt(&name).await?.is_some())
        })
        .await?;
        claim.metadata.uid = None;
        claim.metadata.resource_version = None;
        claim.metadata.annotations = None;
        claim.status = None;
        claim.spec.get_or_insert_default().volume_name = Some(volume.to_owned());
        made.push(claim);
    }
    for (claim, volume) in made.iter().zip(volumes) {
        // The volume is kept for the new claim: a volume for anybody is bound to the next claim of
        // any test, whose member then starts on the data of this one.
        let (namespace, name) = (world.namespace(), claim.name_any());
        let reference = json!({
            "namespace": namespace, "name": name, "uid": null, "resourceVersion": null,
        });
        let kept = json!({"spec": {"claimRef": reference}});
        all.patch(volume, &PatchParams::default(), &Patch::Merge(kept))
            .await?;
        claims.create(&PostParams::default(), claim).await?;
    }
    set.metadata.uid = None;
    set.metadata.resource_version = None;
    set.status = None;
    sets.create(&PostParams::default(), &set).await?;
    Ok(())
}

async fn gone<F: Future<Output = Result<bool>>>(
    what: &str,
    is_there: impl Fn() -> F,
) -> Result<()> {
    eventually(SOON, format!("{what} is gone"), || async {
        ensure!(!is_there().await?, "it is still there");
        Ok(())
    })
    .await
}

/// The times at which the wrong volume was identified and fixed, by the `EtcdMember`.
async fn mismatch(world: &World, pod: &str, wrong: &str) -> Result<(String, String)> {
    let entry = format!("volumeMismatches[?(@.volumeID==\"{wrong}\")]");
    let identified = field(world, pod, &format!("{entry}.identifiedAt")).await?;
    let fixed = field(world, pod, &format!("{entry}.fixedAt")).await?;
    Ok((identified, fixed))
}

#[tokio::test(flavor = "multi_thread")]
async fn swapped_volumes_are_told_for_both_members_until_they_are_put_right() -> Result<()> {
    are_told_until_put_right(EtcdVersion::V3_7, "members-swapped").await
}

pub(crate) async fn are_told_until_put_right(version: EtcdVersion, name: &str) -> Result<()> {
    let world = with_members(name)
        .etcd(|etcd| etcd.version(version))
        .start()
        .await?;
    eventually(SOON, "every volume is on record", async || {
        let status = world.budget().await?.status.context("no status")?;
        ensure!(status.volumes.len() == 3, "{:?}", status.volumes);
        Ok(())
    })
    .await?;
    lift(&world).await?;
    let own = (
        volume(&world, "etcd-1").await?,
        volume(&world, "etcd-2").await?,
    );
    let (one, two) = (own.0.as_str(), own.1.as_str());

    let ids = [id(&world, two).await?, id(&world, one).await?];
    mount(&world, [two, one]).await?;
    for (pod, wrong) in SWAPPED.into_iter().zip(&ids) {
        eventually(SOON, format!("{pod} has a wrong volume"), async || {
            let (identified, fixed) = mismatch(&world, pod, wrong).await?;
            ensure!(!identified.is_empty() && fixed.is_empty(), "{fixed:?}");
            Ok(())
        })
        .await?;
    }
    mount(&world, [one, two]).await?;
    for (pod, wrong) in SWAPPED.into_iter().zip(&ids) {
        eventually(SOON, format!("{pod} has its own volume"), async || {
            let (_, fixed) = mismatch(&world, pod, wrong).await?;
            ensure!(!fixed.is_empty(), "it is open");
            let ids = field(&world, pod, "volumeMismatches[*].volumeID").await?;
            ensure!(ids == *wrong, "{ids}");
            Ok(())
        })
        .await?;
    }
    world.etcd.quorate(SOON).await?;
    let all: Api<PersistentVolume> = Api::all(world.sandbox.client());
    for volume in [one, two] {
        let discard = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
        all.patch(volume, &PatchParams::default(), &Patch::Merge(discard))
            .await?;
    }
    world.close().await
}
