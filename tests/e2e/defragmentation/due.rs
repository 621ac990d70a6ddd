//! Which runs are made: what is due, what is asked for, and what keeps a member from being
//! defragmented.

use anyhow::{Result, ensure};
use quorumgate_testbed::etcd_cluster::EtcdClusterBuilder;
use quorumgate_testbed::eventually;
use serde_json::json;

use super::{REPORT, all_ran, each_ran, fragmented, request, says, sizes, wish};
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn what_a_defragmentation_would_free_is_reported_and_nothing_is_done() -> Result<()> {
    let world = fragmented(World::builder("defrag-report")).await?;
    let sizes = sizes(&world).await?;
    wish(&world, "Report").await?;
    eventually(REPORT, "it is reported what can be freed", || async {
        let condition = world.condition("Defragmented").await?;
        ensure!(
            condition.reason == "ReportOnly" && condition.message.contains("can be freed"),
            "{condition:?}"
        );
        Ok(())
    })
    .await?;
    for (before, after) in sizes.iter().zip(super::sizes(&world).await?) {
        ensure!(after >= *before, "{before} bytes became {after}");
    }
    ensure!(world.granted().await?.is_empty(), "something was permitted");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_value_of_the_annotation_asks_for_one_run() -> Result<()> {
    let world = fragmented(World::builder("defrag-asked").etcd(|etcd| etcd.replicas(1))).await?;
    wish(&world, "Report").await?;
    says(&world, "ReportOnly").await?;
    each_ran(&world, 0).await?;
    request(&world, "monday").await?;
    all_ran(&world, Some("monday")).await?;
    says(&world, "NothingDue").await?;
    each_ran(&world, 1).await?;
    // Other processes ask for nothing more by a value that was served.
    for replica in world.gate.replicas() {
        replica.restart().await?;
    }
    world.gate.in_force(SOON).await?;
    request(&world, "tuesday").await?;
    all_ran(&world, Some("tuesday")).await?;
    each_ran(&world, 2).await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_liveness_probe_is_a_reason_to_leave_the_member_alone() -> Result<()> {
    let probe = |failures: u32| {
        json!({
            "tcpSocket": {"port": "metrics"},
            "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": failures,
        })
    };
    let with_probe = |etcd: EtcdClusterBuilder| {
        etcd.container_field("startupProbe", probe(60))
            .container_field("livenessProbe", probe(1))
    };
    let world = fragmented(World::builder("defrag-liveness").etcd(with_probe)).await?;
    wish(&world, "Auto").await?;
    says(&world, "LivenessTooShort").await?;
    let condition = world.condition("Defragmented").await?;
    ensure!(condition.message.contains("bears 2 s"), "{condition:?}");
    each_ran(&world, 0).await?;
    ensure!(world.last_seq().await? == 0, "something was permitted");
    world.close().await
}
