//! The time for which fewer members than a majority answered.
//!
//! Every member is asked for its status twenty times a second. etcd answers from the moment it has
//! joined its cluster until it ends, with a leader or without. So an election is no loss of the
//! majority here.

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
/// The time limit for an answer. A starved member still answers within it.
const PATIENCE: Duration = Duration::from_secs(3);

/// An observer of the members.
#[must_use = "it is asked how it went"]
pub(crate) struct Majority {
    stop: CancellationToken,
    looks: JoinHandle<Vec<Change>>,
    members: usize,
}

/// The moment at which an incarnation begins or stops to answer.
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

    /// Stops. Returns the time without a majority since `start`. The incarnation `broken` may
    /// answer, but does not count.
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
                    // Each member has one question at a time, which may take as long as the member
                    // needs to start.
                    if let Some(address) = pod.address && !asked.contains_key(&pod.uid) {
                        let now = Instant::now();
                        asked.insert(pod.uid.clone(), now);
                        questions.spawn(ask(Arc::clone(&connections), pod.uid.clone(), address, now));
                    }
                }
            }
        }
    }
    // A deleted incarnation will not answer any more.
    asked.retain(|uid, _| pods.borrow().values().all(|pod| pod.uid != *uid));
    changes.extend(asked.into_iter().map(|(uid, at)| Change {
        at,
        uid,
        there: false,
    }));
    changes
}

/// Asks a member. A member that answers is there from the answer on; a member that does not was
/// away from the question on.
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
                // Gaps shorter than the pause between two looks are not seen.
                lost += if gap < PERIOD { Duration::ZERO } else { gap };
                None
            }
            (false, None) => None,
        };
    }
    let open = since.map(|since| end.saturating_duration_since(start.max(since)));
    lost + open.unwrap_or_default()
}
