//! The cases, in the order in which they run.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::future::BoxFuture;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Status;
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use crate::Outcome::{self, Passed, Skipped};
use crate::cluster::{Cluster, LABEL, PATIENCE, PODS, SET, is_ready};
use crate::members::NO_IMAGE;
use crate::writer::while_writing;

type Case = fn(&Cluster) -> BoxFuture<'_, Result<Outcome>>;

/// A list of cases with their names.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        pub(crate) const ALL: &[(&str, Case)] =
            &[$((stringify!($name), |cluster| Box::pin($name(cluster)))),*];
    };
}

cases![
    a_deleted_member_is_granted_settled_and_serves_again,
    of_two_deletes_at_the_same_moment_one_is_allowed,
    of_two_evictions_at_the_same_moment_one_is_allowed,
    a_forced_delete_counts_like_any_other,
    a_collection_delete_takes_one_member,
    dry_runs_leave_no_trace,
    a_member_that_lost_its_labels_is_gated,
    a_new_image_in_place_is_refused,
    while_a_member_is_dead_the_others_stay,
    an_override_lets_a_needed_member_go,
    drains_of_all_nodes_keep_the_quorum,
    a_second_drain_waits_for_the_first_member,
    followers_go_first_and_the_leader_last,
    a_bad_image_costs_one_member,
];

async fn a_deleted_member_is_granted_settled_and_serves_again(
    cluster: &Cluster,
) -> Result<Outcome> {
    let uid = cluster.uid("etcd-1").await?;
    cluster
        .kubectl(&["delete", "pod", "etcd-1", "--wait=false"])
        .await?
        .success()?;
    let granted = cluster.granted().await?;
    ensure!(granted == ["etcd-1"], "grants: {granted:?}");
    cluster.replaced("etcd-1", &uid).await?;
    cluster.whole().await?;
    Ok(Passed)
}

async fn of_two_deletes_at_the_same_moment_one_is_allowed(cluster: &Cluster) -> Result<Outcome> {
    let (pods, how) = (cluster.pods(), DeleteParams::default());
    let (first, second) = tokio::join!(pods.delete("etcd-0", &how), pods.delete("etcd-1", &how));
    one_of(first.map(drop), second.map(drop))
}

async fn of_two_evictions_at_the_same_moment_one_is_allowed(cluster: &Cluster) -> Result<Outcome> {
    let (pods, how) = (cluster.pods(), EvictParams::default());
    let (first, second) = tokio::join!(pods.evict("etcd-1", &how), pods.evict("etcd-2", &how));
    one_of(first.map(drop), second.map(drop))
}

async fn a_forced_delete_counts_like_any_other(cluster: &Cluster) -> Result<Outcome> {
    let (pods, now) = (cluster.pods(), DeleteParams::default().grace_period(0));
    pods.delete("etcd-0", &now).await?;
    has_to_wait(pods.delete("etcd-1", &now).await.map(drop), &["etcd-1"])?;
    Ok(Passed)
}

async fn a_collection_delete_takes_one_member(cluster: &Cluster) -> Result<Outcome> {
    let members = ListParams::default().labels(&cluster.selector());
    let pods = cluster.pods();
    let all = pods
        .delete_collection(&DeleteParams::default(), &members)
        .await;
    has_to_wait(all.map(drop), &["is needed"])?;
    let granted = cluster.granted().await?;
    ensure!(granted.len() == 1, "grants: {granted:?}");
    Ok(Passed)
}

async fn dry_runs_leave_no_trace(cluster: &Cluster) -> Result<Outcome> {
    let before = cluster
        .budget()
        .await?
        .status
        .context("no status")?
        .ledger
        .last_seq;
    let dry = DeleteParams::default().dry_run();
    for pod in PODS {
        cluster.pods().delete(pod, &dry).await?;
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod}, "deleteOptions": {"dryRun": ["All"]},
        });
        let posted: Result<Status, _> = cluster
            .pods()
            .create_subresource("eviction", pod, &PostParams::default(), &eviction)
            .await;
        posted?;
    }
    let status = cluster.budget().await?.status.context("no status")?;
    ensure!(status.grants.is_empty(), "grants: {:?}", status.grants);
    ensure!(status.ledger.last_seq == before, "a number was used up");
    Ok(Passed)
}

async fn a_member_that_lost_its_labels_is_gated(cluster: &Cluster) -> Result<Outcome> {
    let labels = cluster.pod("etcd-0").await?.metadata.labels;
    let labelled = async |labels| {
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        let parameters = PatchParams::default();
        cluster
            .pods()
            .patch("etcd-0", &parameters, &patch)
            .await
            .map(drop)
    };
    labelled(json!({LABEL: null})).await?;
    let (pods, how) = (cluster.pods(), DeleteParams::default());
    let (first, second) = tokio::join!(pods.delete("etcd-0", &how), pods.delete("etcd-1", &how));
    let outcome = one_of(first.map(drop), second.map(drop));
    // If the pod is the one that stayed, its labels are restored. If it went, another pod with all
    // labels is on its way.
    labelled(json!(labels)).await.ok();
    outcome
}

async fn a_new_image_in_place_is_refused(cluster: &Cluster) -> Result<Outcome> {
    let image = format!("etcd={NO_IMAGE}");
    let said = cluster
        .kubectl(&["set", "image", "pod/etcd-2", &image])
        .await?;
    ensure!(!said.succeeded(), "it was allowed: {}", said.stdout);
    ensure!(
        said.stderr.contains("kubelet's choosing"),
        "{}",
        said.stderr
    );
    Ok(Passed)
}

async fn while_a_member_is_dead_the_others_stay(cluster: &Cluster) -> Result<Outcome> {
    let uid = cluster.uid("etcd-2").await?;
    cluster.break_member("etcd-2").await?;
    let (pods, how) = (cluster.pods(), DeleteParams::default());
    has_to_wait(
        pods.delete("etcd-0", &how).await.map(drop),
        &["etcd-0", "etcd-2", "2 of 3"],
    )?;
    let evicted = pods.evict("etcd-1", &EvictParams::default()).await;
    has_to_wait(evicted.map(drop), &[])?;
    pods.delete("etcd-2", &how).await?;
    cluster.replaced("etcd-2", &uid).await?;
    cluster.whole().await?;
    Ok(Passed)
}

async fn an_override_lets_a_needed_member_go(cluster: &Cluster) -> Result<Outcome> {
    cluster
        .pods()
        .delete("etcd-0", &DeleteParams::default())
        .await?;
    let how = DeleteParams::default();
    has_to_wait(
        cluster.pods().delete("etcd-1", &how).await.map(drop),
        &["etcd-1"],
    )?;
    cluster.lift("etcd-1").await?;
    cluster.pods().delete("etcd-1", &how).await?;
    Ok(Passed)
}

async fn drains_of_all_nodes_keep_the_quorum(cluster: &Cluster) -> Result<Outcome> {
    let drains = async {
        for pod in PODS {
            let uid = cluster.uid(pod).await?;
            let node = node_of(cluster, pod).await?;
            let drained = drain(cluster, &node, "120s").await;
            cluster.kubectl(&["uncordon", &node]).await?.success()?;
            drained?;
            cluster.replaced(pod, &uid).await?;
            cluster.whole().await?;
        }
        Ok(())
    };
    while_writing(cluster, drains).await?;
    Ok(Passed)
}

async fn a_second_drain_waits_for_the_first_member(cluster: &Cluster) -> Result<Outcome> {
    let uid = cluster.uid("etcd-0").await?;
    let first = node_of(cluster, "etcd-0").await?;
    let second = node_of(cluster, "etcd-1").await?;
    let outcome = async {
        drain(cluster, &first, "120s").await?;
        // No other node takes the first member while its node is cordoned, unless there is a spare
        // node.
        let elsewhere = eventually(
            Duration::from_secs(5),
            "etcd-0 serves elsewhere",
            || async {
                let pod = cluster.pod("etcd-0").await?;
                let other = pod.metadata.uid.as_ref() != Some(&uid);
                ensure!(other && is_ready(&pod), "it does not");
                Ok(())
            },
        );
        if elsewhere.await.is_ok() {
            return Ok(Skipped(
                "a spare node took the first member at once".to_owned(),
            ));
        }
        let refused = drain(cluster, &second, "15s").await;
        ensure!(refused.is_err(), "two of three members were drained");
        Ok(Passed)
    };
    let outcome = outcome.await;
    for node in [&first, &second] {
        cluster.kubectl(&["uncordon", node]).await?.success()?;
    }
    outcome
}

async fn followers_go_first_and_the_leader_last(cluster: &Cluster) -> Result<Outcome> {
    if !cluster.has(FEATURE) {
        return Ok(Skipped(format!("the gate runs without {FEATURE}")));
    }
    let leader = cluster.leader().await?;
    let mut order = Vec::new();
    let rollout = async {
        let mut before = Vec::new();
        for pod in PODS {
            before.push((pod, cluster.uid(pod).await?));
        }
        let annotations = json!({"quorumgate-try": "order"});
        change(cluster, json!({"metadata": {"annotations": annotations}})).await?;
        let begun = Instant::now();
        while order.len() < PODS.len() {
            ensure!(begun.elapsed() < PATIENCE, "only {order:?} were replaced");
            for (pod, uid) in &before {
                let now = cluster.uid(pod).await;
                if !order.contains(pod) && now.is_ok_and(|now| now != *uid) {
                    order.push(pod);
                }
            }
        }
        finished(cluster).await
    };
    while_writing(cluster, rollout).await?;
    ensure!(
        order.last() == Some(&leader),
        "{leader} led, and they went in the order {order:?}"
    );
    Ok(Passed)
}

async fn a_bad_image_costs_one_member(cluster: &Cluster) -> Result<Outcome> {
    if !cluster.has(FEATURE) {
        return Ok(Skipped(format!("the gate runs without {FEATURE}")));
    }
    let good = image(cluster).await?;
    let with = |image: &str| json!({"spec": {"containers": [{"name": "etcd", "image": image}]}});
    change(cluster, with(NO_IMAGE)).await?;
    let victim = eventually(PATIENCE, "the rollout holds", || async {
        let status = cluster.budget().await?.status.context("no status")?;
        let rollout = status.rollout.context("no rollout")?;
        let waits = rollout
            .waiting_on
            .as_ref()
            .map(|waiting| waiting.reason.as_str());
        ensure!(waits == Some("UpdatedMembers"), "{rollout:?}");
        Ok(rollout.last_step.context("no step")?.pod)
    });
    let victim = victim.await?;
    let mut serving = 0;
    for pod in PODS {
        serving += usize::from(is_ready(&cluster.pod(pod).await?));
    }
    // The cluster has to be whole for the next case, whatever the result of this one.
    change(cluster, with(&good)).await?;
    ensure!(
        serving == 2,
        "{serving} members were Ready while {victim} held the rollout"
    );
    finished(cluster).await?;
    Ok(Passed)
}

/// The feature gate of the gate's rollouts.
const FEATURE: &str = "QuorumAwareUpdatesWithOnDelete";

/// Changes the template of the StatefulSet.
async fn change(cluster: &Cluster, template: Value) -> Result<()> {
    let patch = Patch::Strategic(json!({"spec": {"template": template}}));
    let parameters = PatchParams::default();
    cluster.sets().patch(SET, &parameters, &patch).await?;
    Ok(())
}

/// Waits until the rollout to the last template is complete.
async fn finished(cluster: &Cluster) -> Result<()> {
    eventually(PATIENCE, "the rollout is complete", || async {
        let set = cluster.sets().get(SET).await?;
        let target = set.status.and_then(|status| status.update_revision);
        let status = cluster.budget().await?.status.context("no status")?;
        let rollout = status.rollout.context("no rollout")?;
        ensure!(
            rollout.target == target && rollout.completion_time.is_some(),
            "{rollout:?}"
        );
        Ok(())
    })
    .await
}

async fn image(cluster: &Cluster) -> Result<String> {
    let set = cluster.sets().get(SET).await?;
    let spec = set
        .spec
        .and_then(|spec| spec.template.spec)
        .context("no template")?;
    let etcd = spec
        .containers
        .into_iter()
        .find(|container| container.name == "etcd");
    etcd.and_then(|etcd| etcd.image).context("no image")
}

async fn node_of(cluster: &Cluster, pod: &str) -> Result<String> {
    let spec = cluster.pod(pod).await?.spec.context("a pod without spec")?;
    spec.node_name.context("it is on no node")
}

/// Drains a node of this cluster's members only.
async fn drain(cluster: &Cluster, node: &str, timeout: &str) -> Result<()> {
    let timeout = format!("--timeout={timeout}");
    let only = format!("--pod-selector={}", cluster.selector());
    let drain = [
        "drain",
        node,
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        &only,
        &timeout,
    ];
    cluster.kubectl(&drain).await?.success().map(drop)
}

fn one_of(first: Result<(), kube::Error>, second: Result<(), kube::Error>) -> Result<Outcome> {
    match (first, second) {
        (Ok(()), refused @ Err(_)) | (refused @ Err(_), Ok(())) => {
            // If leadership moved to the refused member meanwhile, that may be the reason for the
            // refusal.
            has_to_wait(refused, &["cannot be deleted now"])?;
        }
        (Ok(()), Ok(())) => bail!("both were allowed"),
        (Err(first), Err(second)) => bail!("both were refused: {first}; {second}"),
    }
    Ok(Passed)
}

/// Fails unless the answer is a 429 that mentions all of `parts`.
fn has_to_wait(answer: Result<(), kube::Error>, parts: &[&str]) -> Result<()> {
    match answer {
        Ok(()) => bail!("it was allowed"),
        Err(kube::Error::Api(status)) => {
            ensure!(status.code == 429, "{}: {}", status.code, status.message);
            let all = parts.iter().all(|part| status.message.contains(part));
            ensure!(
                all,
                "the refusal does not mention all of {parts:?}: {}",
                status.message
            );
            Ok(())
        }
        Err(other) => Err(other.into()),
    }
}
