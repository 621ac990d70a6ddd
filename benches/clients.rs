//! Clients of a cluster while something happens to it: writers, readers, and holders of leases.
//!
//! Each client has a home, a member that it leaves only when a call fails there, as etcd's own
//! client does: it cannot know that a member which hangs will not answer. A call is due at a fixed
//! time, whether the calls before it have been answered or not, and takes from then until it
//! passes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use etcd_client::{Channel, Client, Error};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use tokio::sync::Mutex;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::incarnations::{Pods, Watch};

/// The pause between two calls of a writer or a reader.
const PERIOD: Duration = Duration::from_millis(50);
/// The longest time that a call is waited for. One that did not pass counts as this long.
const LIMIT: Duration = Duration::from_secs(10);
/// The pause of a client to whom no member answers.
const PAUSE: Duration = Duration::from_millis(20);

/// The leases that are held through each member, their time to live in seconds, and the pause
/// between two renewals.
const LEASES: usize = 4;
const TIME_TO_LIVE: i64 = 3;
const RENEWAL: Duration = Duration::from_millis(500);
/// The time after which a renewal was late.
const LATE: Duration = Duration::from_secs(1);

/// The observations of all clients.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The times of each writer's calls.
    pub(crate) writes: Vec<Vec<Duration>>,
    /// The times of each reader's calls.
    pub(crate) reads: Vec<Vec<Duration>>,
    /// The renewals of leases that were answered late.
    pub(crate) late: usize,
    /// The leases that expired.
    pub(crate) lost: usize,
}

/// The clients, until they are stopped.
#[must_use = "clients are there to tell what they saw"]
pub(crate) struct Clients {
    stop: CancellationToken,
    callers: Vec<(Call, tokio::task::JoinHandle<Vec<Duration>>)>,
    holders: JoinSet<Result<Held>>,
    _watch: Watch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write,
    Read,
}

/// The observations of the holder of a lease.
#[derive(Default)]
struct Held {
    late: usize,
    lost: usize,
}

impl Clients {
    /// Starts a writer, a reader and holders of leases at each member, once all are connected.
    pub(crate) async fn start(etcd: &EtcdCluster) -> Result<Self> {
        let watch = Watch::start(etcd);
        let homes = etcd.pod_names();
        let members = Arc::new(Members {
            names: homes.clone(),
            pods: watch.pods(),
            clients: Mutex::default(),
        });
        let all = |pods: &Pods| homes.iter().all(|pod| pods.contains_key(pod));
        watch.until("all members are known", LIMIT, all).await?;
        for home in 0..homes.len() {
            let latest = Instant::now() + LIMIT;
            let passed = members.pass(home, Call::Write, latest).await;
            passed.context("no member answers at the beginning")?;
        }
        let stop = CancellationToken::new();
        let mut callers = Vec::new();
        let mut holders = JoinSet::new();
        for home in 0..homes.len() {
            for call in [Call::Write, Call::Read] {
                let calling = repeat(Arc::clone(&members), home, call, stop.clone());
                callers.push((call, tokio::spawn(calling)));
            }
            for _ in 0..LEASES {
                holders.spawn(hold(Arc::clone(&members), home, stop.clone()));
            }
        }
        Ok(Self {
            stop,
            callers,
            holders,
            _watch: watch,
        })
    }

    /// Stops, and returns what they saw.
    pub(crate) async fn stop(mut self) -> Result<Seen> {
        self.stop.cancel();
        let mut seen = Seen::default();
        for (call, times) in self.callers {
            let times = times.await.context("a client crashed")?;
            match call {
                Call::Write => seen.writes.push(times),
                Call::Read => seen.reads.push(times),
            }
        }
        while let Some(held) = self.holders.join_next().await {
            let held = held.context("a client crashed")??;
            seen.late += held.late;
            seen.lost += held.lost;
        }
        Ok(seen)
    }
}

/// The connections to the members.
struct Members {
    names: Vec<String>,
    pods: Receiver<Pods>,
    clients: Mutex<HashMap<IpAddr, Client>>,
}

impl Members {
    /// The connection to a member. A member that is away has none.
    async fn client(&self, number: usize) -> Option<Client> {
        let pod = self.names.get(number % self.names.len())?;
        let (address, is_ready) = {
            let pods = self.pods.borrow();
            let pod = pods.get(pod)?;
            (pod.address?, pod.ready)
        };
        let mut clients = self.clients.lock().await;
        if let Some(client) = clients.get(&address) {
            return Some(client.clone());
        }
        // The port listens before etcd serves. etcd's own client does not take that for a
        // connection.
        if !is_ready {
            return None;
        }
        // A channel of this kind says at once that it cannot connect.
        let endpoint = Endpoint::from_shared(format!("http://{address}:2379")).ok()?;
        let channel = Channel::Tonic(endpoint.connect_lazy());
        let client = Client::from_channel(channel, None).await.ok()?;
        clients.insert(address, client.clone());
        Some(client)
    }

    /// Makes a call through the member at home, and through the next one whenever it fails.
    async fn pass(&self, home: usize, call: Call, latest: Instant) -> Result<()> {
        let passes = async {
            loop {
                for turn in 0..self.names.len() {
                    if let Some(client) = self.client(home + turn).await
                        && make(client, call, home).await.is_ok()
                    {
                        return;
                    }
                }
                sleep(PAUSE).await;
            }
        };
        Ok(timeout_at(latest, passes).await?)
    }

    /// Renews a lease in the same way. Returns whether it still exists.
    async fn renew(&self, home: usize, lease: i64, latest: Instant) -> Result<bool> {
        let renewed = async {
            loop {
                for turn in 0..self.names.len() {
                    let Some(mut client) = self.client(home + turn).await else {
                        continue;
                    };
                    match client.lease_keep_alive(lease).await {
                        Ok(_) => return true,
                        Err(Error::LeaseKeepAliveError(_)) => return false,
                        Err(_) => {}
                    }
                }
                sleep(PAUSE).await;
            }
        };
        Ok(timeout_at(latest, renewed).await?)
    }

    async fn grant(&self, home: usize) -> Result<i64> {
        let mut last = None;
        for turn in 0..self.names.len() {
            if let Some(mut client) = self.client(home + turn).await {
                match client.lease_grant(TIME_TO_LIVE, None).await {
                    Ok(lease) => return Ok(lease.id()),
                    Err(error) => last = Some(error),
                }
            }
        }
        Err(last.context("no member is there")?.into())
    }
}

async fn make(mut client: Client, call: Call, home: usize) -> Result<(), Error> {
    let key = format!("load/{home}");
    match call {
        Call::Write => client.put(key, [7_u8; 256], None).await.map(drop),
        Call::Read => client.get(key, None).await.map(drop),
    }
}

/// Makes calls until the end. Returns the time that each took.
async fn repeat(
    members: Arc<Members>,
    home: usize,
    call: Call,
    stop: CancellationToken,
) -> Vec<Duration> {
    let mut ticks = interval(PERIOD);
    let mut calls = JoinSet::new();
    while let Some(due) = stop.run_until_cancelled(ticks.tick()).await {
        let members = Arc::clone(&members);
        calls.spawn(async move {
            match members.pass(home, call, due + LIMIT).await {
                Ok(()) => due.elapsed(),
                Err(_) => LIMIT,
            }
        });
    }
    calls.join_all().await
}

/// Holds a lease until the end.
async fn hold(members: Arc<Members>, home: usize, stop: CancellationToken) -> Result<Held> {
    let mut held = Held::default();
    let mut lease = members.grant(home).await?;
    let mut ticks = interval(RENEWAL);
    while let Some(due) = stop.run_until_cancelled(ticks.tick()).await {
        let renewed = members.renew(home, lease, due + LIMIT).await;
        held.late += usize::from(due.elapsed() > LATE);
        if !renewed.unwrap_or(false) {
            held.lost += 1;
            lease = members.grant(home).await?;
        }
    }
    Ok(held)
}
