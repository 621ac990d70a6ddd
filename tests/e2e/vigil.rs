//! An observer that asks every member ten times a second whether it answers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::etcd_cluster::{Connections, Dialer, EtcdCluster};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The pause between two looks.
const PERIOD: Duration = Duration::from_millis(100);
/// The time limit for a member. A frozen member costs all of it; a starved one still answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most time between the read of the pods and the question to a member. After more, the member
/// may have been replaced, and the look proves nothing.
const TOO_LATE: Duration = Duration::from_millis(500);

/// An observer that looks until it is stopped.
#[must_use = "a vigil is there to be asserted on"]
pub(crate) struct Vigil {
    stop: watch::Sender<bool>,
    looks: JoinHandle<Result<Vec<Sight>>>,
}

/// The members that answered at one moment.
struct Sight {
    there: Vec<String>,
    away: Vec<String>,
}

impl Vigil {
    pub(crate) async fn start(etcd: &EtcdCluster) -> Result<Self> {
        let (stop, stopped) = watch::channel(false);
        let dialer = etcd.dialer().await?;
        let looks = tokio::spawn(watch_over(etcd.clone(), dialer, stopped));
        Ok(Self { stop, looks })
    }

    /// Stops, and checks that at every moment at least this many members answered.
    pub(crate) async fn assert_never_below(self, members: usize) -> Result<()> {
        self.stop.send(true)?;
        let looks = self.looks.await.context("the vigil crashed")??;
        ensure!(looks.len() > 20, "{} looks are too few", looks.len());
        for (number, look) in looks.iter().enumerate() {
            ensure!(
                look.there.len() >= members,
                "look {number} of {}: {:?} answered, {:?} did not",
                looks.len(),
                look.there,
                look.away
            );
        }
        Ok(())
    }
}

async fn watch_over(
    etcd: EtcdCluster,
    dialer: Dialer,
    stopped: watch::Receiver<bool>,
) -> Result<Vec<Sight>> {
    let connections = Arc::new(Connections::new(dialer, PATIENCE));
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = JoinSet::new();
    while !*stopped.borrow() {
        ticks.tick().await;
        let read = Instant::now();
        let pods = etcd.pod_ips().await?;
        let connections = Arc::clone(&connections);
        // A member that is away answers late. The next look does not wait for it.
        looks.spawn(async move {
            let asked = pods
                .into_iter()
                .map(|(pod, address)| is_there(&connections, read, pod, address));
            futures::future::join_all(asked).await
        });
    }
    Ok(looks
        .join_all()
        .await
        .into_iter()
        .filter_map(look)
        .collect())
}

/// The result of a look, unless it came too late.
fn look(answers: Vec<(String, Answer)>) -> Option<Sight> {
    let mut look = Sight {
        there: Vec::new(),
        away: Vec::new(),
    };
    for (pod, answer) in answers {
        match answer {
            Answer::There => look.there.push(pod),
            Answer::Away => look.away.push(pod),
            Answer::TooLate => return None,
        }
    }
    Some(look)
}

enum Answer {
    There,
    Away,
    TooLate,
}

async fn is_there(
    connections: &Connections,
    read: Instant,
    pod: String,
    address: IpAddr,
) -> (String, Answer) {
    let answer = match connections.to(address).await {
        Ok(_) if read.elapsed() > TOO_LATE => Answer::TooLate,
        Ok(mut member) => match timeout(PATIENCE, member.status()).await {
            Ok(Ok(_)) => Answer::There,
            Ok(Err(_)) | Err(_) => Answer::Away,
        },
        Err(_) => Answer::Away,
    };
    (pod, answer)
}
