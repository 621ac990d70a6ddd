//! `kubectl quorum drain`: what a drain of nodes would meet, and in which order it works.

mod plan;

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use tokio::process::Command;

use crate::End;
use crate::ask::{By, ask};
use crate::cli;
use crate::connect::{Kubernetes, failed};
use crate::show::{Paint, print};
use crate::status::everywhere;
use plan::{Met, Plan};

pub(crate) async fn run(of: &Kubernetes, options: &cli::Drain, paint: Paint) -> Result<End> {
    let plan = look(of, &options.nodes).await?;
    print(&plan.picture(paint))?;
    if options.dry_run {
        print(&plan.advice())?;
        return Ok(if plan.passes() { End::Well } else { End::No });
    }
    for node in plan.order() {
        drain(of, node, options.timeout).await?;
    }
    Ok(End::Well)
}

async fn look(of: &Kubernetes, nodes: &[String]) -> Result<Plan> {
    let known = Api::<Node>::all(of.client.clone());
    let pods = Api::<Pod>::all(of.client.clone());
    let clusters = everywhere(of).await?;
    let mut met = Vec::new();
    for node in nodes {
        let found = known.get_opt(node).await;
        if found.map_err(|error| failed("nodes", error))?.is_none() {
            bail!("there is no node {node}");
        }
        let on_it = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let listed = pods.list(&on_it).await;
        for pod in listed.map_err(|error| failed("the pods of all namespaces", error))? {
            let (namespace, name) = (
                pod.metadata.namespace.unwrap_or_default(),
                pod.metadata.name.unwrap_or_default(),
            );
            let of_pod = clusters.iter().find(|c| c.has_pod(&namespace, &name));
            let Some(cluster) = of_pod else {
                continue;
            };
            let member = cluster
                .members
                .iter()
                .find(|m| m.pod.as_deref() == Some(&name));
            met.push(Met {
                node: node.clone(),
                answer: ask(of, &namespace, &name, By::Eviction).await?,
                serves: member.is_some_and(|member| member.serving),
                leads: member.is_some_and(|member| member.leads),
                cluster: format!("{namespace}/{}", cluster.name),
                pod: name,
            });
        }
    }
    Ok(Plan::new(nodes, &met))
}

/// Drains a node by `kubectl drain`, which asks again every 5 s where it has to wait.
async fn drain(of: &Kubernetes, node: &str, timeout: Duration) -> Result<()> {
    print(&format!("\n$ kubectl drain {node}\n"))?;
    let done = Command::new("kubectl")
        .args(&of.kubectl)
        .args([
            "drain",
            node,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
        ])
        .arg(format!("--timeout={}s", timeout.as_secs()))
        .stdin(Stdio::null())
        .status()
        .await
        .context("kubectl could not be run: is it in PATH?")?;
    if !done.success() {
        bail!(
            "the drain of {node} did not end well; the node stays cordoned, and the nodes after it were not touched"
        );
    }
    Ok(())
}
