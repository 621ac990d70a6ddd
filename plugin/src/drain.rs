//! `kubectl quorum drain`: drains nodes in the order that works, or prints it.

mod plan;

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use kube::core::{Selector, SelectorExt as _};
use quorumgate_api::Enforcement;
use tokio::process::Command;

use crate::End;
use crate::ask::{Answer, By, ask};
use crate::change::confirm;
use crate::cli::{self, DryRun};
use crate::cluster::{Cluster, Member};
use crate::connect::{Kubernetes, failed};
use crate::show::{Paint, complain, print};
use crate::status::everywhere;
use plan::{Ground, Met, Plan};

pub(crate) async fn run(of: &Kubernetes, options: &cli::Drain, paint: Paint) -> Result<End> {
    let plan = look(of, options).await?;
    print(&plan.picture(paint))?;
    let more = flags(options);
    if options.dry_run != DryRun::None {
        print(&plan.advice(&more))?;
        if plan.passes() {
            print("\nThe same command without --dry-run does so.\n")?;
            return Ok(End::Well);
        }
        return Ok(End::No);
    }
    if plan.never_ends() {
        print(&plan.advice(&more))?;
        complain("Nothing was drained: this drain would not end.");
        return Ok(End::No);
    }
    let nodes = plan.order().collect::<Vec<_>>().join(", ");
    let what = format!("\nThese nodes are cordoned and drained, one after the other: {nodes}");
    confirm(&what, &options.yes)?;
    for node in plan.order() {
        drain(of, node, &more, options.timeout).await?;
    }
    Ok(End::Well)
}

/// The flags that `kubectl drain` gets besides.
fn flags(options: &cli::Drain) -> Vec<String> {
    let flags = [
        options
            .delete_emptydir_data
            .then(|| "--delete-emptydir-data".to_owned()),
        options.force.then(|| "--force".to_owned()),
        options
            .grace_period
            .map(|seconds| format!("--grace-period={seconds}")),
    ];
    flags.into_iter().flatten().collect()
}

async fn look(of: &Kubernetes, options: &cli::Drain) -> Result<Plan> {
    let nodes = Api::<Node>::all(of.client.clone());
    let known = nodes.list(&ListParams::default()).await;
    let known = known.map_err(|error| failed("nodes", error))?.items;
    let nodes = &match &options.selector {
        None => options.nodes.clone(),
        Some(selector) => {
            let chosen = nodes.list(&ListParams::default().labels(selector)).await;
            let chosen = chosen.map_err(|error| failed("nodes", error))?;
            if chosen.items.is_empty() {
                bail!("no node has the labels {selector}");
            }
            chosen.iter().map(name).collect()
        }
    };
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
                answer: if options.dry_run == DryRun::Client {
                    expected(cluster, member)
                } else {
                    ask(of, &namespace, &name, By::Eviction).await?
                },
                serves: member.is_some_and(|member| member.serving),
                leads: member.is_some_and(|member| member.leads),
                cluster: of_cluster,
                pod: name,
            });
        }
    }
    Ok(Plan::new(nodes, &met, ground))
}

/// The answer that the gate would give by the budget's status, without a request.
fn expected(cluster: &Cluster, member: Option<&Member>) -> Answer {
    let spared = member.is_none_or(|member| !member.serving);
    if spared
        || cluster
            .disruptions_allowed
            .is_some_and(|allowed| allowed > 0)
    {
        return Answer::Allowed {
            warnings: Vec::new(),
        };
    }
    let message = "the budget allows no disruption now".to_owned();
    if cluster.enforcement == Enforcement::Warn {
        return Answer::Allowed {
            warnings: vec![message],
        };
    }
    Answer::Denied {
        code: 429,
        reason: "NoHeadroom".to_owned(),
        message,
        causes: Vec::new(),
    }
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
pub(crate) fn is_open(node: &Node) -> bool {
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
async fn drain(of: &Kubernetes, node: &str, more: &[String], timeout: Duration) -> Result<()> {
    let timeout = format!("--timeout={}s", timeout.as_secs());
    let args = ["drain", node, "--ignore-daemonsets", &timeout];
    let args: Vec<_> = args
        .into_iter()
        .chain(more.iter().map(String::as_str))
        .collect();
    print(&format!("\n$ kubectl {}\n", args.join(" ")))?;
    let done = Command::new("kubectl")
        .args(&of.kubectl)
        .args(args)
        .stdin(Stdio::null())
        .status()
        .await
        .context("cannot run kubectl: put it into your PATH")?;
    if !done.success() {
        bail!(
            "the drain of {node} failed; the node stays cordoned, and the nodes after it are unchanged"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::tests::degraded_budget;
    use crate::connect::tests::{api_server, list};

    fn options(flags: &[&str]) -> cli::Drain {
        let line = ["q", "drain"].iter().chain(flags);
        match cli::Cli::try_parse_from(line).unwrap().command {
            cli::Command::Drain(options) => options,
            other => panic!("{other:?}"),
        }
    }

    fn objects() -> Vec<(&'static str, Value)> {
        let node = json!({"metadata": {"name": "a"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let pod = json!({"metadata": {"name": "etcd-0", "namespace": "db"},
            "spec": {"nodeName": "a", "containers": []}});
        vec![
            ("/api/v1/nodes", list("Node", &[node])),
            ("/api/v1/pods", list("Pod", &[pod])),
            (
                "/apis/quorumgate.io/v1alpha1/quorumdisruptionbudgets",
                list("QuorumDisruptionBudget", &[degraded_budget()]),
            ),
        ]
    }

    #[tokio::test]
    async fn a_dry_run_of_the_client_sends_no_eviction() {
        let (of, asked) = api_server(&objects());
        let end = run(&of, &options(&["a", "--dry-run=client"]), Paint::Never).await;
        assert_eq!(end.unwrap(), End::No, "the budget allows none");
        let asked = asked.lock().unwrap();
        assert!(
            asked.iter().all(|line| line.starts_with("GET ")),
            "{asked:?}"
        );
    }

    #[tokio::test]
    async fn a_dry_run_of_the_server_asks_and_a_drain_is_confirmed_first() {
        let mut objects = objects();
        objects.push((
            "/api/v1/namespaces/db/pods/etcd-0/eviction",
            json!({"kind": "Status",
            "apiVersion": "v1", "status": "Success", "code": 201}),
        ));
        let (of, asked) = api_server(&objects);
        let end = run(
            &of,
            &options(&["-l", "x=y", "--dry-run=server"]),
            Paint::Never,
        )
        .await;
        assert_eq!(end.unwrap(), End::Well);
        let posts = |line: &&String| line.starts_with("POST ");
        {
            let asked = asked.lock().unwrap();
            assert!(
                asked
                    .iter()
                    .any(|line| line.contains("labelSelector=x%3Dy"))
            );
            let evictions: Vec<_> = asked.iter().filter(posts).collect();
            assert_eq!(evictions.len(), 1, "{asked:?}");
            assert!(evictions[0].contains("dryRun=All"), "{asked:?}");
        }
        // Tests have no terminal to answer at.
        let error = run(&of, &options(&["a"]), Paint::Never).await.unwrap_err();
        assert!(error.to_string().contains("--yes"), "{error}");
    }

    #[test]
    fn kubectl_drain_gets_the_flags_that_it_knows() {
        let given = options(&["a", "--force", "--grace-period=5", "--delete-emptydir-data"]);
        let expected = ["--delete-emptydir-data", "--force", "--grace-period=5"];
        assert_eq!(flags(&given), expected);
    }
}
