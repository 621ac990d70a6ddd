//! A database of 1 GiB, of which a third is in use.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::{Client, CompactionOptions, DeleteOptions, Txn, TxnOp};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use quorumgate_testbed::etcd_cluster::EtcdCluster;
use quorumgate_testbed::eventually;
use tokio::process::Command;

/// The number of requests that fill the database. Each has 1 MiB, below etcd's limit.
const REQUESTS: usize = 1024;

/// The requests that are on their way at one time.
const AT_ONCE: usize = 4;

/// The values in a request, and the size of each in bytes.
const VALUES: usize = 64;
const VALUE: usize = 16 << 10;

/// The values of a request that stay.
const KEPT: usize = 21;

const SOON: Duration = Duration::from_secs(120);

/// Fills the database, unless it was filled before, and makes it fragmented: two thirds are
/// deleted, compacted, and counted by every member as free.
pub(crate) async fn make(etcd: &EtcdCluster, is_new: bool) -> Result<()> {
    let dialer = etcd.dialer().await?;
    let client = dialer
        .dial(etcd.pod_ip(&etcd.leader().await?).await?, SOON)
        .await?;
    let values = if is_new { 0..VALUES } else { KEPT..VALUES };
    let requests = (0..REQUESTS).map(|request| {
        let (mut client, values) = (client.clone(), values.clone());
        async move {
            let puts = values.map(|value| TxnOp::put(key(request, value), vec![7_u8; VALUE], None));
            let puts: Vec<_> = puts.collect();
            client.txn(Txn::new().and_then(puts)).await.map(drop)
        }
    });
    let requests = stream::iter(requests).buffer_unordered(AT_ONCE);
    requests.try_collect::<()>().await.context("cannot fill")?;
    forget(client).await?;
    // A member counts the pages that a commit has freed from a later commit on.
    eventually(SOON, "every member counts what can be freed", async || {
        let mut client = etcd.connect().await?;
        client.put("little", "some", None).await?;
        for pod in etcd.pod_names() {
            let status = etcd.connect_to(&pod).await?.status().await?;
            let (size, in_use) = (status.db_size(), status.raft_used_db_size());
            ensure!(in_use < size / 2, "{pod} has {size} bytes, {in_use} in use");
        }
        anyhow::Ok(())
    })
    .await?;
    // What is left to be written to the disk would slow down whoever comes next.
    let written = Command::new("sync").status().await?;
    ensure!(written.success(), "sync: {written}");
    Ok(())
}

/// The sizes of the members' databases in bytes, together.
pub(crate) async fn size(etcd: &EtcdCluster) -> Result<i64> {
    let mut sum = 0;
    for pod in etcd.pod_names() {
        sum += etcd.endpoint_status(&pod).await?.db_size;
    }
    Ok(sum)
}

fn key(request: usize, value: usize) -> String {
    let what = if value < KEPT { "kept" } else { "dropped" };
    format!("{what}/{request}/{value}")
}

async fn forget(mut client: Client) -> Result<()> {
    let all = DeleteOptions::new().with_prefix();
    let deleted = client.delete("dropped/", Some(all)).await?;
    let revision = deleted.header().context("no header")?.revision();
    let physical = CompactionOptions::new().with_physical();
    client.compact(revision, Some(physical)).await?;
    Ok(())
}
