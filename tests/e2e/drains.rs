//! Drains by `kubectl`, while a writer writes to etcd.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use quorumgate_testbed::writer::Writer;

use crate::asking::By;
use crate::bystanders;
use crate::vigil::Vigil;
use crate::world::World;

/// The longest time without a write. Two voters always serve, so a write waits for one election at
/// most.
const LONGEST_GAP: Duration = Duration::from_secs(4);

#[tokio::test(flavor = "multi_thread")]
async fn drains_of_all_nodes_with_pods_of_all_kinds_keep_a_majority_and_lose_no_write() -> Result<()>
{
    let world = World::builder("drain-all").nodes(4).start().await?;
    bystanders::deployment(&world, "web", 2).await?;
    bystanders::bare_pod(&world, "bare").await?;
    bystanders::daemon_set(&world, "everywhere").await?;
    let web = bystanders::run(&world, "web", 2).await?;
    let everywhere = bystanders::run(&world, "everywhere", 4).await?;
    let members = uids(&world).await?;

    let writer = Writer::start(&world.etcd).await?;
    let vigil = Vigil::start(&world.etcd).await?;
    for node in world.sandbox.nodes() {
        world.drain(node.name(), &["--force"]).await?;
        world.kubectl(&["uncordon", node.name()]).await?.success()?;
    }
    world.whole().await?;
    vigil.assert_never_below(2).await?;
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(
        report.longest_gap < LONGEST_GAP,
        "nothing could be written for {:?}",
        report.longest_gap
    );

    // All pods were on one of the nodes, so every pod had to move, except those that belong to a
    // node.
    let moved = uids(&world).await?;
    ensure!(members.is_disjoint(&moved), "{members:?}, then {moved:?}");
    let now = bystanders::run(&world, "web", 2).await?;
    ensure!(now.is_disjoint(&web), "{web:?}, then {now:?}");
    bystanders::run(&world, "bare", 0).await?;
    let now = bystanders::run(&world, "everywhere", 4).await?;
    ensure!(now == everywhere, "{everywhere:?}, then {now:?}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn two_drains_at_once_finish_and_lose_no_write() -> Result<()> {
    let world = World::builder("drain-two").nodes(4).start().await?;
    let writer = Writer::start(&world.etcd).await?;
    let (first, second) = (
        world.node_of("etcd-0").await?,
        world.node_of("etcd-1").await?,
    );
    let (one, other) = tokio::join!(world.drain(&first, &[]), world.drain(&second, &[]));
    one.and(other)?;
    world.whole().await?;
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(
        report.longest_gap < LONGEST_GAP,
        "nothing could be written for {:?}",
        report.longest_gap
    );
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_by_deletes_is_gated_too() -> Result<()> {
    let world = World::new("drain-deletes").await?;
    let broken = world.crash("etcd-2").await?;
    let node = world.node_of("etcd-0").await?;
    let mut by_deletes = vec!["drain", &node, "--disable-eviction"];
    by_deletes.extend([
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--timeout=20s",
    ]);

    let refused = world.kubectl(&by_deletes).await?;
    ensure!(
        !refused.succeeded(),
        "a needed member was drained by a delete"
    );
    ensure!(refused.stderr.contains("etcd-2"), "{}", refused.stderr);

    broken.mend();
    world.lets_go(By::Delete, "etcd-2").await?;
    world.whole().await?;
    world.kubectl(&by_deletes).await?.success()?;
    world.kubectl(&["uncordon", &node]).await?.success()?;
    world.whole().await?;
    world.close().await
}

async fn uids(world: &World) -> Result<BTreeSet<String>> {
    let pods = world.etcd.pods().await?.into_iter();
    Ok(pods.filter_map(|pod| pod.metadata.uid).collect())
}
