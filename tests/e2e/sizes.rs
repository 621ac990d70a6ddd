//! Clusters of other sizes than three.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};

use crate::asking::{By, refusal};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn the_only_member_may_go_and_serves_again() -> Result<()> {
    let world = World::builder("size-one")
        .nodes(1)
        .etcd(|etcd| etcd.replicas(1))
        .start()
        .await?;
    let uid = world.etcd.pod_uid("etcd-0").await?;
    world.lets_go(By::Delete, "etcd-0").await?;
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_members_none_goes_without_an_override_on_its_pod() -> Result<()> {
    let world = World::builder("size-two")
        .nodes(2)
        .etcd(|etcd| etcd.replicas(2))
        .start()
        .await?;
    world
        .has_to_wait_by(By::Delete, "etcd-0", &["policy.twoMembers"])
        .await?;
    // The companion budget refuses as well.
    let (code, message) = refusal(world.evict("etcd-0").await)?;
    ensure!(code == 429, "{code}: {message}");

    let uid = world.etcd.pod_uid("etcd-0").await?;
    let until = Timestamp::now().checked_add(SignedDuration::from_mins(10))?;
    let annotation = format!("quorumgate.io/override-until={until}");
    world
        .kubectl(&["annotate", "pod", "etcd-0", &annotation])
        .await?
        .success()?;
    let (code, message) = refusal(world.delete("etcd-1").await)?;
    ensure!(
        code == 429,
        "the override of etcd-0 let etcd-1 go: {message}"
    );
    world.lets_go(By::Delete, "etcd-0").await?;
    world.replaced("etcd-0", &uid).await?;
    world.whole().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_three_deletes_at_once_five_members_spare_two() -> Result<()> {
    let world = World::builder("size-five")
        .nodes(5)
        .etcd(|etcd| etcd.replicas(5))
        .start()
        .await?;
    let followers = world.etcd.followers().await?;
    let [one, two, three, ..] = followers.as_slice() else {
        anyhow::bail!("{} followers", followers.len());
    };
    let (first, second, third) =
        tokio::join!(world.delete(one), world.delete(two), world.delete(three));
    let refused: Vec<_> = [first, second, third]
        .into_iter()
        .filter_map(|answer| refusal(answer).ok())
        .collect();
    ensure!(
        matches!(refused.as_slice(), [(429, _)]),
        "refused of three: {refused:?}"
    );
    world.whole().await?;
    world.close().await
}
