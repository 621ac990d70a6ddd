//! The writer against real members.

use std::time::Duration;

use anyhow::Result;
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::faults::PodFaults;
use quorumgate_testbed::writer::Writer;
use quorumgate_testbed::{Bed, Sandbox, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

async fn cluster(name: &str) -> Result<(Sandbox, EtcdCluster)> {
    let mut sandbox = Bed::up().await?.sandbox(name).await?;
    sandbox.add_nodes(3).await?;
    let cluster = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    cluster.quorate(PATIENCE).await?;
    Ok((sandbox, cluster))
}

/// Waits until the writer has written some more keys.
async fn goes_on(writer: &Writer) -> Result<()> {
    let before = writer.acknowledged();
    eventually(PATIENCE, "the writer goes on", async || {
        writer.acknowledged() >= before + 5
    })
    .await
}

#[tokio::test]
async fn a_frozen_majority_counts_as_failure_and_loses_nothing() -> Result<()> {
    let (sandbox, cluster) = cluster("majority").await?;
    let writer = Writer::start(&cluster).await?;
    goes_on(&writer).await?;

    let frozen = [
        PodFaults::find(&sandbox, "etcd-0").await?.freeze()?,
        PodFaults::find(&sandbox, "etcd-1").await?.freeze()?,
    ];
    let (acknowledged, failures) = (writer.acknowledged(), writer.failures());
    eventually(PATIENCE, "writes fail", async || {
        writer.failures() >= failures + 3
    })
    .await?;
    // A write that was under way when the majority froze may still have been acknowledged.
    assert!(writer.acknowledged() <= acknowledged + 1);
    let gap = writer.longest_gap();
    drop(frozen);
    goes_on(&writer).await?;

    let report = writer.stop().await?;
    assert!(report.longest_gap >= gap);
    assert!(report.failures.len() >= 3);
    report.assert_nothing_lost(&cluster).await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_frozen_follower_is_written_around() -> Result<()> {
    let (sandbox, cluster) = cluster("follower").await?;
    let writer = Writer::start(&cluster).await?;
    goes_on(&writer).await?;
    let follower = cluster.followers().await?.remove(0);
    let frozen = PodFaults::find(&sandbox, &follower).await?.freeze()?;
    eventually(PATIENCE, "the frozen follower is noticed", async || {
        writer.failures() > 0
    })
    .await?;
    goes_on(&writer).await?;
    frozen.thaw();
    let report = writer.stop().await?;
    report.assert_nothing_lost(&cluster).await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_killed_member_is_found_again_and_nothing_is_lost() -> Result<()> {
    let (sandbox, cluster) = cluster("killed").await?;
    let writer = Writer::start(&cluster).await?;
    goes_on(&writer).await?;
    let leader = cluster.leader().await?;
    PodFaults::find(&sandbox, &leader).await?.kill()?;
    goes_on(&writer).await?;
    cluster.quorate(PATIENCE).await?;
    let report = writer.stop().await?;
    report.assert_nothing_lost(&cluster).await?;
    sandbox.close().await
}

#[tokio::test]
async fn a_lost_write_is_reported_by_its_key() -> Result<()> {
    let (sandbox, cluster) = cluster("lost").await?;
    let writer = Writer::start(&cluster).await?;
    goes_on(&writer).await?;
    let report = writer.stop().await?;
    let lost = report.acknowledged[1].key.clone();
    cluster.connect().await?.delete(lost.as_str(), None).await?;
    let error = report
        .assert_nothing_lost(&cluster)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&lost) && error.starts_with("1 of "),
        "{error}"
    );
    sandbox.close().await
}
