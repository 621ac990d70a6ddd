//! The ways to defragment all members of a cluster.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use kube::Api;
use kube::api::{Patch, PatchParams};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::paths::Cache;
use quorumgate_testbed::{eventually, versions};
use serde_json::json;
use tokio::process::Command;

use crate::incarnations::{Pods, Watch};

/// The time limit for all members.
const RUN: Duration = Duration::from_secs(240);

/// A way to defragment all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The gate's runs, one after the other.
    InPlace,
    /// `etcdctl defrag --cluster`, one member after the other.
    Etcdctl,
    /// `etcdctl defrag` for each member at the same moment, as a `CronJob` of each member does.
    Cron,
    /// A rollout by the gate of a template that makes members defragment before they serve.
    Restarts,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::InPlace, Self::Etcdctl, Self::Cron, Self::Restarts];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::InPlace => "quorumgate, in place",
            Self::Etcdctl => "etcdctl defrag --cluster",
            Self::Cron => "all members at once",
            Self::Restarts => "quorumgate, by a rollout",
        }
    }

    /// The name of its cluster.
    pub(crate) fn cluster(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::Etcdctl => "etcdctl",
            Self::Cron => "cron",
            Self::Restarts => "restarts",
        }
    }

    /// Whether its cluster has the gate.
    pub(crate) fn is_gated(self) -> bool {
        matches!(self, Self::InPlace | Self::Restarts)
    }

    /// Defragments all members, and waits until the cluster is as before.
    pub(crate) async fn defragment(self, etcd: &EtcdCluster, round: usize) -> Result<()> {
        match self {
            Self::InPlace => in_place(etcd, round).await?,
            Self::Etcdctl => etcdctl(etcd, &["--cluster"], None).await?,
            Self::Cron => {
                let endpoints = etcd.endpoints().await?.into_values();
                let runs = endpoints.map(|endpoint| etcdctl(etcd, &[], Some(endpoint)));
                try_join_all(runs).await?;
            }
            Self::Restarts => restarts(etcd, round).await?,
        }
        etcd.quorate(RUN).await.map(drop)
    }
}

/// Runs `etcdctl defrag` for one endpoint, or knowing all of them.
async fn etcdctl(etcd: &EtcdCluster, options: &[&str], endpoint: Option<String>) -> Result<()> {
    let endpoints = if let Some(endpoint) = endpoint {
        endpoint
    } else {
        let all: Vec<_> = etcd.endpoints().await?.into_values().collect();
        all.join(",")
    };
    let binaries = Cache::from_env()?.binaries(versions::default_etcd()?);
    let mut command = Command::new(binaries.join("etcdctl"));
    command
        .args(["defrag", "--command-timeout=120s"])
        .args(options);
    command.env("ETCDCTL_ENDPOINTS", endpoints);
    let output = command.stdin(Stdio::null()).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "etcdctl defrag: {said}");
    Ok(())
}

/// Asks for a run by the annotation, and waits until each member had one.
async fn in_place(etcd: &EtcdCluster, round: usize) -> Result<()> {
    let budgets: Api<QuorumDisruptionBudget> =
        Api::namespaced(etcd.client().clone(), etcd.namespace());
    let request = format!("round-{round}");
    let patch = json!({
        "metadata": {"annotations": {"quorumgate.io/defragment": request}},
        "spec": {"defragmentation": {"mode": "Report"}},
    });
    let (name, parameters) = (etcd.name(), PatchParams::default());
    budgets
        .patch(name, &parameters, &Patch::Merge(patch))
        .await?;
    let status = eventually(RUN, "every member was defragmented", async || {
        let status = budgets.get(name).await?.status.context("no status")?;
        let served = status
            .defragmentations
            .iter()
            .filter(|run| run.request.as_ref() == Some(&request) && run.completion_time.is_some());
        let served = served.count();
        ensure!(
            served == etcd.pod_names().len() && status.grants.is_empty(),
            "{served} were, and {} permissions are open: {:?}",
            status.grants.len(),
            status.conditions
        );
        Ok(status)
    })
    .await?;
    let mut runs = status.defragmentations.iter();
    ensure!(runs.all(|run| run.error.is_none()), "{status:?}");
    Ok(())
}

/// Changes the template so that members defragment when they start, and waits until all did.
async fn restarts(etcd: &EtcdCluster, round: usize) -> Result<()> {
    let watch = Watch::start(etcd);
    // Other clusters are in the same namespace.
    let members = etcd.pod_names();
    let all = |pods: &Pods| members.iter().all(|pod| pods.contains_key(pod));
    let before = watch.until("all pods exist", RUN, all).await?;
    let threshold = json!({
        "name": "ETCD_BOOTSTRAP_DEFRAG_THRESHOLD_MEGABYTES", "value": format!("{}", 100 + round),
    });
    let container = json!({"name": "etcd", "env": [threshold]});
    let template = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let (sets, parameters) = (etcd.stateful_set_api(), PatchParams::default());
    sets.patch(etcd.name(), &parameters, &Patch::Strategic(template))
        .await?;
    watch
        .until("all are updated and Ready", RUN, |pods| {
            members.iter().all(|name| {
                let old = before.get(name).map(|pod| &pod.revision);
                pods.get(name)
                    .is_some_and(|pod| Some(&pod.revision) != old && pod.ready && !pod.terminating)
            })
        })
        .await?;
    Ok(())
}
