//! `kubectl quorum replace`: asks the gate to replace a member.

use anyhow::{Context as _, Result, bail};
use quorumgate_api::names::REPLACE;
use quorumgate_api::{QuorumDisruptionBudget, ReplaceMode};
use serde_json::json;

use crate::End;
use crate::change::{annotate, confirm};
use crate::cli;
use crate::cluster::Cluster;
use crate::connect::{Kubernetes, budget};
use crate::show::{Paint, print};
use crate::status::here;

pub(crate) async fn run(of: &Kubernetes, options: &cli::Replace) -> Result<End> {
    let pod = options.member.as_str();
    let clusters = here(of).await?;
    let found = clusters
        .iter()
        .find(|cluster| cluster.has_pod(&of.namespace, pod));
    let Some(cluster) = found else {
        bail!(
            "no guarded cluster in the namespace {} has the member {pod}: see `kubectl quorum status`",
            of.namespace
        );
    };
    let budget = budget(of, &cluster.name).await?;
    if budget.spec.replace() == ReplaceMode::Off {
        bail!(
            "spec.dataProtection.replace of the budget {} is Off, which forbids replacements",
            cluster.name
        );
    }
    let member = cluster
        .members
        .iter()
        .find(|m| m.pod.as_deref() == Some(pod));
    let id = member.and_then(|member| member.id.clone()).with_context(|| {
        format!("the gate does not know the member id of {pod}, so etcd may not list it: see docs/data.md")
    })?;
    confirm(&warning(cluster, pod, &id), &options.yes)?;
    annotate::<QuorumDisruptionBudget>(of, &cluster.name, &json!({ REPLACE: id })).await?;
    print(&format!(
        "Asked the gate to replace {pod}. It begins when all other members serve: kubectl quorum status {} -n {} -w\n",
        cluster.name, cluster.namespace
    ))?;
    Ok(End::Well)
}

fn warning(cluster: &Cluster, pod: &str, id: &str) -> String {
    format!(
        "{}\nThe member {id} is removed from etcd, and the volume of {pod} is deleted with its data. The pod joins again as a new member with an empty volume, and gets its data from the others.",
        cluster.member_table(Paint::Never)
    )
}
