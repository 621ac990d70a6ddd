//! `kubectl quorum scale`: asks the gate for another number of members.

use anyhow::Result;
use quorumgate_api::QuorumDisruptionBudget;
use serde_json::json;

use crate::End;
use crate::change::{change, confirm};
use crate::cli;
use crate::cluster::Cluster;
use crate::connect::{Kubernetes, budget};
use crate::show::{Paint, print};
use crate::status::here;

pub(crate) async fn run(of: &Kubernetes, options: &cli::Scale) -> Result<End> {
    let (name, count) = (options.name.as_str(), options.replicas);
    let before = budget(of, name).await?;
    let clusters = here(of).await?;
    let cluster = clusters.iter().find(|cluster| cluster.name == name);
    let members = cluster.map_or(0, |cluster| cluster.members.len());
    if let Some(cluster) = cluster.filter(|_| usize::from(count) < members) {
        confirm(&warning(cluster, usize::from(count)), &options.yes)?;
    }
    if before.spec.members.count != Some(i32::from(count)) {
        let patch = json!({"spec": {"members": {"count": count}}});
        change::<QuorumDisruptionBudget>(of, name, &patch).await?;
    }
    let namespace = &of.namespace;
    print(&format!(
        "Asked the gate for {count} members of {name}, which has {members}. It adds or removes one at a time: \
         kubectl -n {namespace} wait qdb {name} --for=condition=Scaled --timeout=30m\n"
    ))?;
    Ok(End::Well)
}

fn warning(cluster: &Cluster, count: usize) -> String {
    format!(
        "{}\nMembers leave from the highest ordinal down, until {count} are left: each is removed from etcd, and its pod goes. Its claim goes where the StatefulSet says so (persistentVolumeClaimRetentionPolicy.whenScaled).",
        cluster.member_table(Paint::Never)
    )
}
