//! How soon the next step of a rollout is seen after the moment it may begin.
//!
//! It may as soon as the member that went before serves again: answers a linearizable read, as somebody finds who asks it every 10 ms and is
//! neither the gate nor told by Kubernetes. It has begun when a watch shows its permission on record, and taken its pod when one shows that
//! terminating: by then a leader has handed over, and the delete has passed its webhook.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{Stream, StreamExt as _};
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Config, watcher};
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate_testbed::etcd_cluster::{Connections, EtcdCluster};
use tokio::sync::watch::Receiver;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::incarnations::{Pods, Watch};

/// The pause between two questions.
const PAUSE: Duration = Duration::from_millis(10);
/// A member that does not answer in this time is asked anew, over the same connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// Somebody who watches steps and asks members.
#[must_use = "it is asked how it went"]
pub(crate) struct Promptness {
    stop: CancellationToken,
    story: JoinHandle<Story>,
}

/// How long after the moment at which it might begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    /// A step had its permission.
    pub(crate) begun: Duration,
    /// Its pod went.
    pub(crate) gone: Duration,
}

/// What was seen.
#[derive(Default)]
struct Story {
    /// Which pods began to terminate, and when.
    gone: Vec<(String, Instant)>,
    /// When pods had permission to go.
    granted: HashMap<String, Instant>,
    /// Since when new incarnations serve, by pod.
    served: HashMap<String, Instant>,
}

impl Promptness {
    /// Begins to watch: the pods that are there now have yet to go.
    pub(crate) async fn watch(etcd: &EtcdCluster, watch: &Watch) -> Result<Self> {
        let stop = CancellationToken::new();
        let connections = Arc::new(Connections::new(etcd.dialer().await?, PATIENCE));
        let budgets = Api::namespaced(etcd.client().clone(), etcd.namespace());
        let budgets = watcher(budgets, Config::default()).applied_objects();
        let story = follow(connections, watch.pods(), budgets.boxed(), stop.clone());
        let story = tokio::spawn(story);
        Ok(Self { stop, story })
    }

    /// Stops. The delay of every step but the first; nothing where it was seen before the moment at which it might begin.
    pub(crate) async fn delays(self) -> Result<Vec<Delay>> {
        self.stop.cancel();
        let story = self.story.await.context("the watch crashed")?;
        let pairs = story.gone.iter().zip(story.gone.iter().skip(1));
        let delays = pairs.map(|((before, _), (pod, gone))| {
            let served = story.served.get(before);
            let served = *served.context("a pod went before the last one served")?;
            let begun = story.granted.get(pod).context("a pod went ungranted")?;
            Ok(Delay {
                begun: begun.saturating_duration_since(served),
                gone: gone.saturating_duration_since(served),
            })
        });
        delays.collect()
    }
}

async fn follow(
    connections: Arc<Connections>,
    mut pods: Receiver<Pods>,
    mut budgets: impl Stream<Item = watcher::Result<QuorumDisruptionBudget>> + Unpin,
    stop: CancellationToken,
) -> Story {
    let mut story = Story::default();
    // By UID: whether they were there before, are being asked, or terminate already.
    let mut asked: Vec<String> = pods.borrow().values().map(|pod| pod.uid.clone()).collect();
    let mut leaving: Vec<String> = Vec::new();
    let mut questions = JoinSet::<(String, Instant)>::new();
    loop {
        for (name, pod) in pods.borrow_and_update().iter() {
            if pod.terminating && !leaving.contains(&pod.uid) {
                leaving.push(pod.uid.clone());
                story.gone.push((name.clone(), Instant::now()));
            }
            if let Some(address) = pod.address
                && !asked.contains(&pod.uid)
            {
                asked.push(pod.uid.clone());
                questions.spawn(until_it_serves(
                    Arc::clone(&connections),
                    name.clone(),
                    address,
                ));
            }
        }
        tokio::select! {
            () = stop.cancelled() => return story,
            Some(Ok((name, at))) = questions.join_next() => {
                story.served.insert(name, at);
            }
            Some(budget) = budgets.next() => {
                // One that fails is opened again.
                let status = budget.ok().and_then(|budget| budget.status);
                for grant in status.into_iter().flat_map(|status| status.grants) {
                    story.granted.entry(grant.member).or_insert_with(Instant::now);
                }
            }
            changed = pods.changed() => if changed.is_err() {
                return story;
            },
        }
    }
}

async fn until_it_serves(
    connections: Arc<Connections>,
    name: String,
    address: IpAddr,
) -> (String, Instant) {
    loop {
        let answer = timeout(PATIENCE, async {
            connections.to(address).await?.get("testbed", None).await?;
            anyhow::Ok(())
        });
        if let Ok(Ok(())) = answer.await {
            return (name, Instant::now());
        }
        sleep(PAUSE).await;
    }
}
