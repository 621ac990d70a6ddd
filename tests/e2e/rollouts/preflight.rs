//! Faults of a template that are found before its first member goes.

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use quorumgate::api::condition;
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use serde_json::{Value, json};

use super::scene::{GAP, Watched, on_delete};
use super::template::{change_by, current_image, image, patch_set, revision};
use super::told::{finished, waits_on};
use crate::world::World;

/// The change of etcd's resources in the template.
fn resources(resources: &Value) -> Value {
    let container = json!({"name": "etcd", "resources": resources});
    json!({"spec": {"template": {"spec": {"containers": [container]}}}})
}

/// Waits until the rollout to `bad` waits for this finding.
async fn finds(world: &World, bad: &str, finding: &str) -> Result<()> {
    let told = waits_on(world, bad, &["Preflight"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    ensure!(message.contains(finding), "{message}");
    let progressing = world.condition(condition::PROGRESSING).await?;
    let is_held = progressing.status == "False" && progressing.reason == "Preflight";
    ensure!(is_held, "{progressing:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_template_shows_holds_a_rollout_before_its_first_member() -> Result<()> {
    let world = on_delete("preflight", |etcd| etcd).start().await?;
    let watched = Watched::begin(&world).await?;
    let (good, now) = (revision(&world).await?, current_image(&world).await?);
    let lower = EtcdVersion::V3_5.image()?;
    let too_little = json!({"limits": {"memory": "1Mi"}});
    for (bad, finding) in [
        (image(&lower), "a downgrade"),
        (resources(&too_little), "MiB of memory"),
    ] {
        let bad = change_by(&world, bad).await?;
        finds(&world, &bad, finding).await?;
        patch_set(&world, image(&now)).await?;
        patch_set(&world, resources(&Value::Null)).await?;
        finished(&world, &good).await?;
    }
    let order = watched.end(&world, GAP).await?;
    ensure!(order.is_empty(), "{order:?}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_revision_is_rolled_out_with_its_findings() -> Result<()> {
    let world = on_delete("preflight-go", |etcd| etcd).start().await?;
    let watched = Watched::begin(&world).await?;
    let too_little = json!({"limits": {"memory": "1Mi"}});
    let target = change_by(&world, resources(&too_little)).await?;
    for named in ["another", target.as_str()] {
        finds(&world, &target, "MiB of memory").await?;
        let proceed = json!({"metadata": {"annotations": {"quorumgate.io/proceed": named}}});
        let (budgets, params) = (world.budgets(), PatchParams::default());
        budgets
            .patch("etcd", &params, &Patch::Merge(proceed))
            .await?;
    }
    finished(&world, &target).await?;
    let order = watched.end(&world, GAP).await?;
    ensure!(order.len() == 3, "{order:?}");
    world.close().await
}
