//! Pods that have nothing to do with etcd, of the kinds that are common in clusters.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use crate::world::{SOON, World};

/// Creates a Deployment of this name. The label `app` of its pods has the name as its value.
pub(crate) async fn deployment(world: &World, name: &str, replicas: usize) -> Result<()> {
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": sleeper(world, "Always")},
        },
    }))?;
    let deployments = world.sandbox.api::<Deployment>();
    deployments
        .create(&PostParams::default(), &deployment)
        .await?;
    run(world, name, replicas).await.map(drop)
}

/// Creates a `DaemonSet` with a pod on every node of the test.
pub(crate) async fn daemon_set(world: &World, name: &str) -> Result<()> {
    let daemon_set: DaemonSet = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": sleeper(world, "Always")},
        },
    }))?;
    let daemon_sets = world.sandbox.api::<DaemonSet>();
    daemon_sets
        .create(&PostParams::default(), &daemon_set)
        .await?;
    run(world, name, world.sandbox.nodes().len())
        .await
        .map(drop)
}

/// Creates a pod that no controller owns.
pub(crate) async fn bare_pod(world: &World, name: &str) -> Result<()> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": sleeper(world, "Always"),
    }))?;
    world.pods().create(&PostParams::default(), &pod).await?;
    run(world, name, 1).await.map(drop)
}

/// Waits until exactly `count` pods with this label stay and run, and returns their names.
pub(crate) async fn run(world: &World, app: &str, count: usize) -> Result<BTreeSet<String>> {
    eventually(SOON, format!("{count} pods of {app} run"), || async {
        let labelled = ListParams::default().labels(&format!("app={app}"));
        let pods = world.pods().list(&labelled).await?.items;
        let staying = pods.iter().filter(|pod| stays(pod));
        let names: BTreeSet<String> = staying.map(kube::ResourceExt::name_any).collect();
        ensure!(names.len() == count, "there are {names:?}");
        Ok(names)
    })
    .await
}

/// The specification of a pod that does nothing, on the nodes of the test.
pub(crate) fn sleeper(world: &World, restart: &str) -> Value {
    json!({
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": world.sandbox.node_selector(),
        "containers": [{"name": "sleep", "image": "busybox", "command": ["sleep", "infinity"]}],
    })
}

fn stays(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && phase == Some("Running")
}
