//! Pods that are created one after another, while the first one waits.

use anyhow::{Result, ensure};
use quorumgate_testbed::etcd_cluster::{PodManagement, Readiness};
use quorumgate_testbed::eventually;

use super::{
    gates, identities, is_whole_without, lose_volume, protected_with, request, write_some,
};
use crate::teardown::{announce, no_pods, orphaned, recreate};
use crate::world::SOON;

/// etcd-0 lost its volume while no member ran, so it waits when all are woken. Its StatefulSet
/// creates no other pod before it is Ready. The condition says how the others start.
#[tokio::test(flavor = "multi_thread")]
async fn members_behind_a_pod_that_waits_start_as_the_condition_says() -> Result<()> {
    let world = protected_with("ordered", "Manual", |etcd| {
        etcd.pod_management(PodManagement::OrderedReady)
            .readiness(Readiness::Process)
    })
    .await?;
    let before = write_some(&world.etcd).await?;
    let id = world.etcd.member("etcd-0").await?.id;
    lose_volume(&world, "etcd-0").await?;
    announce(&world, "hibernate").await?;
    world.etcd.scale(0).await?;
    no_pods(&world).await?;
    world.etcd.scale(3).await?;
    eventually(SOON, "etcd-0 waits", || async {
        let gates = gates(&world, "etcd-0").await?;
        ensure!(gates == ["quorumgate.io/identity"], "{gates:?}");
        Ok(())
    })
    .await?;
    world
        .reported("DataProtected", |c| {
            let says = "etcd-1, etcd-2 is not created";
            c.message.contains(says) && c.message.contains("--cascade=orphan")
        })
        .await?;
    let mut set = orphaned(&world).await?;
    if let Some(spec) = &mut set.spec {
        spec.pod_management_policy = Some("Parallel".to_owned());
    }
    recreate(&world, set).await?;
    world
        .reported("QuorumHealthy", |c| c.status == "True")
        .await?;
    request(&world, &format!("{id:x}")).await?;
    is_whole_without(&world, id).await?;
    before.assert_nothing_lost(&world.etcd).await?;
    let (ids, _) = identities(&world).await?;
    ensure!(ids.len() == 3, "{ids:?}");
    world.close().await
}
