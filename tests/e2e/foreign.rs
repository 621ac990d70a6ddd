//! Pods that are not members pass unchanged, whatever state the cluster beside them is in.

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Shape, Storage};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::asking::refusal;
use crate::bystanders;
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_deployment_pass() -> Result<()> {
    let world = World::new("foreign-deploy").await?;
    bystanders::deployment(&world, "web", 2).await?;
    both_go_untouched(&world, "app=web").await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_job_with_the_members_labels_pass() -> Result<()> {
    let world = World::new("foreign-job").await?;
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "compaction"},
        "spec": {
            "parallelism": 2,
            "template": {"metadata": {"labels": {"app": "etcd"}}, "spec": bystanders::sleeper(&world, "Never")},
        },
    }))?;
    let jobs: Api<Job> = world.sandbox.api();
    jobs.create(&PostParams::default(), &job).await?;
    both_go_untouched(&world, "app=etcd,job-name=compaction").await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_stateful_set_that_is_not_enrolled_pass() -> Result<()> {
    let world = World::new("foreign-set").await?;
    EtcdCluster::builder("other")
        .replicas(2)
        .shape(Shape::Foreign)
        .storage(Storage::EmptyDir)
        .apply(&world.sandbox)
        .await?;
    both_go_untouched(&world, "app=other").await?;
    ensure!(
        world.budgets().get_opt("other").await?.is_none(),
        "a budget was made for it"
    );
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_on_what_is_no_stateful_set_is_answered_by_an_event() -> Result<()> {
    let world = World::new("foreign-label").await?;
    bystanders::deployment(&world, "web", 1).await?;
    bystanders::bare_pod(&world, "x-1").await?;
    // The member comes first, so an Event on it would be there before the one on the other pod.
    for labelled in ["pod/etcd-0", "deployment/web", "pod/x-1"] {
        let label = ["label", labelled, "quorumgate.io/enroll=true"];
        world.kubectl(&label).await?.success()?;
    }
    let told = eventually(SOON, "both are told that they are not guarded", || async {
        let path = r#"jsonpath={range .items[?(@.reason=="NotGuarded")]}{.regarding.kind}/{.regarding.name} {end}"#;
        let events = ["get", "events.events.k8s.io", "-o", path];
        let told = world.kubectl(&events).await?.success()?;
        ensure!(told.contains("Deployment/web") && told.contains("Pod/x-1"), "{told}");
        Ok(told)
    })
    .await?;
    ensure!(!told.contains("etcd-0"), "a member is guarded: {told}");
    world.close().await
}

/// Deletes one of two pods and evicts the other while no member may go. Neither request is written
/// to the ledger.
async fn both_go_untouched(world: &World, labels: &str) -> Result<()> {
    let selection = ListParams::default().labels(labels);
    let pods = eventually(SOON, format!("two pods with {labels} run"), || async {
        let pods = world.pods().list(&selection).await?.items;
        let run = pods.iter().filter(|pod| is_running(pod)).count();
        ensure!(run == 2, "{run} of {} run", pods.len());
        Ok(pods)
    })
    .await?;
    let [one, other] = pods.as_slice() else {
        anyhow::bail!("{} pods", pods.len());
    };
    let broken = world.crash("etcd-2").await?;
    let (code, _) = refusal(world.delete("etcd-0").await)?;
    ensure!(code == 429, "a member was refused with {code}");
    let before = world.last_seq().await?;

    world.delete(&one.name_any()).await?;
    world.evict(&other.name_any()).await?;

    ensure!(world.granted().await?.is_empty(), "a grant appeared");
    let after = world.last_seq().await?;
    ensure!(before == after, "the ledger went from {before} to {after}");
    broken.mend();
    Ok(())
}

fn is_running(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase == Some("Running")
}
