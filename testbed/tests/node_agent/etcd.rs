//! Pods with etcd members.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use quorumgate_testbed::etcd_cluster::EtcdCluster;

use crate::pods::sandbox;

#[tokio::test]
async fn three_members_are_quorate_soon_after_their_stateful_set() -> Result<()> {
    let sandbox = sandbox("members", 3).await?;
    let begun = Instant::now();
    let cluster = EtcdCluster::builder("etcd").apply(&sandbox).await?;
    cluster.quorate(Duration::from_secs(60)).await?;
    let took = begun.elapsed();
    eprintln!("quorate after {took:?}");
    // An idle machine needs less than 5 s. Other tests may make this one ten times as slow.
    ensure!(took < Duration::from_secs(45), "{took:?}");
    sandbox.close().await
}
