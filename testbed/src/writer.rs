//! A client that writes all the time, and remembers which writes were acknowledged.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use etcd_client::{Client, GetOptions};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::etcd_cluster::{Dialer, EtcdCluster};

/// The pause between two writes.
const PERIOD: Duration = Duration::from_millis(100);
/// The time limit of one write. A write that takes longer counts as failed.
const PUT_TIMEOUT: Duration = Duration::from_millis(300);
/// The time for which a member is avoided after a failure, if there are others.
const AVOIDANCE: Duration = Duration::from_secs(1);
/// The pause between two reads of the pods' addresses.
const REFRESH: Duration = Duration::from_millis(250);

/// The prefix of every key. The start time of the writer follows.
const PREFIX: &str = "writer/";

/// A write that etcd has acknowledged.
#[derive(Clone, Debug)]
pub struct Acknowledged {
    /// The key, which is also the value.
    pub key: String,
    /// The time of the acknowledgement.
    pub at: Instant,
}

/// A write that was not acknowledged. etcd may have made it nevertheless.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The address of the member that was asked.
    pub address: IpAddr,
    /// The time of the failure.
    pub at: Instant,
    /// The reason.
    pub error: String,
}

/// The observations of a writer.
#[derive(Clone, Debug)]
#[must_use = "a report is there to be asserted on"]
pub struct Report {
    /// Acknowledged writes in order.
    pub acknowledged: Vec<Acknowledged>,
    /// Failed writes in order.
    pub failures: Vec<Failure>,
    /// The longest time without an acknowledged write, from start to end.
    pub longest_gap: Duration,
    prefix: String,
}

impl Report {
    /// Reads all keys back with linearizable reads.
    ///
    /// # Errors
    ///
    /// Fails with the keys if an acknowledged write is missing or altered. Fails too if the cluster
    /// cannot be read.
    pub async fn assert_nothing_lost(&self, cluster: &EtcdCluster) -> Result<()> {
        let everything = GetOptions::new().with_prefix();
        let answer = cluster
            .connect()
            .await?
            .get(self.prefix.as_str(), Some(everything))
            .await?;
        let stored: BTreeMap<_, _> = answer
            .kvs()
            .iter()
            .map(|kv| (kv.key(), kv.value()))
            .collect();
        let is_lost =
            |write: &&Acknowledged| stored.get(write.key.as_bytes()) != Some(&write.key.as_bytes());
        let lost: Vec<_> = self
            .acknowledged
            .iter()
            .filter(is_lost)
            .map(|write| write.key.as_str())
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        bail!(
            "{} of {} acknowledged writes are lost: {lost:?}",
            lost.len(),
            self.acknowledged.len()
        )
    }
}

/// A client that puts a new key through any member every 100 ms until it is stopped.
#[derive(Debug)]
#[must_use = "a writer that is dropped stops"]
pub struct Writer {
    progress: Arc<Mutex<Progress>>,
    stop: CancellationToken,
    tasks: Vec<JoinHandle<Option<()>>>,
}

#[derive(Debug)]
struct Progress {
    prefix: String,
    started: Instant,
    acknowledged: Vec<Acknowledged>,
    failures: Vec<Failure>,
}

impl Writer {
    /// Starts to write. The cluster should be quorate, since the time until the first acknowledged
    /// write counts as a gap.
    pub async fn start(cluster: &EtcdCluster) -> Result<Self> {
        let dialer = cluster.dialer().await?;
        let (publish, addresses) = tokio::sync::watch::channel(current(cluster).await?);
        let mut writer = Self::start_at(dialer, move || addresses.borrow().clone());
        let refreshing = refresh(cluster.clone(), publish);
        let refreshing = writer.stop.clone().run_until_cancelled_owned(refreshing);
        writer.tasks.push(tokio::spawn(refreshing));
        Ok(writer)
    }

    /// Starts to write at addresses that the caller knows.
    pub fn start_at(dialer: Dialer, addresses: impl Fn() -> Vec<IpAddr> + Send + 'static) -> Self {
        let progress = Arc::new(Mutex::new(Progress {
            prefix: format!("{PREFIX}{}/", jiff::Timestamp::now()),
            started: Instant::now(),
            acknowledged: Vec::new(),
            failures: Vec::new(),
        }));
        let stop = CancellationToken::new();
        let pen = Pen::new(dialer, Arc::clone(&progress));
        let writing = stop
            .clone()
            .run_until_cancelled_owned(write(pen, addresses));
        Self {
            progress,
            stop,
            tasks: vec![tokio::spawn(writing)],
        }
    }

    /// The number of acknowledged writes so far.
    pub fn acknowledged(&self) -> usize {
        self.peek(|progress| progress.acknowledged.len())
    }

    /// The number of failed writes so far.
    pub fn failures(&self) -> usize {
        self.peek(|progress| progress.failures.len())
    }

    /// The longest gap so far.
    pub fn longest_gap(&self) -> Duration {
        self.peek(|progress| progress.longest_gap(Instant::now()))
    }

    /// Stops, and returns the observations.
    pub async fn stop(mut self) -> Result<Report> {
        self.stop.cancel();
        for task in std::mem::take(&mut self.tasks) {
            task.await.context("the writer crashed")?;
        }
        Ok(self.peek(|progress| Report {
            longest_gap: progress.longest_gap(Instant::now()),
            acknowledged: progress.acknowledged.clone(),
            failures: progress.failures.clone(),
            prefix: progress.prefix.clone(),
        }))
    }

    fn peek<T>(&self, look: impl FnOnce(&Progress) -> T) -> T {
        look(&self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Progress {
    fn longest_gap(&self, now: Instant) -> Duration {
        let mut longest = Duration::ZERO;
        let mut last = self.started;
        for at in self.acknowledged.iter().map(|write| write.at).chain([now]) {
            longest = longest.max(at.saturating_duration_since(last));
            last = at;
        }
        longest
    }
}

async fn current(cluster: &EtcdCluster) -> Result<Vec<IpAddr>> {
    Ok(cluster.pod_ips().await?.into_values().collect())
}

/// Keeps the addresses current. While the API server is away, the last known addresses are used.
async fn refresh(cluster: EtcdCluster, publish: tokio::sync::watch::Sender<Vec<IpAddr>>) {
    let mut ticks = interval(REFRESH);
    loop {
        ticks.tick().await;
        match timeout(REFRESH * 4, current(&cluster)).await {
            Ok(Ok(addresses)) => drop(publish.send(addresses)),
            Ok(Err(error)) => tracing::debug!("the writer cannot read pods: {error:#}"),
            Err(_) => tracing::debug!("the writer cannot read pods in time"),
        }
    }
}

async fn write(mut pen: Pen, addresses: impl Fn() -> Vec<IpAddr>) {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let known = addresses();
        // A failed write is tried with the next member at once, as by a client's own balancer. Each
        // member is tried once.
        for _ in 0..known.len() {
            let Some(address) = pen.choose(&known) else {
                break;
            };
            if pen.put(address).await {
                break;
            }
        }
    }
}

/// The part of the writer that writes one key after another, each through the next member.
struct Pen {
    dialer: Dialer,
    clients: HashMap<IpAddr, Client>,
    avoided: HashMap<IpAddr, Instant>,
    turn: usize,
    sequence: u64,
    /// The cluster of the first acknowledged write. No other cluster's acknowledgement counts.
    cluster: Option<u64>,
    progress: Arc<Mutex<Progress>>,
}

impl Pen {
    fn new(dialer: Dialer, progress: Arc<Mutex<Progress>>) -> Self {
        Self {
            dialer,
            clients: HashMap::new(),
            avoided: HashMap::new(),
            turn: 0,
            sequence: 0,
            cluster: None,
            progress,
        }
    }

    /// The next member that has not failed recently. If all have, the next member.
    fn choose(&mut self, known: &[IpAddr]) -> Option<IpAddr> {
        self.clients.retain(|address, _| known.contains(address));
        self.avoided.retain(|_, until| *until > Instant::now());
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn % known.len().max(1);
        let in_turn = || known.iter().cycle().skip(first).take(known.len()).copied();
        in_turn()
            .find(|address| !self.avoided.contains_key(address))
            .or_else(|| in_turn().next())
    }

    async fn put(&mut self, address: IpAddr) -> bool {
        self.sequence += 1;
        let key = format!(
            "{}{:08}",
            self.with_progress(|p| p.prefix.clone()),
            self.sequence
        );
        match self.attempt(address, &key).await {
            Ok(()) => {
                let at = Instant::now();
                self.with_progress(|p| p.acknowledged.push(Acknowledged { key, at }));
                true
            }
            Err(error) => {
                let at = Instant::now();
                let error = format!("{error:#}");
                self.with_progress(|p| p.failures.push(Failure { address, at, error }));
                self.clients.remove(&address);
                self.avoided.insert(address, at + AVOIDANCE);
                false
            }
        }
    }

    async fn attempt(&mut self, address: IpAddr, key: &str) -> Result<()> {
        let mut client = match self.clients.get(&address) {
            Some(client) => client.clone(),
            None => self.dialer.dial(address, PUT_TIMEOUT).await?,
        };
        let put = timeout(PUT_TIMEOUT, client.put(key, key, None));
        let answer = put.await.context("timed out")??;
        let answered = answer.header().context("no header")?.cluster_id();
        let cluster = *self.cluster.get_or_insert(answered);
        ensure!(answered == cluster, "cluster {answered:x} acknowledged it");
        self.clients.insert(address, client);
        Ok(())
    }

    fn with_progress<T>(&self, change: impl FnOnce(&mut Progress) -> T) -> T {
        change(&mut self.progress.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
