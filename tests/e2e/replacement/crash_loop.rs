//! Members whose etcd ends over and over, while the others serve.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::Api;
use kube::api::{Patch, PatchParams};
use quorumgate_testbed::etcd_cluster::EtcdVersion;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::PodFaults;
use quorumgate_testbed::writer::Writer;
use serde_json::{Value, json};

use super::{finished, is_whole_without, nothing_is_lost, protected, replacement, request, wish};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_ends_on_its_data_is_told_and_replaced_on_request() -> Result<()> {
    let world = protected("crash-data", EtcdVersion::V3_6, "Manual").await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-1").await?.id;
    let faults = PodFaults::find(&world.sandbox, "etcd-1").await?;
    faults.corrupt_data()?;
    world
        .reported("DataProtected", |shown| {
            shown.reason == "CrashLoop" && shown.message.contains("etcd-1")
        })
        .await?;
    world
        .reported("QuorumHealthy", |shown| {
            shown.message.contains("etcd-1")
                && shown.message.contains("it last ended with exit code")
        })
        .await?;
    ensure!(
        replacement(&world, "etcd-1").await?.is_none(),
        "nobody asked"
    );
    request(&world, &format!("{id:x}")).await?;
    finished(&world, "etcd-1").await?;
    is_whole_without(&world, id).await?;
    world
        .reported("DataProtected", |shown| shown.status == "True")
        .await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_ends_on_its_data_is_replaced_by_auto() -> Result<()> {
    let world = protected("crash-auto", EtcdVersion::V3_6, "Auto").await?;
    wish(&world, &json!({"replaceAfter": "10s"})).await?;
    let writer = Writer::start(&world.etcd).await?;
    let id = world.etcd.member("etcd-1").await?.id;
    PodFaults::find(&world.sandbox, "etcd-1")
        .await?
        .corrupt_data()?;
    let done = finished(&world, "etcd-1").await?;
    ensure!(done.reason == "CrashLoop", "{done:?}");
    is_whole_without(&world, id).await?;
    nothing_is_lost(writer, &world.etcd).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_ends_by_its_template_is_not_replaced() -> Result<()> {
    let world = protected("crash-template", EtcdVersion::V3_6, "Auto").await?;
    wish(&world, &json!({"replaceAfter": "10s"})).await?;
    let sets: Api<StatefulSet> = world.sandbox.api();
    let params = PatchParams::default();
    let variable = |change: Value| {
        let containers = json!([{"name": "etcd", "env": [change]}]);
        Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}))
    };
    let bad = variable(json!({"name": "ETCD_MAX_TXN_OPS", "value": "many"}));
    sets.patch(world.etcd.name(), &params, &bad).await?;
    // By then `replaceAfter` is over.
    eventually(super::REPLACED, "etcd has ended over and over", || async {
        let mut restarts = Vec::new();
        for pod in world.etcd.pods().await? {
            let statuses = pod.status.and_then(|status| status.container_statuses);
            restarts.extend(statuses.iter().flatten().map(|status| status.restart_count));
        }
        ensure!(restarts.iter().any(|count| *count >= 6), "{restarts:?}");
        anyhow::Ok(())
    })
    .await?;
    none_is_replaced(&world).await?;
    world
        .reported("QuorumHealthy", |shown| {
            shown.message.contains("it last ended with exit code")
        })
        .await?;
    let good = variable(json!({"name": "ETCD_MAX_TXN_OPS", "$patch": "delete"}));
    sets.patch(world.etcd.name(), &params, &good).await?;
    world.whole().await?;
    none_is_replaced(&world).await?;
    world.close().await
}

async fn none_is_replaced(world: &World) -> Result<()> {
    for pod in world.etcd.pod_names() {
        let replacement = replacement(world, &pod).await?;
        ensure!(replacement.is_none(), "{replacement:?}");
    }
    let shown = world.condition("DataProtected").await?;
    ensure!(shown.reason != "CrashLoop", "{shown:?}");
    Ok(())
}
