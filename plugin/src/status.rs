//! `kubectl quorum status`.

use std::pin::pin;

use anyhow::{Result, bail};
use futures::StreamExt as _;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt as _, watcher};
use quorumgate::api::QuorumDisruptionBudget;

use crate::End;
use crate::cli;
use crate::cluster::{Cluster, overview};
use crate::connect::{BUDGETS, Kubernetes, failed};
use crate::show::{Paint, clear, complain, print, print_as};

pub(crate) async fn run(of: &Kubernetes, options: &cli::Status, paint: Paint) -> Result<End> {
    let api = api(of, options.all_namespaces);
    if !options.watch {
        let clusters = clusters(&api, options).await?;
        match options.output {
            Some(form) => print_as(form, &clusters)?,
            None => print(&picture(of, &clusters, options, paint))?,
        }
        return Ok(End::Well);
    }
    // Whatever changes, all is read again: that is cheap, and never shows half a change.
    let changes = watcher(api.clone(), watcher::Config::default()).default_backoff();
    let mut changes = pin!(changes);
    let mut shown = picture(of, &clusters(&api, options).await?, options, paint);
    print(&shown)?;
    while let Some(event) = changes.next().await {
        match event {
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => continue,
            Ok(_) => {}
            // It is asked again, less and less often.
            Err(error) => {
                complain(&format!("the watch broke off and is begun again: {error}"));
                continue;
            }
        }
        let clusters = clusters(&api, options).await?;
        let now = picture(of, &clusters, options, paint);
        if now != shown {
            clear()?;
            print(&now)?;
            shown = now;
        }
    }
    Ok(End::Well)
}

/// The budgets of the user's namespace, or of all.
fn api(of: &Kubernetes, all: bool) -> Api<QuorumDisruptionBudget> {
    if all {
        Api::all(of.client.clone())
    } else {
        Api::namespaced(of.client.clone(), &of.namespace)
    }
}

/// Every guarded cluster of the whole of Kubernetes that the user may see.
pub(crate) async fn everywhere(of: &Kubernetes) -> Result<Vec<Cluster>> {
    read(&api(of, true)).await
}

async fn read(api: &Api<QuorumDisruptionBudget>) -> Result<Vec<Cluster>> {
    let all = api.list(&ListParams::default()).await;
    let all = all.map_err(|error| failed(BUDGETS, error))?;
    Ok(all.iter().map(Cluster::of).collect())
}

async fn clusters(
    api: &Api<QuorumDisruptionBudget>,
    options: &cli::Status,
) -> Result<Vec<Cluster>> {
    let mut clusters = read(api).await?;
    for wanted in &options.clusters {
        if !clusters.iter().any(|cluster| cluster.name == *wanted) {
            bail!("no cluster {wanted} is guarded there: see `kubectl quorum status -A`");
        }
    }
    if !options.clusters.is_empty() {
        clusters.retain(|cluster| options.clusters.contains(&cluster.name));
    }
    Ok(clusters)
}

fn picture(of: &Kubernetes, clusters: &[Cluster], options: &cli::Status, paint: Paint) -> String {
    if clusters.is_empty() {
        return if options.all_namespaces {
            "No cluster is guarded. To enrol one: kubectl label statefulset NAME quorumgate.io/enroll=true\n".to_owned()
        } else {
            let namespace = &of.namespace;
            format!("No cluster is guarded in the namespace {namespace}. All namespaces: -A\n")
        };
    }
    let mut told = overview(clusters, options.all_namespaces, paint);
    for cluster in clusters {
        if !cluster.is_well() || !options.clusters.is_empty() {
            told += &format!("\n{}/{}\n", cluster.namespace, cluster.name);
            told += &cluster.details(paint);
        }
    }
    told
}

/// The guarded clusters of the user's namespace.
pub(crate) async fn here(of: &Kubernetes) -> Result<Vec<Cluster>> {
    read(&api(of, false)).await
}
