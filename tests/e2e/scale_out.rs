//! A cluster that grows: learners join one after another and are promoted, while other requests ask
//! for members.

use anyhow::{Context as _, Result, ensure};
use quorumgate_testbed::eventually;
use quorumgate_testbed::faults::{self, Standing};

use crate::asking::By;
use crate::world::{SOON, World};

#[tokio::test(flavor = "multi_thread")]
async fn from_three_to_five_a_learner_may_go_and_voters_only_while_a_larger_majority_serves()
-> Result<()> {
    let world = World::builder("scale-out").nodes(5).start().await?;
    let (third, fourth) = (
        faults::hold_in_container_creating(&world.sandbox, "etcd-3")?,
        faults::hold_in_container_creating(&world.sandbox, "etcd-4")?,
    );
    world.etcd.scale(5).await?;
    for pod in ["etcd-3", "etcd-4"] {
        scheduled(&world, pod).await?;
    }

    // Two of four are no majority. So the second member has to stay as soon as the learner may get
    // a vote.
    world
        .has_to_wait_by(By::Delete, "etcd-0", &["another voter may join"])
        .await?;

    joins_as_learner(&world, "etcd-3", third).await?;
    a_learner_may_go(&world, "etcd-3").await?;
    a_learner_stays_while_a_voter_is_down(&world, "etcd-3").await?;
    promote(&world, "etcd-3").await?;
    one_of_four_may_go(&world).await?;

    joins_as_learner(&world, "etcd-4", fourth).await?;
    promote(&world, "etcd-4").await?;
    world.etcd.quorate(SOON).await?;
    eventually(SOON, "the budget shows five of five", || async {
        let status = world.budget().await?.status.context("no status")?;
        let numbers = [
            status.voters,
            status.current_healthy,
            status.expected_members,
            status.desired_healthy,
            status.disruptions_allowed,
        ];
        ensure!(numbers == [5, 5, 5, 3, 2].map(Some), "{numbers:?}");
        Ok(())
    })
    .await?;
    world.close().await
}

pub(crate) async fn scheduled(world: &World, pod: &str) -> Result<()> {
    eventually(SOON, format!("{pod} is on a node"), || world.node_of(pod))
        .await
        .map(drop)
}

/// Adds the member to etcd as a learner, and lets its pod start.
pub(crate) async fn joins_as_learner(world: &World, pod: &str, held: Standing) -> Result<()> {
    world.etcd.add_learner(pod).await?;
    // No member runs in the pod yet, so the delete costs nothing. The next incarnation reads which
    // cluster to join.
    let uid = world.etcd.pod_uid(pod).await?;
    let again = format!("the pod of {pod} is made anew");
    eventually(SOON, again, || world.delete(pod)).await?;
    another(world, pod, &uid).await?;
    held.mend();
    learns(world, pod).await
}

async fn a_learner_may_go(world: &World, learner: &str) -> Result<()> {
    let uid = world.etcd.pod_uid(learner).await?;
    let node = world.agent_of(learner).await?;
    node.freeze()?;
    world.lets_go(By::Delete, learner).await?;
    // The learner may be promoted while its pod terminates.
    world
        .has_to_wait_by(By::Delete, "etcd-0", &[learner, "3 are needed"])
        .await?;
    node.thaw()?;
    another(world, learner, &uid).await?;
    learns(world, learner).await?;
    world.settled().await
}

async fn a_learner_stays_while_a_voter_is_down(world: &World, learner: &str) -> Result<()> {
    let broken = world.crash("etcd-2").await?;
    let says = "is a learner that may become a voter";
    world.has_to_wait_by(By::Delete, learner, &[says]).await?;
    world
        .has_to_wait_by(By::Delete, "etcd-0", &["etcd-2"])
        .await?;
    broken.mend();
    world.etcd.serves("etcd-2", SOON).await
}

async fn one_of_four_may_go(world: &World) -> Result<()> {
    let uid = world.etcd.pod_uid("etcd-1").await?;
    eventually(SOON, "etcd-1 may go", || world.delete("etcd-1")).await?;
    world
        .has_to_wait_by(By::Delete, "etcd-0", &["of 4 voters", "etcd-1"])
        .await?;
    world.replaced("etcd-1", &uid).await?;
    world.settled().await
}

pub(crate) async fn promote(world: &World, pod: &str) -> Result<()> {
    // etcd refuses to promote a learner that is not in sync.
    eventually(SOON, format!("{pod} is promoted"), || {
        world.etcd.promote(pod)
    })
    .await?;
    world.etcd.serves(pod, SOON).await
}

async fn another(world: &World, pod: &str, uid: &str) -> Result<()> {
    eventually(SOON, format!("{pod} is another"), || async {
        ensure!(world.etcd.pod_uid(pod).await? != uid, "it is still there");
        Ok(())
    })
    .await?;
    scheduled(world, pod).await
}

async fn learns(world: &World, pod: &str) -> Result<()> {
    eventually(SOON, format!("{pod} runs a learner"), || async {
        let status = world.etcd.endpoint_status(pod).await?;
        ensure!(
            status.is_learner && status.leader.is_some(),
            "it runs {status:?}"
        );
        Ok(())
    })
    .await
}
