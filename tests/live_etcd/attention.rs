//! The watch over members that do not serve: it ends when a member answers differently, and not
//! before.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate::etcd::{Endpoint, Prober, WatchedMember};
use tokio::time::timeout;

use crate::cluster::{Builder, SOON, prober, round};
use crate::version::Version;

/// The pause between two probes.
const PAUSE: Duration = Duration::from_millis(20);
/// The time limit of a probe.
const ANSWER: Duration = Duration::from_millis(400);
/// Time for dozens of probes.
const A_WHILE: Duration = Duration::from_secs(2);

crate::on_every_version!(
    a_member_that_is_back_ends_the_watch_although_another_one_hangs,
    a_quorum_that_is_back_ends_the_watch,
    who_serves_is_not_waited_for,
);

/// The members that do not serve, with their answers within the usual time limit.
async fn watched(prober: &Prober, endpoints: &[Endpoint]) -> Vec<WatchedMember> {
    let deadline = tokio::time::Instant::now() + ANSWER;
    let round = prober.round(endpoints, deadline).await;
    let asked = endpoints.iter().zip(&round.probes);
    let watched = asked.filter_map(|(endpoint, probe)| WatchedMember::from_probe(endpoint, probe));
    watched.collect()
}

/// Fails if the watch ends although nothing changes.
async fn goes_on(prober: &Prober, members: &[WatchedMember]) -> Result<()> {
    let ended = timeout(A_WHILE, prober.until_otherwise(members, PAUSE, ANSWER)).await;
    ensure!(
        ended.is_err(),
        "the watch ended, although no answer changed"
    );
    Ok(())
}

/// Watches the members that do not serve until all serve.
async fn until_served(prober: &Prober, endpoints: &[Endpoint]) -> Result<()> {
    let all_serve = async {
        loop {
            let left = watched(prober, endpoints).await;
            if left.is_empty() {
                return;
            }
            prober.until_otherwise(&left, PAUSE, ANSWER).await;
        }
    };
    timeout(SOON, all_serve).await.context("it does not end")
}

async fn a_member_that_is_back_ends_the_watch_although_another_one_hangs(
    version: Version,
) -> Result<()> {
    let mut cluster = Builder::new(version).members(5).start().await?;
    let leader = cluster.leader().await?;
    let (hangs, down) = ((leader + 1) % 5, (leader + 2) % 5);
    let endpoints = cluster.endpoints()?;
    let prober = prober();
    round(&prober, &endpoints).await;
    cluster.member(hangs)?.freeze().await?;
    cluster.member_mut(down)?.kill().await?;
    let members = watched(&prober, &endpoints).await;
    ensure!(members.len() == 2, "{members:?}");
    goes_on(&prober, &members).await?;

    cluster.start(down, "new")?;
    let back = [endpoints.get(down).context("no endpoint")?.clone()];
    until_served(&prober, &back).await?;
    cluster.member(hangs)?.thaw()?;
    until_served(&prober, &endpoints).await
}

async fn a_quorum_that_is_back_ends_the_watch(version: Version) -> Result<()> {
    let mut cluster = Builder::new(version).start().await?;
    let (leader, endpoints) = (cluster.leader().await?, cluster.endpoints()?);
    let prober = prober();
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    for other in others {
        cluster.member_mut(other)?.kill().await?;
    }
    let alone = endpoints.get(leader).context("no endpoint")?.clone();
    let mut left = Vec::new();
    let noticed = async {
        // The member hangs at first, and then gives up its lead.
        while left.is_empty() || goes_on(&prober, &left).await.is_err() {
            left = watched(&prober, std::slice::from_ref(&alone)).await;
        }
    };
    timeout(SOON, noticed).await.context("it serves alone")?;
    for other in others {
        cluster.start(other, "new")?;
    }
    let ends = prober.until_otherwise(&left, PAUSE, ANSWER);
    timeout(SOON, ends).await.context("it does not end")?;
    until_served(&prober, &[alone]).await
}

async fn who_serves_is_not_waited_for(version: Version) -> Result<()> {
    let cluster = Builder::new(version).start().await?;
    let (prober, endpoints) = (prober(), cluster.endpoints()?);
    let members = watched(&prober, &endpoints).await;
    ensure!(members.is_empty(), "{members:?}");
    goes_on(&prober, &members).await
}
