//! The answers of quorumgate and its peers about the members of a real etcd cluster of three, in
//! situations where the answer matters.
//!
//! Each peer has a rule by readiness. Gatekeeper and Kyverno let a pod go if all others of its
//! application are Ready: Gatekeeper by its copies of pods, Kyverno by a list from the API server.
//! OpenKruise has a budget that spares one pod. Open Policy Agent, as it runs here, sees the review
//! alone, so it has no such rule. Pods are Ready while their process listens. The requests are
//! deletes, of which a `PodDisruptionBudget` is not told.

use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Readiness};
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::{Value, json};

use crate::broken::{self, BROKEN};
use crate::deletion::deletion;
use crate::foreign::Foreign;
use crate::racers::{Racer, kruise};

/// The leader, and the follower that is asked about. The third member breaks.
const LEADER: &str = "etcd-1";
const FOLLOWER: &str = "etcd-2";

const SOON: Duration = Duration::from_secs(120);
/// The time for a racer to learn of what has changed.
const TIME: Duration = Duration::from_secs(15);
/// The pause between two questions meanwhile.
const AGAIN: Duration = Duration::from_millis(200);

pub(crate) async fn ask(plane: &ControlPlane) -> Result<()> {
    let bed = Bed::up_with(plane.clone()).await?;
    let mut sandbox = bed.sandbox("answers").await?;
    sandbox.add_nodes(3).await?;
    let directory = tempfile::tempdir()?;
    let etcd = EtcdCluster::builder("etcd").readiness(Readiness::Process);
    let etcd = etcd.apply(&sandbox).await?;
    etcd.quorate(SOON).await?;
    let racers = racers(&sandbox, &etcd, directory.path()).await?;

    etcd.move_leader(LEADER).await?;
    let mut rows = Vec::new();
    let review = about(&etcd, FOLLOWER, true).await?;
    rows.push(("all serve", answers(&racers, &review, true).await?));
    let crashing = broken::crash(&sandbox, &etcd).await?;
    let what = "another is down, and not Ready";
    rows.push((what, answers(&racers, &review, false).await?));
    drop(crashing.replaced());
    well(&etcd).await?;
    let cut_off = broken::cut_off(&sandbox, &etcd).await?;
    let what = "another has lost its peers, and is Ready";
    rows.push((what, answers(&racers, &review, false).await?));
    drop(cut_off.replaced());
    well(&etcd).await?;
    let both = [
        about(&etcd, BROKEN, false).await?,
        about(&etcd, FOLLOWER, false).await?,
    ];
    let mut together = Vec::new();
    for racer in &racers {
        together.push(at_once(racer, &both).await?);
    }
    rows.push(("all serve, two followers at once", together));
    print(&racers, &rows)?;
    for racer in racers {
        racer.close().await?;
    }
    // The control plane is deleted as a whole. Kyverno has registered itself, and no pod can be
    // deleted without it.
    std::mem::forget(sandbox);
    Ok(())
}

/// quorumgate and its peers, each with its rule in force.
async fn racers(sandbox: &Sandbox, etcd: &EtcdCluster, directory: &Path) -> Result<Vec<Racer>> {
    let bed = sandbox.bed();
    let foreign = Foreign::create(bed).await?.delete;
    let forbidden = forbidden(bed).await?;
    let racers = vec![
        Racer::quorumgate(sandbox, &foreign).await?,
        Racer::openkruise(bed, directory, &foreign).await?,
        Racer::gatekeeper_by_readiness(bed, directory, &forbidden).await?,
        Racer::kyverno_by_readiness(bed, directory, &forbidden).await?,
    ];
    kruise::guard(sandbox, etcd).await?;
    Ok(racers)
}

/// The review of the DELETE of a pod beside which another of its application is not Ready.
async fn forbidden(bed: &Bed) -> Result<Value> {
    let name = "unready";
    let create = PostParams::default();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(bed.client()).create(&create, &namespace).await?;
    let pods: Api<Pod> = Api::namespaced(bed.client(), name);
    for (pod, ready) in [("a", "True"), ("b", "False")] {
        let object = json!({
            "metadata": {"name": pod, "labels": {"app": name}},
            "spec": {
                "schedulerName": "nobody", "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "none"}],
            },
        });
        eventually(SOON, "the namespace takes pods", async || {
            pods.create(&create, &serde_json::from_value(object.clone())?)
                .await?;
            anyhow::Ok(())
        })
        .await?;
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
        let parameters = PatchParams::default();
        pods.patch_status(pod, &parameters, &Patch::Merge(&status))
            .await?;
    }
    Ok(deletion(&serde_json::to_value(pods.get("a").await?)?, true))
}

/// The review of the DELETE of a member.
async fn about(etcd: &EtcdCluster, member: &str, dry_run: bool) -> Result<Value> {
    let pod = serde_json::to_value(etcd.pod(member).await?)?;
    Ok(deletion(&pod, dry_run))
}

/// Waits until all members serve and their pods are Ready.
async fn well(etcd: &EtcdCluster) -> Result<()> {
    etcd.quorate(SOON).await?;
    eventually(SOON, "all pods are Ready", async || {
        for pod in etcd.pod_names() {
            ensure!(etcd.is_ready(&pod).await?, "{pod} is not");
        }
        anyhow::Ok(())
    })
    .await
}

/// The answers of all, which have time to come to the right one.
async fn answers(racers: &[Racer], review: &Value, right: bool) -> Result<Vec<String>> {
    let asking = racers.iter().map(async |racer| {
        let begun = Instant::now();
        loop {
            let allowed = racer.allows(review).await?;
            if allowed == right || begun.elapsed() > TIME {
                return anyhow::Ok(word(allowed));
            }
            tokio::time::sleep(AGAIN).await;
        }
    });
    try_join_all(asking).await
}

fn word(allowed: bool) -> String {
    if allowed { "yes" } else { "no" }.to_owned()
}

/// How many of these requests at the same moment get a yes.
async fn at_once(racer: &Racer, reviews: &[Value]) -> Result<String> {
    let asking = reviews.iter().map(|review| racer.allows(review));
    let answers = try_join_all(asking).await?;
    let permitted = answers.into_iter().filter(|allowed| *allowed).count();
    Ok(format!("{permitted} yes"))
}

fn print(racers: &[Racer], rows: &[(&str, Vec<String>)]) -> Result<()> {
    let mut out = io::stdout().lock();
    let names: Vec<_> = racers.iter().map(|racer| racer.name).collect();
    writeln!(out, "\nMay a follower of three be deleted?\n")?;
    writeln!(out, "| | {} |", names.join(" | "))?;
    writeln!(out, "|---{}|", "|---".repeat(names.len()))?;
    for (what, answers) in rows {
        writeln!(out, "| {what} | {} |", answers.join(" | "))?;
    }
    Ok(out.flush()?)
}
