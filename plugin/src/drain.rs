//! `kubectl quorum drain`: what a drain of nodes would meet, and in which order it works.

mod plan;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt as _};
use tokio::process::Command;

use crate::End;
use crate::ask::{By, ask};
use crate::cli;
use crate::cluster::Cluster;
use crate::connect::{Kubernetes, failed};
use crate::show::{Paint, print};
use crate::status::everywhere;
use plan::{Ground, Met, Plan};

pub(crate) async fn run(of: &Kubernetes, options: &cli::Drain, paint: Paint) -> Result<End> {
    let plan = look(of, &options.nodes).await?;
    print(&plan.picture(paint))?;
    let more: &[&str] = if options.delete_emptydir_data {
        &["--delete-emptydir-data"]
    } else {
        &[]
    };
    if options.dry_run || plan.runs_out_of_nodes() {
        print(&plan.advice(more))?;
        let well = options.dry_run && plan.passes();
        return Ok(if well { End::Well } else { End::No });
    }
    for node in plan.order() {
        drain(of, node, more, options.timeout).await?;
    }
    Ok(End::Well)
}

async fn look(of: &Kubernetes, nodes: &[String]) -> Result<Plan> {
    let known = Api::<Node>::all(of.client.clone());
    let known = known.list(&ListParams::default()).await;
    let known = known.map_err(|error| failed("nodes", error))?.items;
    let pods = Api::<Pod>::all(of.client.clone());
    let clusters = everywhere(of).await?;
    let mut met = Vec::new();
    let mut ground = Ground {
        open: known.iter().filter(|n| is_open(n)).map(name).collect(),
        ..Ground::default()
    };
    for node in nodes {
        if !known.iter().any(|known| name(known) == *node) {
            bail!("there is no node {node}");
        }
        let on_it = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let listed = pods.list(&on_it).await;
        for pod in listed.map_err(|error| failed("the pods of all namespaces", error))? {
            let stays_apart = stays_apart(&pod);
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
            let of_cluster = format!("{namespace}/{}", cluster.name);
            if stays_apart && !ground.homes.contains_key(&of_cluster) {
                let homes = homes(of, cluster).await?;
                ground.homes.insert(of_cluster.clone(), homes);
            }
            met.push(Met {
                node: node.clone(),
                answer: ask(of, &namespace, &name, By::Eviction).await?,
                serves: member.is_some_and(|member| member.serving),
                leads: member.is_some_and(|member| member.leads),
                cluster: of_cluster,
                pod: name,
            });
        }
    }
    Ok(Plan::new(nodes, &met, ground))
}

/// The node of each member's pod.
async fn homes(of: &Kubernetes, cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let namespace = cluster.namespace.as_str();
    let pods = Api::<Pod>::namespaced(of.client.clone(), namespace);
    let pods = pods.list(&ListParams::default()).await;
    let pods = pods.map_err(|error| failed("the pods of the namespace", error))?;
    let members = pods.into_iter().filter_map(|pod| {
        let name = pod.metadata.name?;
        let is_member = cluster.has_pod(namespace, &name);
        Some((name, pod.spec?.node_name?)).filter(|_| is_member)
    });
    Ok(members.collect())
}

fn name(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

/// Whether new pods may go to the node.
fn is_open(node: &Node) -> bool {
    let is_cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable);
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    is_cordoned != Some(true) && conditions.any(|is| is.type_ == "Ready" && is.status == "True")
}

/// Whether the pod asks for a node without any other pod like it.
fn stays_apart(pod: &Pod) -> bool {
    let none = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let apart = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let terms = apart.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    terms.into_iter().flatten().any(|term| {
        let selector = term.label_selector.clone();
        let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
        term.topology_key == "kubernetes.io/hostname"
            && selector.is_some_and(|selector| selector.matches(labels))
    })
}

/// Drains a node by `kubectl drain`, which asks again every 5 s where it has to wait.
async fn drain(of: &Kubernetes, node: &str, more: &[&str], timeout: Duration) -> Result<()> {
    let timeout = format!("--timeout={}s", timeout.as_secs());
    let args = ["drain", node, "--ignore-daemonsets", &timeout];
    let args = [&args, more].concat();
    print(&format!("\n$ kubectl {}\n", args.join(" ")))?;
    let done = Command::new("kubectl")
        .args(&of.kubectl)
        .args(args)
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
