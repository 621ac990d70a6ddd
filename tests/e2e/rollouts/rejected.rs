//! A kubelet rejects the pod that a step of a rollout led to.

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use quorumgate_testbed::faults;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::change;
use super::told::finished;
use crate::rejected::Rejections;

#[tokio::test(flavor = "multi_thread")]
async fn a_step_whose_pod_is_rejected_is_finished_before_another_begins() -> Result<()> {
    let world = on_delete("rollout-rejected", |etcd| etcd).start().await?;
    let leader = world.etcd.leader().await?;
    let pods = world.etcd.pod_names();
    let full = pods.iter().map(|pod| faults::reject(&world.sandbox, pod));
    let full: Vec<_> = full.collect::<Result<_>>()?;
    let mut rejections = Rejections::watch(&world).await?;
    let mut watched = Watched::begin(&world).await?;

    let target = change(&world, "one").await?;
    let first = watched.next().await?;
    let rejected = rejections.next().await?;
    ensure!(rejected.name_any() == first, "{}", rejected.name_any());
    ensure!(of_revision(&rejected)? == target, "it was not updated");
    for other in pods.iter().filter(|pod| **pod != first) {
        world.has_to_wait(other, &[&first]).await?;
    }
    drop(full);
    finished(&world, &target).await?;
    // The StatefulSet controller has deleted the rejected incarnations.
    let rest = watched.end(&world, ELECTION).await?;
    let mut rest: Vec<_> = rest.into_iter().skip_while(|pod| *pod == first).collect();
    ensure!(
        rest.pop() == Some(leader),
        "the leader was not the last one"
    );
    ensure!(rest.len() == 1 && rest[0] != first, "{rest:?}");
    world.close().await
}

fn of_revision(pod: &k8s_openapi::api::core::v1::Pod) -> Result<&str> {
    let revision = pod.labels().get("controller-revision-hash");
    revision
        .map(String::as_str)
        .context("a pod without revision")
}
