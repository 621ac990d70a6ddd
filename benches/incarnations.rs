//! The pods of a cluster, followed by a watch.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use kube::ResourceExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::task::JoinHandle;

/// The facts about a pod.
#[derive(Clone, Debug)]
pub(crate) struct Incarnation {
    pub(crate) uid: String,
    pub(crate) address: Option<IpAddr>,
    pub(crate) revision: String,
    pub(crate) ready: bool,
    pub(crate) terminating: bool,
}

/// The pods by name.
pub(crate) type Pods = BTreeMap<String, Incarnation>;

/// A watch of the pods, which ends when it is dropped.
pub(crate) struct Watch {
    pods: Receiver<Pods>,
    task: JoinHandle<()>,
}

impl Watch {
    pub(crate) fn start(etcd: &EtcdCluster) -> Self {
        let (tell, pods) = watch::channel(Pods::new());
        let events = watcher(etcd.pod_api(), Config::default())
            .into_stream()
            .boxed();
        let task = tokio::spawn(async move {
            let _ = events
                .try_for_each(async |event| {
                    note(&tell, event);
                    Ok(())
                })
                .await;
        });
        Self { pods, task }
    }

    /// Another receiver of the pods.
    pub(crate) fn pods(&self) -> Receiver<Pods> {
        self.pods.clone()
    }

    /// Waits until the pods satisfy a condition.
    pub(crate) async fn until(
        &self,
        what: &str,
        within: Duration,
        mut so: impl FnMut(&Pods) -> bool,
    ) -> Result<Pods> {
        let mut pods = self.pods();
        let waited = tokio::time::timeout(within, pods.wait_for(|pods| so(pods))).await;
        let last = || format!("waited in vain until {what}: {:?}", *self.pods.borrow());
        let pods = waited.with_context(last)?.context("the watch has ended")?;
        Ok(pods.clone())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn note(tell: &Sender<Pods>, event: Event<Pod>) {
    match event {
        Event::Apply(pod) | Event::InitApply(pod) => {
            tell.send_modify(|pods| drop(pods.insert(pod.name_any(), incarnation(&pod))));
        }
        Event::Delete(pod) => {
            let is_it = |now: &Incarnation| Some(&now.uid) == pod.metadata.uid.as_ref();
            tell.send_modify(|pods| {
                if pods.get(&pod.name_any()).is_some_and(is_it) {
                    pods.remove(&pod.name_any());
                }
            });
        }
        Event::Init => tell.send_modify(Pods::clear),
        Event::InitDone => {}
    }
}

fn incarnation(pod: &Pod) -> Incarnation {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let is_ready = |c: &PodCondition| c.type_ == "Ready" && c.status == "True";
    let revision = pod.labels().get("controller-revision-hash");
    Incarnation {
        uid: pod.uid().unwrap_or_default(),
        address: status.and_then(|status| status.pod_ip.as_ref()?.parse().ok()),
        revision: revision.cloned().unwrap_or_default(),
        ready: conditions.unwrap_or_default().iter().any(is_ready),
        terminating: pod.metadata.deletion_timestamp.is_some(),
    }
}
