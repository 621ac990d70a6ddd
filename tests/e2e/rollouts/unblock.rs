//! Under `RollingUpdate`, with the feature off, the StatefulSet controller updates: it takes the highest ordinal first, and asks for it
//! again and again while the gate keeps it for the sake of a broken lower one.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use quorumgate_testbed::eventually;

use super::scene::{GAP, Watched};
use super::template::{change, outdated};
use crate::world::World;

/// The StatefulSet controller backs off for longer the more often it was refused.
const ROLLOUT: Duration = Duration::from_secs(180);

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_lower_member_does_not_block_the_statefulset_controller() -> Result<()> {
    let world = World::new("unblock").await?;
    world.etcd.move_leader("etcd-1").await?;
    let broken = world.crash("etcd-0").await?;
    let mut watched = Watched::begin(&world).await?;

    let target = change(&world, "one").await?;
    let first = watched.next().await?;
    ensure!(first == "etcd-0", "{first} went, which serves");
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
    let rest = watched.end(&world, GAP).await?;
    ensure!(rest == ["etcd-2", "etcd-1"], "{rest:?}");
    world.close().await
}
