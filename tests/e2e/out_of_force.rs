//! The gate loses its footing: the CRD of budgets is deleted, or a namespace loses the label that
//! selects it for the webhooks.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use quorumgate::api::condition;
use quorumgate_testbed::eventually;

use crate::asking::{By, refusal};
use crate::world::{SOON, World};

const DEFINITION: &str = "quorumdisruptionbudgets.quorumgate.io";

#[tokio::test(flavor = "multi_thread")]
async fn without_the_definition_of_budgets_members_wait_and_terminating_pods_go() -> Result<()> {
    World::builder("no-definition")
        .on_a_plane_of_its_own(async |world: World| {
            let uid = world.etcd.pod_uid("etcd-0").await?;
            let node = world.agent_of("etcd-0").await?;
            node.freeze()?;
            world.lets_go(By::Delete, "etcd-0").await?;
            world
                .kubectl(&["delete", "crd", DEFINITION])
                .await?
                .success()?;

            let why = ["CustomResourceDefinition", DEFINITION, "is missing"];
            world.has_to_wait("etcd-1", &why).await?;
            world.delete("etcd-0").await?;
            node.thaw()?;
            world.replaced("etcd-0", &uid).await?;
            // All members serve, and still no permission can be recorded.
            world.etcd.quorate(SOON).await?;
            world.has_to_wait("etcd-1", &why).await?;

            define_budgets(&world).await?;
            eventually(SOON, "the budget is there again", || world.budget()).await?;
            world
                .has_to_wait("etcd-1", &["earlier permissions may still be open"])
                .await?;
            world.trusted().await?;
            let uid = world.etcd.pod_uid("etcd-1").await?;
            world.lets_go(By::Delete, "etcd-1").await?;
            world.replaced("etcd-1", &uid).await?;
            world.whole().await?;
            world.close().await
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_was_taken_from_the_namespace_is_put_back_and_the_ledger_loses_its_trust()
-> Result<()> {
    let world = World::new("no-label").await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let node = world.agent_of("etcd-0").await?;
    node.freeze()?;
    world.lets_go(By::Delete, "etcd-0").await?;
    let epoch = ledger_epoch(&world).await?;

    let namespace = world.namespace();
    world
        .kubectl(&["label", "namespace", namespace, "quorumgate.io/gated-"])
        .await?
        .success()?;
    // It is unknown which pods went while the gate was not asked.
    eventually(
        SOON,
        "the gate is asked again, by an untrusted ledger",
        || async {
            let only_ask = DeleteParams {
                dry_run: true,
                ..DeleteParams::default()
            };
            let (code, message) = refusal(world.pods().delete("etcd-1", &only_ask).await)?;
            ensure!(
                code == 429 && message.contains("was not in force"),
                "{code}: {message}"
            );
            Ok(())
        },
    )
    .await?;
    ensure!(ledger_epoch(&world).await? > epoch, "no new epoch");
    // The grants from before are kept.
    let granted = world.granted().await?;
    ensure!(granted == ["etcd-0"], "grants: {granted:?}");
    node.thaw()?;
    world.replaced("etcd-0", &uid).await?;

    world.trusted().await?;
    eventually(
        SOON,
        "the budget says that the gate is in force",
        || async {
            let active = world.condition(condition::GATE_ACTIVE).await?;
            ensure!(active.status == "True", "{active:?}");
            Ok(())
        },
    )
    .await?;
    let uid = world.etcd.pod_uid("etcd-1").await?;
    world.lets_go(By::Delete, "etcd-1").await?;
    world.replaced("etcd-1", &uid).await?;
    world.whole().await?;
    world.close().await
}

async fn ledger_epoch(world: &World) -> Result<i64> {
    let status = world.budget().await?.status.context("no status")?;
    Ok(status.ledger.epoch)
}

async fn define_budgets(world: &World) -> Result<()> {
    let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    let definition = manifests.join("base/crds.yaml");
    let definition = definition.to_str().context("a path that is no text")?;
    world
        .kubectl(&["create", "-f", definition])
        .await?
        .success()
        .map(drop)
}
