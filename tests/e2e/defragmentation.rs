//! The report on what a defragmentation of real members would free.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etcd_client::{CompactionOptions, DeleteOptions};
use kube::api::{Patch, PatchParams};
use quorumgate_testbed::eventually;
use serde_json::json;

use crate::world::World;

/// The time limit for the report. A cluster at rest is looked at once a minute.
const REPORT: Duration = Duration::from_secs(180);

/// The number of values, and the size of each in bytes, below etcd's limit for a request.
const PIECES: u32 = 64;
const PIECE: usize = 1 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_defragmentation_would_free_is_reported_and_nothing_is_done() -> Result<()> {
    let world = World::builder("defrag-report")
        .etcd(|etcd| etcd.claim_size("8Gi"))
        .start()
        .await?;
    let wishes = json!({"mode": "Report", "minReclaim": "32Mi", "minPercent": 30});
    let patch = json!({"spec": {"defragmentation": wishes}});
    let budgets = world.budgets();
    budgets
        .patch("etcd", &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    fragment(&world).await?;
    let sizes = sizes(&world).await?;
    eventually(REPORT, "it is reported what can be freed", || async {
        let condition = world.condition("Defragmented").await?;
        ensure!(
            condition.reason == "ReportOnly" && condition.message.contains("can be freed"),
            "{condition:?}"
        );
        Ok(())
    })
    .await?;
    for (before, after) in sizes.iter().zip(self::sizes(&world).await?) {
        ensure!(after >= *before, "{before} bytes became {after}");
    }
    ensure!(world.granted().await?.is_empty(), "something was permitted");
    world.close().await
}

/// Writes, deletes and compacts, so that the databases have free pages.
async fn fragment(world: &World) -> Result<()> {
    let mut etcd = world.etcd.connect().await?;
    for piece in 0..PIECES {
        let key = format!("fragment/{piece}");
        etcd.put(key, vec![7_u8; PIECE], None).await?;
    }
    let all = DeleteOptions::new().with_prefix();
    let deleted = etcd.delete("fragment/", Some(all)).await?;
    let revision = deleted.header().context("no header")?.revision();
    let physical = CompactionOptions::new().with_physical();
    etcd.compact(revision, Some(physical)).await?;
    Ok(())
}

async fn sizes(world: &World) -> Result<Vec<i64>> {
    let mut sizes = Vec::new();
    for pod in world.etcd.pod_names() {
        sizes.push(world.etcd.endpoint_status(&pod).await?.db_size);
    }
    Ok(sizes)
}
