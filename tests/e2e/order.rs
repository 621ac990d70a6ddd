//! The order in which pods begin to terminate.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

use crate::world::World;

/// The timeout of a watch in seconds. The API server grants less than 300 s unless more is asked
/// for.
const WATCH_SECONDS: u32 = 290;

/// A watch of the members' pods.
pub(crate) struct Order {
    watch: JoinHandle<()>,
    gone: UnboundedReceiver<String>,
}

impl Order {
    /// Starts a watch.
    pub(crate) async fn watch(world: &World) -> Result<Self> {
        let pods: Api<Pod> = world.pods();
        let listed = pods.list(&ListParams::default()).await?;
        let version = listed.metadata.resource_version;
        let version = version.context("a list without a version")?;
        let members = world.etcd.pod_names();
        let (tell, gone) = unbounded_channel();
        let params = WatchParams::default().timeout(WATCH_SECONDS);
        let mut events = pods.watch(&params, &version).await?.boxed();
        let watch = tokio::spawn(async move {
            let mut told = BTreeSet::new();
            while let Some(Ok(event)) = events.next().await {
                let (WatchEvent::Modified(pod) | WatchEvent::Deleted(pod)) = event else {
                    continue;
                };
                let goes = pod.metadata.deletion_timestamp.is_some();
                let name = pod.name_any();
                if goes && members.contains(&name) && told.insert(pod.uid()) {
                    let _ = tell.send(name);
                }
            }
        });
        Ok(Self { watch, gone })
    }

    /// Stops the watch. Returns the pods that began to terminate, in order.
    pub(crate) fn stop(mut self) -> Vec<String> {
        self.watch.abort();
        self.gone()
    }

    /// Waits for the next pod that begins to terminate.
    pub(crate) async fn next(&mut self) -> Result<String> {
        self.gone.recv().await.context("the watch has ended")
    }

    /// The pods that began to terminate since the last call, in order.
    pub(crate) fn gone(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.gone.try_recv().ok()).collect()
    }
}
