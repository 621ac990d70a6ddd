//! Steps that the gate permits and another webhook refuses.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams};
use quorumgate_testbed::eventually;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::change;
use super::told::{finished, waits_on};
use crate::other_hook::{NAME, OtherHook};
use crate::world::SOON;

/// The match condition of the other webhook: all users but kubelets and the test's other client.
const ALL_OTHERS: &str = "!(request.userInfo.username == 'stranger' || request.userInfo.username.startsWith('system:node:'))";

/// Each attempt takes a grant, which would keep all others waiting for as long as the rollout
/// tries.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_another_webhook_refuses_does_not_keep_the_ledger() -> Result<()> {
    let world = on_delete("rollout-refused", |etcd| etcd).start().await?;
    world.etcd.move_leader("etcd-0").await?;
    let stranger = world
        .bed()
        .client_as("stranger", &["system:masters"])
        .await?;
    let stranger: Api<Pod> = Api::namespaced(stranger, world.namespace());
    let watched = Watched::begin(&world).await?;
    let hook = OtherHook::create(&world, ALL_OTHERS).await?;
    eventually(SOON, "the other webhook is in force", async || {
        let dry = DeleteParams::default().dry_run();
        let refused = world.pods().delete("etcd-1", &dry).await.err();
        let refused = refused.context("the delete is not refused")?.to_string();
        ensure!(refused.contains(NAME), "{refused}");
        Ok(())
    })
    .await?;

    let target = change(&world, "one").await?;
    let told = waits_on(&world, &target, &["Failed"]).await?;
    let message = told.waiting_on.context("no wait")?.message;
    ensure!(message.contains(NAME), "{message}");
    let uid = world.etcd.pod_uid("etcd-0").await?;
    let params = DeleteParams::default();
    eventually(SOON, "a stranger may take a member", || {
        stranger.delete("etcd-0", &params)
    })
    .await?;
    world.replaced("etcd-0", &uid).await?;

    hook.remove().await?;
    finished(&world, &target).await?;
    watched.end(&world, ELECTION).await?;
    world.close().await
}
