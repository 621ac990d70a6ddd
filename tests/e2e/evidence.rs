//! Evidence comes from etcd: neither readiness probes nor missing answers decide who serves.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use quorumgate::api::condition;
use quorumgate_testbed::etcd_cluster::Readiness;
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{self, PodFaults};
use serde_json::json;

use crate::asking::{By, refusal};
use crate::world::{SOON, World};

/// The time after which the API server gives up a call of a webhook.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_member_that_is_ready_does_not_count() -> Result<()> {
    let world = World::builder("partitioned")
        .etcd(|etcd| etcd.readiness(Readiness::Process))
        .start()
        .await?;
    let leader = world.etcd.leader().await?;
    // A follower is cut off, so that no election is a second reason to refuse.
    let lost = world.etcd.followers().await?.pop().context("no follower")?;
    let cut = PodFaults::find(&world.sandbox, &lost).await?.partition()?;

    for by in By::BOTH {
        world.has_to_wait_by(by, &leader, &[&lost]).await?;
    }
    // After it has noticed the loss of its peers, the member reports that it knows no leader. Its
    // pod stays Ready.
    eventually(SOON, "the partitioned member knows no leader", || async {
        let status = world.etcd.endpoint_status(&lost).await?;
        ensure!(status.leader.is_none(), "it follows {:?}", status.leader);
        Ok(())
    })
    .await?;
    ensure!(world.etcd.is_ready(&lost).await?, "{lost} is not Ready");
    for by in By::BOTH {
        world.has_to_wait_by(by, &leader, &[&lost]).await?;
    }

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
    // A member that is not Ready counts once its process runs for a while.
    eventually(SOON, "etcd-0 may go", || world.delete("etcd-0")).await?;
    world.has_to_wait("etcd-1", &["etcd-0"]).await?;
    world.replaced("etcd-0", &uid).await?;
    world.settled().await?;

    // The companion budget knows only readiness. It must not refuse an eviction that etcd can
    // spare.
    let uid = world.etcd.pod_uid("etcd-1").await?;
    eventually(SOON, "etcd-1 is evicted", || world.evict("etcd-1")).await?;
    world.has_to_wait("etcd-0", &["etcd-1"]).await?;
    world.replaced("etcd-1", &uid).await?;
    world.settled().await?;
    broken.mend();
    world.close().await
}

/// Some scripts run etcd, end it and run it again before the pod becomes Ready.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_has_just_started_counts_when_it_is_ready_or_runs_for_a_while() -> Result<()>
{
    let world = World::new("just-started").await?;
    let broken = faults::fail_readiness(&world.sandbox, "etcd-2")?;
    eventually(SOON, "etcd-2 is not Ready", || async {
        ensure!(!world.etcd.is_ready("etcd-2").await?, "it still is");
        anyhow::Ok(())
    })
    .await?;
    PodFaults::find(&world.sandbox, "etcd-2").await?.kill()?;
    eventually(SOON, "etcd-0 waits for the end of the start", || async {
        let (code, message) = refusal(world.delete("etcd-0").await)?;
        ensure!(
            code == 429 && message.contains("etcd-2 (it has just started"),
            "{code}: {message}"
        );
        Ok(())
    })
    .await?;
    world.etcd.serves("etcd-2", SOON).await?;
    eventually(SOON, "etcd-0 may go", || world.delete("etcd-0")).await?;
    broken.mend();
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_asks_for_readiness_judges_by_it_and_says_that_this_is_weaker() -> Result<()>
{
    let world = World::new("readiness").await?;
    let by_readiness = json!({"spec": {"members": {"evidence": "Readiness"}}});
    world
        .budgets()
        .patch(
            world.etcd.name(),
            &PatchParams::default(),
            &Patch::Merge(by_readiness),
        )
        .await?;
    eventually(SOON, "the budget says so", || async {
        let live = world.condition(condition::EVIDENCE_LIVE).await?;
        ensure!(
            live.status == "False" && live.reason == "Readiness" && live.message.contains("weaker"),
            "{live:?}"
        );
        Ok(())
    })
    .await?;

    // The member serves and is not Ready.
    let broken = faults::fail_readiness(&world.sandbox, "etcd-2")?;
    eventually(SOON, "etcd-2 is not Ready", || async {
        ensure!(!world.etcd.is_ready("etcd-2").await?, "it still is");
        anyhow::Ok(())
    })
    .await?;
    world.etcd.serves("etcd-2", SOON).await?;
    world
        .has_to_wait_by(
            By::Delete,
            "etcd-0",
            &["etcd-2 (its container is not ready)"],
        )
        .await?;
    broken.mend();

    // From here on no member accepts the gate's certificate.
    world.etcd.expire_client_certificate().await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    eventually(SOON, "etcd-0 may go", || world.delete("etcd-0")).await?;
    // For a moment there is no pod of that name, so that its refusal does not name it.
    world.has_to_wait("etcd-1", &["etcd-1 is needed"]).await?;
    world.replaced("etcd-0", &uid).await?;
    world.settled().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn when_nobody_answers_the_refusal_comes_before_the_webhook_is_given_up() -> Result<()> {
    let world = World::new("silence").await?;
    let mut frozen = Vec::new();
    for pod in world.etcd.pod_names() {
        frozen.push(PodFaults::find(&world.sandbox, &pod).await?.freeze()?);
    }

    for by in By::BOTH {
        let begun = Instant::now();
        let answer = world.ask(by, "etcd-0").await;
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
    // With this name in the budget the gate looks for no other certificate.
    let named = json!({"spec": {"members": {"tls": {"clientSecret": {"name": "etcd-client"}}}}});
    let params = PatchParams::default();
    let budgets = world.budgets();
    budgets.patch("etcd", &params, &Patch::Merge(named)).await?;
    world.etcd.expire_client_certificate().await?;
    // Secrets are read every ten seconds while all members answer.
    let what = "the budget says that evidence is not live";
    eventually(SOON, what, || async {
        let status = world.budget().await?.status.context("no status yet")?;
        let is = |kind: &str| status.conditions.iter().find(|c| c.type_ == kind);
        let live = is(condition::EVIDENCE_LIVE).context("no such condition")?;
        ensure!(
            live.status == "False" && live.message.contains("certificate expired"),
            "{live:?}"
        );
        // A member that is not known to serve is neither dead nor lost.
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

    world
        .has_to_wait_by(By::Delete, "etcd-0", &["certificate expired"])
        .await?;

    world.etcd.rotate_client_certificate().await?;
    // The first call after the renewal already uses the new certificate.
    world.lets_go(By::Delete, "etcd-0").await?;
    world.close().await
}
