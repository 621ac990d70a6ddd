//! For how long fewer members than a majority were there.
//!
//! Every member is asked for its status twenty times a second. etcd answers that from the moment when it has joined its cluster until
//! it ends, with a leader or without: an election is no lost majority.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use quorumgate_testbed::etcd_cluster::{Connections, EtcdCluster};
use tokio::sync::watch::Receiver;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::incarnations::{Pods, Watch};

const PERIOD: Duration = Duration::from_millis(50);
/// A starved member still answers in this time.
const PATIENCE: Duration = Duration::from_secs(3);

/// Somebody who asks them.
#[must_use = "it is asked how it went"]
pub(crate) struct Majority {
    stop: CancellationToken,
    looks: JoinHandle<Vec<Change>>,
    members: usize,
}

/// Whether an incarnation is there from this moment on.
struct Change {
    at: Instant,
    uid: String,
    there: bool,
}

impl Majority {
    pub(crate) async fn watch(etcd: &EtcdCluster, watch: &Watch) -> Result<Self> {
        let stop = CancellationToken::new();
        let connections = Arc::new(Connections::new(etcd.dialer().await?, PATIENCE));
        let looks = tokio::spawn(look(connections, watch.pods(), stop.clone()));
        let members = etcd.pod_names().len();
        Ok(Self {
            stop,
            looks,
            members,
        })
    }

    /// Stops. How long there was no majority since `start`; the incarnation `broken` answers perhaps, but makes none.
    pub(crate) async fn lost_since(self, start: Instant, broken: Option<&str>) -> Result<Duration> {
        self.stop.cancel();
        let changes = self.looks.await.context("the majority's watch crashed")?;
        let majority = self.members / 2 + 1;
        Ok(lost(changes, majority, start, broken))
    }
}

async fn look(
    connections: Arc<Connections>,
    pods: Receiver<Pods>,
    stop: CancellationToken,
) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut asked = HashMap::new();
    let mut questions = JoinSet::<Change>::new();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(Ok(change)) = questions.join_next() => {
                asked.remove(&change.uid);
                changes.push(change);
            }
            _ = ticks.tick() => {
                for pod in pods.borrow().values() {
                    // One question at a time to each: it takes as long as the member needs to come up.
                    if let Some(address) = pod.address && !asked.contains_key(&pod.uid) {
                        let now = Instant::now();
                        asked.insert(pod.uid.clone(), now);
                        questions.spawn(ask(Arc::clone(&connections), pod.uid.clone(), address, now));
                    }
                }
            }
        }
    }
    // Who is gone will not answer any more.
    asked.retain(|uid, _| pods.borrow().values().all(|pod| pod.uid != *uid));
    changes.extend(asked.into_iter().map(|(uid, at)| Change {
        at,
        uid,
        there: false,
    }));
    changes
}

/// A member that answers is there when it does; one that does not was away when it was asked.
async fn ask(
    connections: Arc<Connections>,
    uid: String,
    address: IpAddr,
    asked: Instant,
) -> Change {
    let answer = timeout(PATIENCE, async {
        connections.to(address).await?.status().await?;
        anyhow::Ok(())
    });
    let there = matches!(answer.await, Ok(Ok(())));
    Change {
        at: if there { Instant::now() } else { asked },
        uid,
        there,
    }
}

fn lost(
    mut changes: Vec<Change>,
    majority: usize,
    start: Instant,
    broken: Option<&str>,
) -> Duration {
    changes.retain(|change| Some(change.uid.as_str()) != broken);
    changes.sort_by_key(|change| change.at);
    let end = Instant::now();
    let mut there = BTreeSet::new();
    let mut since = None;
    let mut lost = Duration::ZERO;
    for Change { at, uid, there: is } in changes {
        if is {
            there.insert(uid);
        } else {
            there.remove(&uid);
        }
        since = match (there.len() < majority, since) {
            (true, None) => Some(at),
            (true, since) => since,
            (false, Some(since)) => {
                let gap = at.saturating_duration_since(start.max(since));
                // What is shorter than the pause between two looks was not seen.
                lost += if gap < PERIOD { Duration::ZERO } else { gap };
                None
            }
            (false, None) => None,
        };
    }
    let open = since.map(|since| end.saturating_duration_since(start.max(since)));
    lost + open.unwrap_or_default()
}
