//! The pods of a cluster, read from the API server.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::{EtcdCluster, objects};

impl EtcdCluster {
    /// The API of pods in the cluster's namespace.
    pub fn pod_api(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// All pods of the cluster by name, read uncached.
    pub async fn pods(&self) -> Result<Vec<Pod>> {
        let selection = ListParams::default().labels(&objects::cluster_selector(&self.spec));
        let mut pods = self.pod_api().list(&selection).await?.items;
        pods.sort_by_key(kube::ResourceExt::name_any);
        Ok(pods)
    }

    /// A pod, read uncached.
    pub async fn pod(&self, name: &str) -> Result<Pod> {
        self.pod_api()
            .get(name)
            .await
            .with_context(|| format!("cannot read pod {name}"))
    }

    /// The names of the pods that `spec.replicas` asked for when the cluster was applied.
    pub fn pod_names(&self) -> Vec<String> {
        (0..self.spec.replicas)
            .map(|ordinal| self.spec.pod(ordinal))
            .collect()
    }

    /// The address of every pod that has one, by pod name.
    pub async fn pod_ips(&self) -> Result<BTreeMap<String, IpAddr>> {
        let pods = self.pods().await?;
        Ok(pods
            .iter()
            .filter_map(|pod| Some((pod.name_any(), address(pod)?)))
            .collect())
    }

    /// The address of one pod.
    pub async fn pod_ip(&self, name: &str) -> Result<IpAddr> {
        address(&self.pod(name).await?).with_context(|| format!("pod {name} has no address"))
    }

    /// The UID of one pod, which differs for each incarnation.
    pub async fn pod_uid(&self, name: &str) -> Result<String> {
        self.pod(name)
            .await?
            .uid()
            .with_context(|| format!("pod {name} has no UID"))
    }

    /// Whether a pod's Ready condition is true.
    pub async fn is_ready(&self, name: &str) -> Result<bool> {
        let pod = self.pod(name).await?;
        let conditions = pod
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        Ok(conditions
            .iter()
            .any(|c| c.type_ == "Ready" && c.status == "True"))
    }
}

fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}
