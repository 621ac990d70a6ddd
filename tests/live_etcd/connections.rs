//! Connections are kept while they fit the endpoint, and dropped otherwise.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use quorumgate::clock::Clock;
use quorumgate::etcd::{Connections, Endpoint, Prober};
use quorumgate::quorum::PodUid;
use quorumgate::quorum::evidence::Target;
use quorumgate_testbed::eventually;
use tokio::time::Instant;

use crate::cluster::{Builder, Cluster, PATIENCE, SOON, prober};
use crate::relay::Relay;
use crate::version::Version;

async fn relayed() -> Result<(Cluster, Relay, Endpoint)> {
    let cluster = Builder::new(Version::V3_7).members(1).start().await?;
    let endpoint = cluster.endpoints()?.pop().context("it has one")?;
    let relay = Relay::to(endpoint.address.clone()).await?;
    let address = relay.address.to_string();
    Ok((
        cluster,
        relay,
        Endpoint {
            address,
            ..endpoint
        },
    ))
}

async fn passes(prober: &Prober, endpoint: &Endpoint) {
    let round = prober
        .round(std::slice::from_ref(endpoint), Instant::now() + PATIENCE)
        .await;
    assert!(
        round.probes.iter().all(|probe| probe.read.is_ok()),
        "{round:?}"
    );
}

#[tokio::test]
async fn rounds_share_a_connection_until_pod_address_or_certificates_change() -> Result<()> {
    let (cluster, relay, endpoint) = relayed().await?;
    let prober = prober();
    for _ in 0..5 {
        passes(&prober, &endpoint).await;
    }
    assert_eq!(relay.accepted(), 1);

    let rotated = Endpoint {
        tls: Some(cluster.identity("quorumgate")?),
        ..endpoint.clone()
    };
    passes(&prober, &rotated).await;
    assert_eq!(relay.accepted(), 2, "the Secret changed");

    let target = Target::Pod(PodUid::new("another incarnation"));
    let reincarnated = Endpoint {
        target,
        ..rotated.clone()
    };
    passes(&prober, &reincarnated).await;
    assert_eq!(relay.accepted(), 3, "the pod changed");

    let second = Relay::to(cluster.endpoints()?.pop().context("it has one")?.address).await?;
    let moved = Endpoint {
        address: second.address.to_string(),
        ..reincarnated
    };
    passes(&prober, &moved).await;
    assert_eq!(
        (relay.accepted(), second.accepted()),
        (3, 1),
        "the address changed"
    );
    Ok(())
}

#[tokio::test]
async fn a_broken_connection_is_replaced_within_the_round() -> Result<()> {
    let (cluster, relay, endpoint) = relayed().await?;
    let prober = prober();
    passes(&prober, &endpoint).await;

    let address = relay.address;
    drop(relay);
    let member = cluster.endpoints()?.pop().context("it has one")?.address;
    let listens = || Relay::at(address, member.clone());
    let again = eventually(SOON, "another relay listens there", listens).await?;
    passes(&prober, &endpoint).await;
    assert_eq!(again.accepted(), 1);
    Ok(())
}

#[tokio::test]
async fn connections_that_nobody_uses_are_dropped() -> Result<()> {
    let (_cluster, _relay, endpoint) = relayed().await?;
    let (clock, hands) = Clock::frozen(Timestamp::now());
    let connections = Connections::new(clock.clone());
    let prober = Prober::new(connections.clone(), clock);
    let gone = Endpoint {
        target: Target::Pod(PodUid::new("gone")),
        ..endpoint.clone()
    };
    passes(&prober, &endpoint).await;
    passes(&prober, &gone).await;
    assert_eq!(connections.count(), 2);

    hands.advance(Duration::from_secs(40));
    passes(&prober, &endpoint).await;
    assert_eq!(connections.count(), 2, "not yet");

    hands.advance(Duration::from_secs(40));
    passes(&prober, &endpoint).await;
    assert_eq!(connections.count(), 1);
    Ok(())
}

#[tokio::test]
async fn connections_used_in_passing_are_dropped_unless_their_next_use_is_near() -> Result<()> {
    let (_cluster, relay, endpoint) = relayed().await?;
    let clock = Clock::system();
    let connections = Connections::new(clock.clone());
    let prober = Prober::new(connections.clone(), clock);
    let passing = prober.in_passing();
    let (near, far) = (Duration::from_secs(59), Duration::from_secs(60));
    let leave = |next| passing.leave(std::slice::from_ref(&endpoint), next);

    passes(&passing, &endpoint).await;
    leave(near);
    assert_eq!(connections.count(), 1);
    passes(&passing, &endpoint).await;
    leave(far);
    assert_eq!((connections.count(), relay.accepted()), (0, 1));

    // One that somebody else uses, too, stays.
    passes(&passing, &endpoint).await;
    passes(&prober, &endpoint).await;
    passes(&passing, &endpoint).await;
    leave(far);
    assert_eq!((connections.count(), relay.accepted()), (1, 2));
    Ok(())
}

#[tokio::test]
async fn of_more_connections_than_are_kept_those_used_last_stay() -> Result<()> {
    let (_cluster, relay, endpoint) = relayed().await?;
    let (clock, hands) = Clock::frozen(Timestamp::now());
    let connections = Connections::at_most(4, clock.clone());
    let prober = Prober::new(connections.clone(), clock);
    let pod = |number: usize| Endpoint {
        target: Target::Pod(PodUid::new(format!("pod-{number}").as_str())),
        ..endpoint.clone()
    };
    for number in [0, 1, 2, 3, 0, 4] {
        hands.advance(Duration::from_secs(1));
        passes(&prober, &pod(number)).await;
        assert!(connections.count() <= 4);
    }
    let made = relay.accepted();
    for number in [2, 3, 0, 4] {
        passes(&prober, &pod(number)).await;
    }
    assert_eq!(relay.accepted(), made, "these were kept");
    passes(&prober, &pod(1)).await;
    assert_eq!(relay.accepted(), made + 1, "this was not");
    Ok(())
}
