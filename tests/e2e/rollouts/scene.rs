//! The observers of nearly every rollout here: a writer, and a watch of the order in which pods go.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::etcd_cluster::{EtcdClusterBuilder, UpdateStrategy};
use quorumgate_testbed::writer::Writer;

use crate::order::Order;
use crate::world::{SOON, World, WorldBuilder};

/// The longest time without a write when a leader hands over and a follower restarts.
pub(super) const GAP: Duration = Duration::from_secs(1);

/// The longest time without a write in tests of something else: one election on a busy machine.
pub(super) const ELECTION: Duration = Duration::from_secs(4);

/// A world whose StatefulSet has the strategy `OnDelete`, with the gate's rollouts switched on.
pub(crate) fn on_delete(
    name: &str,
    choose: impl FnOnce(EtcdClusterBuilder) -> EtcdClusterBuilder,
) -> WorldBuilder {
    World::builder(name)
        .etcd(|etcd| choose(etcd.update_strategy(UpdateStrategy::OnDelete)))
        .feature("QuorumAwareUpdatesWithOnDelete")
}

/// A rollout with its observers.
#[must_use = "a rollout is watched to be asserted on"]
pub(super) struct Watched {
    writer: Writer,
    order: Order,
}

impl Watched {
    /// Starts the observers.
    pub(super) async fn begin(world: &World) -> Result<Self> {
        Ok(Self {
            order: Order::watch(world).await?,
            writer: Writer::start(&world.etcd).await?,
        })
    }

    /// The pods that began to terminate, in order. Fails if an acknowledged write was lost, or if
    /// no write was possible for `gap`.
    pub(super) async fn end(self, world: &World, gap: Duration) -> Result<Vec<String>> {
        let (order, longest) = self.end_with_any_gap(world).await?;
        ensure!(
            longest < gap,
            "nothing could be written for {longest:?}; pods went in this order: {order:?}"
        );
        Ok(order)
    }

    /// As [`Self::end`] without a limit, for clusters that can spare no member or lost their
    /// quorum. Also returns the longest time without a write.
    pub(super) async fn end_with_any_gap(self, world: &World) -> Result<(Vec<String>, Duration)> {
        world.whole().await?;
        let report = self.writer.stop().await?;
        report.assert_nothing_lost(&world.etcd).await?;
        Ok((self.order.stop(), report.longest_gap))
    }

    /// Waits for the next pod that begins to terminate.
    pub(super) async fn next(&mut self) -> Result<String> {
        let next = tokio::time::timeout(SOON, self.order.next()).await;
        next.context("no pod begins to terminate")?
    }

    /// The pods that have begun to terminate since the last call, in order.
    pub(super) fn gone(&mut self) -> Vec<String> {
        self.order.gone()
    }
}
