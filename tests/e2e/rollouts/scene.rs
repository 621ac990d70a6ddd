//! What nearly every rollout here is watched by: somebody who writes, and somebody who looks in which order pods go.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, UpdateStrategy};
use quorumgate_testbed::writer::Writer;

use crate::order::Order;
use crate::world::{SOON, World, WorldBuilder};

/// What writers may wait for when a leader hands over and a follower restarts.
pub(super) const GAP: Duration = Duration::from_secs(1);

/// The same where something else is looked at: with an election, and a machine that does other things besides.
pub(super) const ELECTION: Duration = Duration::from_secs(4);

/// A world whose StatefulSet waits for somebody to delete its pods, which the gate does.
pub(crate) fn on_delete(
    name: &str,
    choose: impl FnOnce(EtcdClusterBuilder) -> EtcdClusterBuilder,
) -> WorldBuilder {
    World::builder(name)
        .etcd(|etcd| choose(etcd.update_strategy(UpdateStrategy::OnDelete)))
        .feature("QuorumAwareUpdatesWithOnDelete")
}

/// A rollout that is being watched.
#[must_use = "a rollout is watched to be asserted on"]
pub(super) struct Watched {
    writer: Writer,
    order: Order,
}

impl Watched {
    /// Begins to watch.
    pub(super) async fn begin(world: &World) -> Result<Self> {
        Ok(Self {
            order: Order::watch(world).await?,
            writer: Writer::start(&world.etcd).await?,
        })
    }

    /// Which pods began to terminate, the first first. Fails where an acknowledged write was lost, or none was possible for `gap`.
    pub(super) async fn end(self, world: &World, gap: Duration) -> Result<Vec<String>> {
        let (order, longest) = self.end_whatever_the_gap(world).await?;
        ensure!(
            longest < gap,
            "nothing could be written for {longest:?}; pods went in this order: {order:?}"
        );
        Ok(order)
    }

    /// Where members are too few to spare one, or quorum was lost for other reasons. Also how long nothing could be written.
    pub(super) async fn end_whatever_the_gap(
        self,
        world: &World,
    ) -> Result<(Vec<String>, Duration)> {
        world.whole().await?;
        let report = self.writer.stop().await?;
        report.assert_nothing_lost(&world.etcd).await?;
        Ok((self.order.stop(), report.longest_gap))
    }

    /// Waits for the next pod that begins to terminate.
    pub(super) async fn next(&mut self) -> Result<String> {
        let next = tokio::time::timeout(SOON, self.order.next()).await;
        next.context("nobody goes")?
    }

    /// The pods that have begun to terminate since the last look, the first first.
    pub(super) fn gone(&mut self) -> Vec<String> {
        self.order.gone()
    }
}
