//! A release of somebody's chart of etcd, which the gate guards.

use std::fs;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use quorumgate_testbed::eventually;
use serde_json::json;

use super::helm;
use crate::teardown::{manifest_of, no_pods, orphaned};
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn an_uninstall_of_a_chart_of_etcd_is_refused_until_it_is_announced() -> Result<()> {
    let world = World::new("helm-etcd").await?;
    let chart = world.sandbox.directory().join("chart");
    fs::create_dir_all(chart.join("templates"))?;
    let about = json!({"apiVersion": "v2", "name": "etcd", "version": "1.0.0"});
    fs::write(chart.join("Chart.yaml"), about.to_string())?;
    let manifest = manifest_of(&world).await?;
    let set = serde_json::to_string_pretty(&manifest)?;
    fs::write(chart.join("templates/set.yaml"), set)?;
    let beside = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "beside"},
    });
    fs::write(chart.join("templates/beside.yaml"), beside.to_string())?;
    orphaned(&world).await?;
    let chart = chart.to_string_lossy();
    let run = async |args: &[&str]| {
        helm(world.bed(), args)
            .args(["--namespace", world.namespace()])
            .await
    };
    run(&["install", "etcd", &chart]).await?.success()?;
    world.whole().await?;
    let uid = world.etcd.stateful_set().await?.metadata.uid;

    let command = format!(
        "kubectl -n {} annotate --overwrite statefulset etcd quorumgate.io/intent=delete",
        world.namespace()
    );
    // Helm keeps the reason to itself, unless it is asked for.
    let refused = run(&["uninstall", "etcd"]).await?;
    let says = "Error: failed to delete release: etcd";
    ensure!(
        !refused.succeeded() && refused.stderr.contains(says),
        "{refused:?}"
    );
    eventually(SOON, "an Event has the reason", || async {
        let events = world.kubectl(&["get", "events", "-o", "wide"]).await?;
        let events = events.success()?;
        let of_set = |line: &&str| line.contains("statefulset/etcd");
        let says = |line: &str| line.contains(&command);
        ensure!(events.lines().filter(of_set).any(says), "{events}");
        Ok(())
    })
    .await?;
    let refused = run(&["uninstall", "etcd", "--debug"]).await?;
    ensure!(
        !refused.succeeded() && refused.stderr.contains(&command),
        "{refused:?}"
    );
    let beside: Api<ConfigMap> = world.sandbox.api();
    ensure!(beside.get_opt("beside").await?.is_none(), "helm stopped");
    let now = world.etcd.stateful_set().await?.metadata.uid;
    ensure!(now == uid, "the StatefulSet is another");
    ensure!(world.etcd.pods().await?.len() == 3, "a pod is gone");
    world.whole().await?;

    let announced = [
        "annotate",
        "statefulset",
        "etcd",
        "quorumgate.io/intent=delete",
    ];
    world.kubectl(&announced).await?.success()?;
    run(&["uninstall", "etcd"]).await?.success()?;
    no_pods(&world).await?;
    world.close().await
}
