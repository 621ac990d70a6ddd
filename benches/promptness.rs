//! The delay of the next step of a rollout, from the moment at which it may begin.
//!
//! A step may begin as soon as the member of the step before serves again, that is, answers a
//! linearizable read. An observer asks the member every 10 ms, without the gate and without
//! Kubernetes. The step has begun when a watch shows its grant. Its pod is taken when a watch shows
//! the pod terminating: by then a leader has handed over, and the delete has passed its webhook.

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
/// The time limit of a question. After it the member is asked again over the same connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// An observer of steps and members.
#[must_use = "it is asked how it went"]
pub(crate) struct Promptness {
    stop: CancellationToken,
    story: JoinHandle<Story>,
}

/// The delay of a step, from the moment at which it might begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    /// The time until the step had its grant.
    pub(crate) begun: Duration,
    /// The time until its pod terminated.
    pub(crate) gone: Duration,
}

/// The observations.
#[derive(Default)]
struct Story {
    /// The pods that began to terminate, with the times.
    gone: Vec<(String, Instant)>,
    /// The times at which pods were permitted to go.
    granted: HashMap<String, Instant>,
    /// The times from which new incarnations serve, by pod.
    served: HashMap<String, Instant>,
}

impl Promptness {
    /// Starts the observation. The pods of this moment have yet to go.
    pub(crate) async fn watch(etcd: &EtcdCluster, watch: &Watch) -> Result<Self> {
        let stop = CancellationToken::new();
        let connections = Arc::new(Connections::new(etcd.dialer().await?, PATIENCE));
        let budgets = Api::namespaced(etcd.client().clone(), etcd.namespace());
        let budgets = watcher(budgets, Config::default()).applied_objects();
        let story = follow(connections, watch.pods(), budgets.boxed(), stop.clone());
        let story = tokio::spawn(story);
        Ok(Self { stop, story })
    }

    /// Stops. Returns the delay of every step but the first. A step that was seen before it might
    /// begin has no delay.
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
    // Both lists hold UIDs: of pods that existed before or are being asked, and of pods that
    // terminate.
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
                // A watch that fails is opened again.
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
