//! An observer, independent of the gate, that asks every member several times a second whether it
//! takes part in a quorum.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use quorumgate_testbed::etcd_cluster::{Connections, Dialer};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::pods::{Pods, address};

/// The pause between the beginnings of two samples.
const PERIOD: Duration = Duration::from_millis(250);
/// The time limit for a member's answer. It is longer than the gate's, because the machine may be
/// busy.
const PATIENCE: Duration = Duration::from_secs(2);

/// An observer that asks until it is stopped.
#[must_use = "a witness is there to be heard"]
pub(super) struct Witness {
    stop: watch::Sender<bool>,
    samples: JoinHandle<Vec<Sample>>,
}

/// The state of every member at one moment.
pub(super) struct Sample {
    pub(super) begun: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) pods: BTreeMap<String, Seen>,
    /// The member list of a member that has just served, or the last known one.
    pub(super) listed: Listed,
}

/// The voters in etcd's member list, by name.
#[derive(Clone, Default)]
pub(super) struct Listed {
    pub(super) voters: BTreeSet<String>,
}

impl Listed {
    pub(super) fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }
}

/// The state of one member in a sample.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) uid: String,
    pub(super) terminating: bool,
    pub(super) node: Option<String>,
    /// The member answered a linearizable read, as a member of this cluster.
    pub(super) serves: bool,
}

impl Sample {
    pub(super) fn serves(&self, member: &str) -> bool {
        self.pods.get(member).is_some_and(|seen| seen.serves)
    }

    /// Whether this member serves and its pod does not terminate.
    pub(super) fn stands(&self, member: &str) -> bool {
        let seen = self.pods.get(member);
        seen.is_some_and(|seen| seen.serves && !seen.terminating)
    }

    /// The number of other members that serve and whose pods do not terminate.
    pub(super) fn others(&self, member: &str) -> usize {
        let others = self.pods.iter().filter(|(name, _)| *name != member);
        others
            .filter(|(_, seen)| seen.serves && !seen.terminating)
            .count()
    }
}

impl Witness {
    /// Starts to ask the members of the cluster with this id.
    pub(super) fn start(dialer: Dialer, pods: Pods, cluster: u64) -> Self {
        let (stop, stopped) = watch::channel(false);
        let connections = Connections::new(dialer, PATIENCE);
        let asked = Arc::new(Asked {
            connections,
            cluster,
        });
        let samples = tokio::spawn(watch_over(pods, asked, stopped));
        Self { stop, samples }
    }

    /// Stops, and returns all samples in the order in which they began.
    pub(super) async fn stop(self) -> Result<Vec<Sample>> {
        self.stop.send(true)?;
        let mut samples = self.samples.await.context("the witness crashed")?;
        samples.sort_by_key(|sample| sample.begun);
        let mut known = Listed::default();
        for sample in &mut samples {
            if sample.listed.voters.is_empty() {
                sample.listed = known.clone();
            } else {
                known = sample.listed.clone();
            }
        }
        Ok(samples)
    }
}

/// The cluster whose members are asked.
struct Asked {
    connections: Connections,
    cluster: u64,
}

async fn watch_over(pods: Pods, asked: Arc<Asked>, stopped: watch::Receiver<bool>) -> Vec<Sample> {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut samples = JoinSet::new();
    while !*stopped.borrow() {
        ticks.tick().await;
        // A member that is away answers late. The next sample does not wait for it.
        samples.spawn(sample(Arc::clone(&asked), pods.now()));
    }
    samples.join_all().await
}

async fn sample(asked: Arc<Asked>, pods: Vec<Arc<Pod>>) -> Sample {
    let begun = Timestamp::now();
    let seen = join_all(pods.iter().map(|pod| see(&asked, pod))).await;
    let (seen, lists): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    Sample {
        begun,
        ended: Timestamp::now(),
        pods: seen.into_iter().collect(),
        listed: lists.into_iter().flatten().next().unwrap_or_default(),
    }
}

/// Asks one member. A member that serves gives its list at once: while the sample waits for other
/// members, a learner may be promoted.
async fn see(asked: &Asked, pod: &Pod) -> ((String, Seen), Option<Listed>) {
    let (mut serves, mut listed) = (false, None);
    if let Some(address) = address(pod) {
        let reads = timeout(PATIENCE, reads(asked, address)).await;
        serves = reads.unwrap_or(false);
        if serves {
            let lists = timeout(PATIENCE, lists(&asked.connections, address)).await;
            listed = lists.ok().flatten();
        }
    }
    let seen = Seen {
        uid: pod.uid().unwrap_or_default(),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        serves,
    };
    ((pod.name_any(), seen), listed)
}

async fn reads(asked: &Asked, address: IpAddr) -> bool {
    let Ok(mut member) = asked.connections.to(address).await else {
        return false;
    };
    let answer = member.get("health", None).await;
    let header = answer.as_ref().ok().and_then(|answer| answer.header());
    header.is_some_and(|header| header.cluster_id() == asked.cluster)
}

async fn lists(connections: &Connections, address: IpAddr) -> Option<Listed> {
    let answer = connections
        .to(address)
        .await
        .ok()?
        .member_list()
        .await
        .ok()?;
    let voters = answer
        .members()
        .iter()
        .filter(|member| !member.is_learner());
    let voters = voters.map(|member| member.name().to_owned()).collect();
    Some(Listed { voters })
}
