//! `kubectl quorum override`: allows deletes of pods against the gate's verdict.

use anyhow::{Result, anyhow, bail};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use quorumgate_api::QuorumDisruptionBudget;
use quorumgate_api::names::{OVERRIDE_REASON, OVERRIDE_UNTIL};
use serde_json::json;

use crate::End;
use crate::ask::{By, ask};
use crate::change::{annotate, confirm};
use crate::cli;
use crate::cluster::Cluster;
use crate::connect::{Kubernetes, budget, failed};
use crate::explain::verdict;
use crate::show::{Paint, print};
use crate::status::here;

/// The object that is overridden.
enum Target {
    Pod(String),
    Cluster(Box<QuorumDisruptionBudget>),
}

pub(crate) async fn run(of: &Kubernetes, options: &cli::Override) -> Result<End> {
    let target = target(of, &options.target).await?;
    let until = Timestamp::now() + jiff::SignedDuration::try_from(options.lasts)?;
    let until = format!("{until:.0}");
    let what = match &target {
        Target::Pod(pod) => {
            let answer = ask(of, &of.namespace, pod, By::Delete).await?;
            let clusters = here(of).await?;
            let cluster = clusters.iter().find(|c| c.has_pod(&of.namespace, pod));
            let told = verdict(&format!("{}/{pod}", of.namespace), &answer, cluster);
            format!(
                "{told}Until {until} every delete and eviction of {pod} is allowed, whatever the state of its cluster. If its member is needed, writes fail until it is back."
            )
        }
        Target::Cluster(budget) => {
            let cluster = Cluster::from_budget(budget);
            format!(
                "{}\nUntil {until} every delete and eviction of every pod of {} is allowed, also of all at once. Without a majority the cluster can be neither read nor written.",
                cluster.details(Paint::Never),
                cluster.name
            )
        }
    };
    confirm(&what, &options.yes)?;
    let annotations = json!({
        OVERRIDE_UNTIL: until,
        OVERRIDE_REASON: options.reason,
    });
    let name = match &target {
        Target::Pod(pod) => {
            annotate::<Pod>(of, pod, &annotations).await?;
            format!("pod/{pod}")
        }
        Target::Cluster(budget) => {
            let name = budget.cluster().name;
            annotate::<QuorumDisruptionBudget>(of, &name, &annotations).await?;
            format!("qdb/{name}")
        }
    };
    print(&format!(
        "{name} is overridden until {until}. To end it earlier: kubectl -n {} annotate {name} {OVERRIDE_UNTIL}- {OVERRIDE_REASON}-\n",
        of.namespace
    ))?;
    Ok(End::Well)
}

async fn target(of: &Kubernetes, given: &str) -> Result<Target> {
    let cluster = |budget| Target::Cluster(Box::new(budget));
    if let Some(name) = given.strip_prefix("pod/") {
        return Ok(Target::Pod(name.to_owned()));
    }
    if let Some(name) = given.strip_prefix("qdb/") {
        return Ok(cluster(budget(of, name).await?));
    }
    if given.contains('/') {
        bail!("give pod/NAME, or qdb/NAME for every pod of a cluster");
    }
    let pods = Api::<Pod>::namespaced(of.client.clone(), &of.namespace);
    let pod = pods.get_opt(given).await;
    if pod.map_err(|error| failed("the pod", error))?.is_some() {
        return Ok(Target::Pod(given.to_owned()));
    }
    let found = budget(of, given).await;
    found.map(cluster).map_err(|error| {
        anyhow!(
            "there is no pod {given} in the namespace {}, and {error:#}",
            of.namespace
        )
    })
}
