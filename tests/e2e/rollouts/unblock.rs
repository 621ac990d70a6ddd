//! Rollouts by the StatefulSet controller under `RollingUpdate`, with the gate's feature off. The
//! controller waits for a broken lower member, or asks again and again for the highest one, which
//! the gate keeps because another is broken.

use anyhow::{Result, bail, ensure};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, PodManagement, Readiness};
use quorumgate_testbed::eventually;

use super::scene::{ELECTION, Watched};
use super::template::{change, outdated};
use super::told::ROLLOUT;
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_lower_member_does_not_block_the_statefulset_controller() -> Result<()> {
    let mut order = past_a_broken_member("unblock", PodManagement::Parallel).await?;
    // From Kubernetes 1.37 on that controller deletes broken members too. It creates etcd-0 with
    // the old revision as long as the spec states no partition, so that etcd-0 goes twice.
    order.dedup();
    ensure!(order == ["etcd-0", "etcd-2", "etcd-1"], "{order:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_lower_member_does_not_block_an_ordered_statefulset() -> Result<()> {
    let order = past_a_broken_member("unblock-ordered", PodManagement::OrderedReady).await?;
    ensure!(order == ["etcd-0", "etcd-2", "etcd-1"], "{order:?}");
    Ok(())
}

/// The order in which pods go if etcd-0 is broken until it is replaced.
async fn past_a_broken_member(name: &str, management: PodManagement) -> Result<Vec<String>> {
    // With ordered creation the first member has no quorum yet, so readiness must not need one.
    let choose = |etcd: EtcdClusterBuilder| etcd.readiness(Readiness::Process);
    let world = World::builder(name)
        .etcd(|etcd| choose(etcd).pod_management(management))
        .start()
        .await?;
    world.etcd.move_leader("etcd-1").await?;
    let broken = world.crash("etcd-0").await?;
    let mut watched = Watched::begin(&world).await?;

    let target = change(&world, "one").await?;
    let mut order = vec![watched.next().await?];
    ensure!(order == ["etcd-0"], "{order:?} went, which serves");
    broken.mend();
    eventually(
        ROLLOUT,
        "all members are updated",
        async || match outdated(&world, &target).await? {
            left if left.is_empty() => Ok(()),
            left => bail!("{left:?} are not"),
        },
    )
    .await?;
    order.extend(watched.end(&world, ELECTION).await?);
    world.close().await?;
    Ok(order)
}
