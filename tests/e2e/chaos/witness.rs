//! Somebody who asks every member several times a second whether it takes part in a quorum, and has nothing to do with the gate.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use quorumgate_testbed::etcd_cluster::{Connections, EtcdCluster};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The pause between the beginnings of two samples.
const PERIOD: Duration = Duration::from_millis(150);
/// How long a member may take to prove that it serves.
const PATIENCE: Duration = Duration::from_millis(900);

/// Asks until it is stopped.
#[must_use = "a witness is there to be heard"]
pub(super) struct Witness {
    stop: watch::Sender<bool>,
    samples: JoinHandle<Result<Vec<Sample>>>,
}

/// Who was what at one moment.
pub(super) struct Sample {
    pub(super) begun: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) pods: BTreeMap<String, Seen>,
}

/// A member as it was seen.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) terminating: bool,
    /// It answered a linearizable read.
    pub(super) serves: bool,
}

impl Sample {
    pub(super) fn serves(&self, member: &str) -> bool {
        self.pods.get(member).is_some_and(|seen| seen.serves)
    }

    /// How many serve beside this one, and are not on their way out.
    pub(super) fn others(&self, member: &str) -> usize {
        let others = self.pods.iter().filter(|(name, _)| *name != member);
        others
            .filter(|(_, seen)| seen.serves && !seen.terminating)
            .count()
    }
}

impl Witness {
    pub(super) async fn start(etcd: &EtcdCluster) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let connections = Arc::new(Connections::new(etcd.dialer().await?, PATIENCE));
        let samples = tokio::spawn(watch_over(etcd.clone(), connections, stopped));
        Ok(Self { stop, samples })
    }

    /// Everything that was seen, in the order of its beginnings.
    pub(super) async fn stop(self) -> Result<Vec<Sample>> {
        self.stop.send(true)?;
        let mut samples = self.samples.await.context("the witness crashed")??;
        samples.sort_by_key(|sample| sample.begun);
        Ok(samples)
    }
}

async fn watch_over(
    etcd: EtcdCluster,
    connections: Arc<Connections>,
    stopped: watch::Receiver<bool>,
) -> Result<Vec<Sample>> {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut samples = JoinSet::new();
    while !*stopped.borrow() {
        ticks.tick().await;
        let begun = Timestamp::now();
        // Without the API server there is nobody to ask about.
        let Ok(pods) = etcd.pods().await else {
            continue;
        };
        let connections = Arc::clone(&connections);
        // A member that is away takes its time to be so; the next sample does not wait.
        samples.spawn(async move {
            let seen = join_all(pods.iter().map(|pod| see(&connections, pod))).await;
            Sample {
                begun,
                ended: Timestamp::now(),
                pods: seen.into_iter().collect(),
            }
        });
    }
    Ok(samples.join_all().await)
}

async fn see(connections: &Connections, pod: &Pod) -> (String, Seen) {
    let status = pod.status.as_ref();
    let address = status.and_then(|status| status.pod_ip.as_ref()?.parse().ok());
    let serves = match address {
        Some(address) => timeout(PATIENCE, reads(connections, address)).await,
        None => Ok(false),
    };
    let seen = Seen {
        uid: pod.uid().unwrap_or_default(),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        serves: serves.unwrap_or(false),
    };
    (pod.name_any(), seen)
}

async fn reads(connections: &Connections, address: IpAddr) -> bool {
    let Ok(mut member) = connections.to(address).await else {
        return false;
    };
    member.get("health", None).await.is_ok()
}
