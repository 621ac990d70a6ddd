//! Inputs as large as Kubernetes allows: hundreds of pods in one delete, pods of more than a
//! mebibyte, names of 253 characters.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use quorumgate::api::{QuorumDisruptionBudget, QuorumDisruptionBudgetSpec};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::asking::{By, refusal};
use crate::world::{SOON, World};

/// The number of pods that are created concurrently.
const AT_ONCE: usize = 16;
/// The size of a large pod in bytes. etcd accepts requests of one and a half MiB.
const FAT: usize = 1_400_000;
const LONGEST_NAME: usize = 253;
/// The time limit for a thousand deletes in sequence on a busy machine.
const A_WHILE: Duration = Duration::from_secs(300);

/// A pod that no scheduler handles, so that its deletion removes it at once.
fn pod(name: &str, word: &str) -> Result<Pod> {
    let container =
        json!({"name": "idle", "image": "idle", "env": [{"name": "WORD", "value": word}]});
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "crowd"}},
        "spec": {"schedulerName": "nobody", "containers": [container]},
    }))?)
}

async fn create(world: &World, name: &str, filling: &str) -> Result<()> {
    let pod = pod(name, filling)?;
    world.pods().create(&PostParams::default(), &pod).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_of_two_hundred_pods_goes_up_to_the_second_member() -> Result<()> {
    goes_up_to_the_second_member(200, "hundreds").await
}

/// Where the machine is busy, the API server abandons this one request after the other.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn a_collection_of_a_thousand_pods_goes_up_to_the_second_member() -> Result<()> {
    goes_up_to_the_second_member(1000, "thousand").await
}

async fn goes_up_to_the_second_member(crowd: usize, name: &str) -> Result<()> {
    let world = World::new(name).await?;
    futures::stream::iter(0..crowd)
        .map(|number| {
            let world = &world;
            async move { create(world, &format!("crowd-{number}"), "").await }
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;

    // The API server deletes a collection in the order of names, so that the members come last.
    // After a minute it abandons a request that has not ended; the deletes until then stay done.
    let everything = ListParams::default();
    let now = DeleteParams::default();
    let answer = eventually(A_WHILE, "an answer about all of them", async || match world
        .pods()
        .delete_collection(&now, &everything)
        .await
    {
        Err(dropped @ (kube::Error::Service(_) | kube::Error::HyperError(_))) => {
            Err(dropped.into())
        }
        Err(kube::Error::Api(late)) if late.code == 504 => bail!("{}", late.message),
        answered => anyhow::Ok(refusal(answered)),
    });
    let (code, message) = answer.await??;
    ensure!(
        code == 429 && message.contains("etcd-1"),
        "{code}: {message}"
    );
    let crowd = ListParams::default().labels("app=crowd");
    let left = world.pods().list(&crowd).await?.items.len();
    ensure!(left == 0, "{left} of the crowd are left");
    let granted = world.granted().await?;
    ensure!(granted == ["etcd-0"], "grants: {granted:?}");
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_as_large_as_etcd_takes_them_pass_when_they_come_change_and_go() -> Result<()> {
    let world = World::new("fat").await?;
    // API servers write a `<` as six bytes.
    for (name, evict, byte) in [
        ("fat-0", false, "x"),
        ("fat-1", true, "x"),
        ("fat-2", false, "<"),
        ("fat-3", true, "<"),
    ] {
        create(&world, name, &byte.repeat(FAT)).await?;
        // Such a review has two large objects, the old and the new one.
        let change =
            Patch::Strategic(json!({"spec": {"containers": [{"name": "idle", "image": "other"}]}}));
        world
            .pods()
            .patch(name, &PatchParams::default(), &change)
            .await?;
        if evict {
            world.evict(name).await?;
        } else {
            world.delete(name).await?;
        }
        ensure!(
            world.pods().get_opt(name).await?.is_none(),
            "{name} is still there"
        );
    }
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_253_characters_are_borne() -> Result<()> {
    let world = World::new("long-names").await?;
    let name = "x".repeat(LONGEST_NAME);
    create(&world, &name, "").await?;
    world.evict(&name).await?;
    create(&world, &name, "").await?;
    world.delete(&name).await?;

    let budget = QuorumDisruptionBudget::new(&name, QuorumDisruptionBudgetSpec::default());
    world
        .budgets()
        .create(&PostParams::default(), &budget)
        .await?;
    eventually(SOON, "its conditions are told", async || {
        let status = world.budgets().get(&name).await?.status;
        let status = status.context("no status yet")?;
        ensure!(!status.conditions.is_empty(), "no conditions yet");
        anyhow::Ok(())
    })
    .await?;
    // The other cluster is still guarded.
    world.lets_go(By::Delete, "etcd-1").await?;
    world.whole().await?;
    world.close().await
}
