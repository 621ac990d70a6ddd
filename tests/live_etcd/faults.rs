//! Members that are dead, that hang, or that have no quorum.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate::etcd::TimeLimit;
use quorumgate::quorum::evidence::{Probe, Unanswered};
use quorumgate_testbed::eventually;
use tokio::time::Instant;

use crate::cluster::{Builder, Cluster, PATIENCE, SOON, probe, prober, round};
use crate::version::Version;

crate::on_every_version!(
    a_killed_member_refuses_and_is_back_in_the_next_round,
    a_frozen_member_costs_the_deadline_once,
    without_quorum_a_member_still_tells_what_it_knows,
    a_member_is_found_under_a_new_address,
);

/// A follower, whose loss brings no election.
async fn a_follower(cluster: &Cluster) -> Result<usize> {
    let leader = cluster.leader().await?;
    Ok((leader + 1) % cluster.members.len())
}

fn serves(probe: &Probe) -> bool {
    probe.status.is_ok() && probe.read.is_ok() && probe.members.is_ok()
}

async fn a_killed_member_refuses_and_is_back_in_the_next_round(version: Version) -> Result<()> {
    let mut cluster = Builder::new(version).start().await?;
    let endpoints = cluster.endpoints()?;
    let victim = a_follower(&cluster).await?;
    let prober = prober();
    assert!(round(&prober, &endpoints).await.probes.iter().all(serves));

    cluster.member_mut(victim)?.kill().await?;
    // The first round finds a broken connection, and the later ones find none. A client with a
    // back-off would have backed off by now.
    for _ in 0..10 {
        let round = round(&prober, &endpoints).await;
        for (ordinal, probe) in round.probes.iter().enumerate() {
            if ordinal == victim {
                let refused = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
                assert_eq!(*probe, refused);
            } else {
                assert!(serves(probe), "{probe:?}");
            }
        }
    }

    cluster.start(victim, "new")?;
    cluster.serves().await?;
    let endpoint = endpoints.get(victim).context("it has an endpoint")?;
    let back = probe(&prober, endpoint).await?;
    assert!(serves(&back), "the very next round: {back:?}");
    Ok(())
}

async fn a_frozen_member_costs_the_deadline_once(version: Version) -> Result<()> {
    let cluster = Builder::new(version).start().await?;
    let endpoints = cluster.endpoints()?;
    let victim = a_follower(&cluster).await?;
    // The time limit is long enough for the others to answer on a busy machine.
    let (prober, limit) = (prober(), TimeLimit::new(Duration::from_secs(2)));
    assert!(round(&prober, &endpoints).await.probes.iter().all(serves));

    cluster.member(victim)?.freeze().await?;
    // The first round uses the kept connection. The later ones open new connections, which the
    // kernel accepts for the frozen process.
    for why in [Unanswered::Deadline, Unanswered::Mute, Unanswered::Mute] {
        let (start, timeout) = (Instant::now(), limit.timeout());
        let latest = start + SOON;
        let round = prober.round_within(&endpoints, &limit, latest).await;
        let took = start.elapsed();
        assert!(took >= timeout, "{took:?}, with {timeout:?} to wait");
        assert!(took < timeout * 2, "{took:?}: not twice {timeout:?}");
        for (ordinal, probe) in round.probes.iter().enumerate() {
            if ordinal == victim {
                let silent = Probe::unanswered(probe.target.clone(), why.clone());
                assert_eq!(*probe, silent);
            } else {
                assert!(serves(probe), "{probe:?}");
            }
        }
    }

    cluster.member(victim)?.thaw()?;
    cluster.serves().await?;
    assert!(round(&prober, &endpoints).await.probes.iter().all(serves));
    Ok(())
}

async fn without_quorum_a_member_still_tells_what_it_knows(version: Version) -> Result<()> {
    let election_timeout = Duration::from_secs(3);
    let builder = Builder::new(version).election_timeout(election_timeout);
    let mut cluster = builder.start().await?;
    let survivor = cluster.leader().await?;
    let endpoint = cluster
        .endpoints()?
        .into_iter()
        .nth(survivor)
        .context("it has an endpoint")?;
    let prober = prober();
    let before = probe(&prober, &endpoint).await?;
    assert!(serves(&before), "{before:?}");

    for ordinal in (0..3).filter(|ordinal| *ordinal != survivor) {
        cluster.member_mut(ordinal)?.kill().await?;
    }
    // The member leads until an election timeout has passed without contact. Its read hangs
    // meanwhile.
    let deadline = Instant::now() + election_timeout / 3;
    let mut round = prober
        .round(std::slice::from_ref(&endpoint), deadline)
        .await;
    let unaware = round.probes.pop().context("one probe")?;
    assert_eq!(unaware.status?.leader, Some(before.status?.member_id));
    assert_eq!(unaware.read, Err(Unanswered::Deadline));
    assert_eq!(
        unaware.members?.len(),
        3,
        "asked for beside the read that hangs"
    );

    eventually(SOON, "it gives up its leadership", async || {
        let leader = probe(&prober, &endpoint).await?.status?.leader;
        ensure!(leader.is_none(), "it names {leader:?}");
        Ok(())
    })
    .await?;
    let start = Instant::now();
    let aware = probe(&prober, &endpoint).await?;
    assert_eq!(aware.status?.leader, None);
    assert_eq!(aware.read, Err(Unanswered::NoLeader));
    assert_eq!(aware.members?.len(), 3);
    assert!(
        start.elapsed() < PATIENCE / 2,
        "the probe waited for a read that cannot succeed"
    );
    Ok(())
}

async fn a_member_is_found_under_a_new_address(version: Version) -> Result<()> {
    let mut cluster = Builder::new(version).start().await?;
    let old = cluster.endpoints()?;
    let mover = a_follower(&cluster).await?;
    let prober = prober();
    assert!(round(&prober, &old).await.probes.iter().all(serves));

    cluster.member_mut(mover)?.kill().await?;
    cluster.member_mut(mover)?.move_to_a_new_address()?;
    cluster.start(mover, "new")?;
    cluster.serves().await?;

    let new = cluster.endpoints()?;
    let round = round(&prober, &new).await;
    assert!(round.probes.iter().all(serves), "{round:?}");
    let left = probe(&prober, old.get(mover).context("it had an endpoint")?).await?;
    assert_eq!(
        left.status,
        Err(Unanswered::Refused),
        "no member is at the old address"
    );
    Ok(())
}
