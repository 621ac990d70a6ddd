//! Deletes of single members, and the different forms of such a request.

use anyhow::{Result, ensure};
use kube::api::{DeleteParams, ListParams};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::PodFaults;

use crate::asking::{By, refusal};
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_member_is_granted_settled_and_serves_again_under_a_new_address() -> Result<()> {
    let world = World::new("delete-one").await?;
    let uid = world.etcd.pod_uid("etcd-1").await?;
    let address = world.etcd.pod_ip("etcd-1").await?;

    let said = world
        .kubectl(&["delete", "pod", "etcd-1", "--wait=false"])
        .await?
        .success()?;
    ensure!(said.contains("deleted"), "{said}");
    let granted = world.granted().await?;
    ensure!(granted == ["etcd-1"], "grants: {granted:?}");

    world.replaced("etcd-1", &uid).await?;
    ensure!(
        world.etcd.pod_ip("etcd-1").await? != address,
        "the address was used again"
    );
    world.settled().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_deletes_at_the_same_moment_from_two_replicas_one_is_allowed() -> Result<()> {
    let world = World::new("delete-two").await?;
    for round in 0..3 {
        world.whole().await?;
        let (first, second) = tokio::join!(world.delete("etcd-0"), world.delete("etcd-1"));
        let (allowed, others): (Vec<_>, Vec<_>) =
            [first, second].into_iter().partition(Result::is_ok);
        let refused = others.into_iter().map(refusal);
        let refused = refused.collect::<Result<Vec<_>>>()?;
        ensure!(
            allowed.len() == 1 && refused.len() == 1,
            "round {round}: {} of two were allowed",
            allowed.len()
        );
        ensure!(refused.iter().all(|(code, _)| *code == 429), "{refused:?}");
    }
    let asked = world.gate.balancer().connections();
    ensure!(
        asked.iter().all(|connections| *connections > 0),
        "one replica was never asked: {asked:?}"
    );
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_member_may_go_and_a_healthy_one_has_to_stay_with_names_and_numbers() -> Result<()> {
    let world = World::new("delete-dead").await?;
    let broken = world.crash("etcd-2").await?;

    world
        .has_to_wait_by(By::Delete, "etcd-0", &["etcd-0", "etcd-2", "2 of 3"])
        .await?;
    let (code, _) = refusal(world.evict("etcd-1").await)?;
    ensure!(code == 429, "an eviction was refused with {code}");

    world.lets_go(By::Delete, "etcd-2").await?;
    broken.mend();
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_delete_of_a_serving_member_counts_like_any_other() -> Result<()> {
    let world = World::new("delete-force").await?;
    let forced = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    let uid = world.etcd.pod_uid("etcd-0").await?;

    world.pods().delete("etcd-0", &forced).await?;
    let (code, _) = refusal(world.pods().delete("etcd-1", &forced).await)?;
    ensure!(code == 429, "the second was refused with {code}");

    world.replaced("etcd-0", &uid).await?;
    world.settled().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_delete_takes_one_member_and_stops_at_the_next() -> Result<()> {
    let world = World::new("delete-all").await?;
    let members = ListParams::default().labels("app=etcd");
    let found = world.pods().list(&members).await?.items.len();
    ensure!(found == 3, "{found} pods carry the members' label");

    let (code, _) = refusal(
        world
            .pods()
            .delete_collection(&DeleteParams::default(), &members)
            .await,
    )?;
    ensure!(code == 429, "it was refused with {code}");
    let granted = world.granted().await?;
    ensure!(granted.len() == 1, "grants: {granted:?}");
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_of_every_kind_leave_no_trace() -> Result<()> {
    let world = World::new("dry-run").await?;
    let before = world.budget().await?;
    let node = world.node_of("etcd-0").await?;

    let dry = DeleteParams {
        dry_run: true,
        ..DeleteParams::default()
    };
    world.pods().delete("etcd-0", &dry).await?;
    let drain = [
        "drain",
        &node,
        "--dry-run=server",
        "--ignore-daemonsets",
        "--delete-emptydir-data",
    ];
    world.kubectl(&drain).await?.success()?;

    ensure!(world.granted().await?.is_empty(), "a dry run took a grant");
    let seq = |budget: &quorumgate::api::QuorumDisruptionBudget| {
        budget.status.as_ref().map(|status| status.ledger.last_seq)
    };
    ensure!(
        seq(&before) == seq(&world.budget().await?),
        "a dry run raised the sequence number"
    );
    ensure!(
        world
            .pods()
            .get("etcd-0")
            .await?
            .metadata
            .deletion_timestamp
            .is_none()
    );

    // A dry run is refused exactly when the real request would be.
    let broken = world.crash("etcd-2").await?;
    let (code, _) = refusal(world.pods().delete("etcd-0", &dry).await)?;
    ensure!(code == 429, "{code}");
    broken.mend();
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_of_a_pod_that_is_not_there_is_not_found() -> Result<()> {
    let world = World::new("evict-none").await?;
    let (code, message) = refusal(world.evict("etcd-7").await)?;
    ensure!(code == 404, "{code}: {message}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_member_costs_its_probe_and_the_verdict_still_comes() -> Result<()> {
    let world = World::new("frozen").await?;
    let frozen = PodFaults::find(&world.sandbox, "etcd-2").await?.freeze()?;

    let begun = std::time::Instant::now();
    world
        .has_to_wait_by(By::Delete, "etcd-0", &["etcd-2"])
        .await?;
    ensure!(
        begun.elapsed().as_secs() < 5,
        "it took {:?}",
        begun.elapsed()
    );

    frozen.thaw();
    world.etcd.serves("etcd-2", SOON).await?;
    eventually(SOON, "etcd-0 may go again", || world.delete("etcd-0")).await?;
    world.close().await
}
