//! A leader hands over before its pod goes.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::writer::Writer;

use crate::asking::By;
use crate::world::{SOON, World};

/// etcd's election timeout: the least time without writes after a leader vanished. With leadership
/// moved first, writers waited 0.11 s and 0.14 s on a machine with more than twenty other busy
/// processes. That is one period of the writer and one refusal of a member.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread")]
async fn leadership_has_moved_before_the_leader_is_told_to_go() -> Result<()> {
    let world = World::new("leader-moves").await?;
    let held = Held::leader(&world).await?;
    world.lets_go(By::Eviction, held.pod()).await?;
    held.has_handed_over().await?;
    held.release().await?;
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_wait_less_than_an_election_timeout_when_the_leader_is_evicted() -> Result<()> {
    let world = World::new("leader-evicted").await?;
    let leader = world.etcd.leader().await?;
    let uid = world.etcd.pod_uid(&leader).await?;

    let writer = Writer::start(&world.etcd).await?;
    world.lets_go(By::Eviction, &leader).await?;
    world.replaced(&leader, &uid).await?;
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(
        report.longest_gap < ELECTION_TIMEOUT,
        "nothing could be written for {:?}",
        report.longest_gap
    );
    world.whole().await?;
    world.close().await
}

/// Each drain takes the leader's node, and starts as soon as the cluster is whole. The next leader
/// may have led for a moment only; then the drain is refused until that leader has led for 5 s.
/// `kubectl drain` repeats a refused eviction after 5 s.
#[tokio::test(flavor = "multi_thread")]
async fn three_drains_in_a_row_move_leadership_every_time() -> Result<()> {
    let world = World::builder("leader-drains").nodes(4).start().await?;
    let writer = Writer::start(&world.etcd).await?;
    let mut moves = BTreeSet::new();
    for _ in 0..3 {
        let leader = world.etcd.leader().await?;
        let id = world.etcd.member(&leader).await?.id;
        let node = world.node_of(&leader).await?;
        world.drain(&node, &[]).await?;
        let begun = world.budget().await?.status.and_then(|s| s.leader_move);
        let begun = begun.context("the budget records no move of leadership")?;
        ensure!(
            begun.from == format!("{id:016x}") || begun.from == format!("{id:x}"),
            "{leader} ({id:x}) went as leader: the last move was {begun:?}"
        );
        ensure!(
            moves.insert(begun.term),
            "{leader} went as leader: no move since term {}",
            begun.term
        );
        world.kubectl(&["uncordon", &node]).await?.success()?;
        world.whole().await?;
    }
    let report = writer.stop().await?;
    report.assert_nothing_lost(&world.etcd).await?;
    ensure!(
        report.longest_gap < ELECTION_TIMEOUT,
        "nothing could be written for {:?}",
        report.longest_gap
    );
    world.close().await
}

/// A leader on a node whose agent is frozen. etcd hands leadership over by itself when it gets
/// SIGTERM. Here no SIGTERM arrives, so only the gate can have moved leadership.
pub(crate) struct Held<'a> {
    world: &'a World,
    pod: String,
    uid: String,
    node: String,
}

impl<'a> Held<'a> {
    pub(crate) async fn leader(world: &'a World) -> Result<Self> {
        let pod = world.etcd.leader().await?;
        let held = Self {
            world,
            uid: world.etcd.pod_uid(&pod).await?,
            node: world.node_of(&pod).await?,
            pod,
        };
        held.node()?.freeze()?;
        Ok(held)
    }

    /// The leader's pod.
    pub(crate) fn pod(&self) -> &str {
        &self.pod
    }

    /// Fails unless the pod terminates, its member still serves, and another member leads.
    pub(crate) async fn has_handed_over(&self) -> Result<()> {
        ensure!(self.leads().await? != self.pod, "it still leads");
        Ok(())
    }

    /// Fails unless the pod terminates and its member still leads.
    pub(crate) async fn goes_as_leader(&self) -> Result<()> {
        ensure!(self.leads().await? == self.pod, "another one leads");
        Ok(())
    }

    /// Thaws the node's agent, and waits until the pod is gone and the cluster is whole.
    pub(crate) async fn release(self) -> Result<()> {
        self.node()?.thaw()?;
        self.world.replaced(&self.pod, &self.uid).await?;
        self.world.whole().await
    }

    async fn leads(&self) -> Result<String> {
        let pod = self.world.etcd.pod(&self.pod).await?;
        ensure!(
            pod.metadata.uid.as_ref() == Some(&self.uid),
            "it is gone already"
        );
        ensure!(
            pod.metadata.deletion_timestamp.is_some(),
            "it was not deleted"
        );
        self.world.etcd.serves(&self.pod, SOON).await?;
        self.world.etcd.leader().await
    }

    fn node(&self) -> Result<&quorumgate_testbed::Node> {
        self.world
            .sandbox
            .node(&self.node)
            .context("its node is none of this test's")
    }
}
