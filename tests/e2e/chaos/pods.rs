//! The watch of all clusters' pods, shared by all readers. The pods stay known while the API server
//! is away.

use std::net::IpAddr;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::eventually::AtOnce;
use tokio::task::JoinHandle;

/// A watch that runs until it is dropped.
pub(super) struct Watch {
    store: Store<Pod>,
    task: JoinHandle<()>,
}

/// The pods of one cluster.
#[derive(Clone)]
pub(super) struct Pods {
    store: Store<Pod>,
    prefix: String,
}

impl Watch {
    pub(super) async fn start(api: Api<Pod>) -> Result<Self> {
        let (store, writer) = reflector::store();
        let events = watcher(api, watcher::Config::default()).backoff(AtOnce);
        let events = reflector::reflector(writer, events);
        let task = tokio::spawn(events.for_each(async |_| ()));
        store
            .wait_until_ready()
            .await
            .context("the watch of pods has ended")?;
        Ok(Self { store, task })
    }

    pub(super) fn pods(&self, etcd: &EtcdCluster) -> Pods {
        Pods {
            store: self.store.clone(),
            prefix: format!("{}-", etcd.name()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Pods {
    pub(super) fn now(&self) -> Vec<std::sync::Arc<Pod>> {
        let pods = self.store.state().into_iter();
        pods.filter(|pod| pod.name_any().starts_with(&self.prefix))
            .collect()
    }

    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.now().iter().filter_map(|pod| address(pod)).collect()
    }
}

pub(super) fn address(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}
