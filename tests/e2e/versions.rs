//! Members of every supported etcd version are guarded alike. Nearly all other tests run the
//! newest; cases whose course etcd decides run on the older ones too, in [`older`].

mod older;

use anyhow::Result;
use quorumgate_testbed::etcd_cluster::EtcdVersion;

use crate::asking::By;
use crate::world::World;

/// Checks that one delete passes, that a second one waits, and that a drain of the leader's node
/// ends.
async fn are_guarded(version: EtcdVersion, name: &str) -> Result<()> {
    let world = World::builder(name)
        .nodes(4)
        .etcd(|etcd| etcd.version(version))
        .start()
        .await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world
        .has_to_wait("etcd-1", &["etcd-0", "of 3 voters"])
        .await?;
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;

    let leader = world.etcd.leader().await?;
    let uid = world.etcd.pod_uid(&leader).await?;
    world.drain(&world.node_of(&leader).await?, &[]).await?;
    world.replaced(&leader, &uid).await?;
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_etcd_3_4_are_guarded() -> Result<()> {
    are_guarded(EtcdVersion::V3_4, "v3-4").await
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_etcd_3_5_are_guarded() -> Result<()> {
    are_guarded(EtcdVersion::V3_5, "v3-5").await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "make versions runs it"]
async fn members_of_etcd_3_6_are_guarded() -> Result<()> {
    are_guarded(EtcdVersion::V3_6, "v3-6").await
}
