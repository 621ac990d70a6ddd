//! Guarded members that exist on paper: their pods are objects, and answer on the wire as etcd
//! does.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use quorumgate_testbed::Sandbox;
use quorumgate_testbed::control_plane::ControlPlane;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Tls};
use serde_json::Value;

use crate::paper_etcd::PaperEtcd;
use crate::paper_member::{cluster_name, namespace_of};
use crate::population::Population;
use crate::settled::settled;

const SOON: Duration = Duration::from_secs(120);

/// A follower of each of so many clusters, whose ledgers are trusted. Scheduler and controllers are
/// stopped for good, since they would act on the pods.
pub(crate) async fn followers(
    plane: &ControlPlane,
    sandbox: &Sandbox,
    clusters: u32,
) -> Result<Vec<Value>> {
    let model = EtcdCluster::builder("model").tls(Tls::None);
    let model = model.apply(sandbox).await?;
    model.quorate(SOON).await?;
    let port = PaperEtcd::listen().await?.port;
    let mut population = Population::prepare(plane, &model, Some(port)).await?;
    population.grow_to(clusters).await?;
    settled(model.client(), SOON).await?;
    let mut followers = Vec::new();
    for cluster in 0..clusters {
        let pods: Api<Pod> = Api::namespaced(model.client().clone(), &namespace_of(cluster));
        let follower = pods.get(&format!("{}-1", cluster_name(cluster))).await?;
        followers.push(serde_json::to_value(follower)?);
    }
    Ok(followers)
}
