//! Who serves is what etcd says: neither what the kubelet's probes say, nor what nobody could be asked about.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use quorumgate::api::condition;
use quorumgate_testbed::etcd_cluster::Readiness;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{self, PodFaults};

use crate::world::{SOON, World, refusal};

/// When the API server gives a webhook up.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_member_that_is_ready_does_not_count() -> Result<()> {
    let world = World::builder("partitioned")
        .etcd(|etcd| etcd.readiness(Readiness::Process))
        .start()
        .await?;
    let leader = world.etcd.leader().await?;
    // Not the leader: nobody has to be elected, so there is one reason only to refuse.
    let lost = world.etcd.followers().await?.pop().context("no follower")?;
    let cut = PodFaults::of(&world.sandbox, &lost).await?.partition()?;

    let (code, message) = refusal(world.delete(&leader).await)?;
    ensure!(code == 429 && message.contains(&lost), "{code}: {message}");
    // Once it has noticed that its peers are gone, it says so itself; its pod is as Ready as before.
    eventually(SOON, "the partitioned member knows no leader", || async {
        let status = world.etcd.endpoint_status(&lost).await?;
        ensure!(status.leader.is_none(), "it follows {:?}", status.leader);
        Ok(())
    })
    .await?;
    ensure!(world.etcd.is_ready(&lost).await?, "{lost} is not Ready");
    let (code, message) = refusal(world.delete(&leader).await)?;
    ensure!(code == 429 && message.contains(&lost), "{code}: {message}");

    cut.heal();
    world.etcd.quorate(SOON).await?;
    eventually(SOON, "the leader may go", || world.delete(&leader)).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_serving_member_whose_readiness_probe_is_broken_still_counts() -> Result<()> {
    let world = World::new("probe-broken").await?;
    let broken = faults::fail_readiness(&world.sandbox, "etcd-2")?;
    eventually(SOON, "etcd-2 is not Ready", || async {
        ensure!(!world.etcd.is_ready("etcd-2").await?, "it still is");
        anyhow::Ok(())
    })
    .await?;

    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.delete("etcd-0").await?;
    let (code, message) = refusal(world.delete("etcd-1").await)?;
    ensure!(
        code == 429 && message.contains("etcd-0"),
        "{code}: {message}"
    );

    world.replaced("etcd-0", &uid).await?;
    world.settled().await?;
    broken.mend();
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn when_nobody_answers_the_refusal_comes_before_the_webhook_is_given_up() -> Result<()> {
    let world = World::new("silence").await?;
    let mut frozen = Vec::new();
    for pod in world.etcd.pod_names() {
        frozen.push(PodFaults::of(&world.sandbox, &pod).await?.freeze()?);
    }

    for ask in [Ask::Delete, Ask::Evict] {
        let begun = Instant::now();
        let answer = match ask {
            Ask::Delete => world.delete("etcd-0").await,
            Ask::Evict => world.evict("etcd-0").await,
        };
        let took = begun.elapsed();
        let (code, message) = refusal(answer)?;
        ensure!(
            code == 429 && message.contains("no member gave evidence that counts"),
            "{code}: {message}"
        );
        ensure!(took < WEBHOOK_TIMEOUT, "it took {took:?}");
    }

    drop(frozen);
    world.etcd.quorate(SOON).await?;
    eventually(SOON, "etcd-0 may go", || world.delete("etcd-0")).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_client_certificate_makes_nobody_dead_and_the_budget_names_it() -> Result<()> {
    let world = World::new("expired").await?;
    world.etcd.expire_client_certificate().await?;
    let (code, message) = refusal(world.delete("etcd-0").await)?;
    ensure!(
        code == 429 && message.contains("certificate expired"),
        "{code}: {message}"
    );

    let what = "the budget says that evidence is not live";
    eventually(SOON, what, || async {
        let status = world.budget().await?.status.context("no status yet")?;
        let is = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind);
        let live = is(condition::EVIDENCE_LIVE).context("no such condition")?;
        ensure!(
            live.status == "False" && live.message.contains("certificate expired"),
            "{live:?}"
        );
        // Not known to serve is neither dead nor lost.
        let healthy = is(condition::QUORUM_HEALTHY).context("no such condition")?;
        ensure!(healthy.status == "Unknown", "{healthy:?}");
        let reasons: Vec<_> = status.members.iter().map(|m| m.why.as_deref()).collect();
        let is_ours = |why: Option<&str>| why.is_some_and(|why| why.starts_with("TLS failed"));
        ensure!(
            reasons.len() == 3 && reasons.iter().copied().all(is_ours),
            "{reasons:?}"
        );
        Ok(())
    })
    .await?;

    world.etcd.rotate_client_certificate().await?;
    world.delete("etcd-0").await?;
    world.close().await
}

/// How a pod is asked to go.
#[derive(Clone, Copy)]
enum Ask {
    Delete,
    Evict,
}
