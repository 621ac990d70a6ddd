//! NOSPACE: what can be mended, and what only the owner can.

use std::cell::Cell;

use anyhow::{Context as _, Result, ensure};
use etcd_client::{Txn, TxnOp};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, EtcdVersion};
use quorumgate_testbed::eventually;

use super::{RUN, each_ran, forget, patient, says, what_can_be_freed_is_counted, wish};
use crate::world::World;

/// The quota of each member in bytes, and the size that leaves room.
const QUOTA: u64 = 96 << 20;
const LIMIT: i64 = 86 << 20;

/// The values that fill it, so many in a request, and the size of each in bytes. Large values would
/// leave gaps that a defragmentation frees.
const VALUES: u64 = 100;
const VALUE: u64 = 4000;

/// The number of little values that can be deleted one by one while nothing can be written.
const DELETES: u32 = 200;

/// Checks that a full cluster is left alone while nothing can be freed, and serves again as soon as
/// the owner has deleted and compacted.
async fn is_mended(version: EtcdVersion, name: &str) -> Result<()> {
    let small = |etcd: EtcdClusterBuilder| {
        let etcd = etcd.version(version).claim_size("8Gi");
        etcd.quota_bytes(QUOTA)
    };
    let world = World::builder(name).etcd(small).start().await?;
    let mut etcd = patient(&world).await?;
    for key in 0..DELETES {
        etcd.put(format!("little/{key}"), "some", None).await?;
    }
    let full = async {
        for piece in 0..2 * QUOTA / (VALUES * VALUE) {
            let value = vec![7_u8; usize::try_from(VALUE)?];
            let put = |n| TxnOp::put(format!("piece/{piece}/{n}"), value.clone(), None);
            let puts: Vec<_> = (0..VALUES).map(put).collect();
            if let Err(error) = etcd.txn(Txn::new().and_then(puts)).await {
                return Ok(error.to_string());
            }
        }
        anyhow::bail!("the quota does not hold")
    };
    let why = full.await?;
    ensure!(why.contains("database space exceeded"), "{why}");
    wish(&world, "Auto").await?;
    says(&world, "NothingToReclaim").await?;
    each_ran(&world, 0).await?;
    ensure!(world.last_seq().await? == 0, "something was permitted");

    forget(&world, "piece/").await?;
    // Nothing can be written, and deletes are committed too.
    let deletes = Cell::new(0..DELETES);
    what_can_be_freed_is_counted(&world, async || {
        let mut left = deletes.take();
        let key = left.next().context("all are deleted")?;
        deletes.set(left);
        let mut etcd = world.etcd.connect().await?;
        etcd.delete(format!("little/{key}"), None).await?;
        Ok(())
    })
    .await?;
    eventually(RUN, "writes pass again", || async {
        let mut etcd = world.etcd.connect().await?;
        etcd.put("after", "all", None).await?;
        anyhow::Ok(())
    })
    .await?;
    for status in world.etcd.statuses().await? {
        ensure!(status.errors.is_empty(), "{status:?}");
        ensure!(status.db_size < LIMIT, "{status:?}");
    }
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn nospace_is_mended_where_there_is_something_to_free() -> Result<()> {
    is_mended(EtcdVersion::V3_7, "defrag-nospace").await
}

/// Only its metrics tell its quota.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn nospace_is_mended_on_etcd_3_5() -> Result<()> {
    is_mended(EtcdVersion::V3_5, "defrag-nospace-3-5").await
}
