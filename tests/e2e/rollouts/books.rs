//! The record of a rollout in the StatefulSet's status. Operators such as etcd-druid call a cluster
//! updated and ready only when `status.currentRevision` is the update revision. Before Kubernetes
//! 1.37 the controller never writes that under `OnDelete`, so the gate makes it do so ("closing the
//! books").

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use quorumgate_testbed::eventually;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{another_than, change, outdated};
use super::told::{ROLLOUT, finished};
use crate::other_hook::OtherHook;
use crate::world::World;

/// Fails unless etcd-druid would call the StatefulSet ready and its members updated.
fn is_ready_to_druid(set: &StatefulSet) -> Result<()> {
    let status = set.status.as_ref().context("no status")?;
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas);
    ensure!(
        status.observed_generation == set.metadata.generation,
        "it was not observed"
    );
    ensure!(status.ready_replicas >= wanted, "not all are Ready");
    ensure!(
        status.current_revision == status.update_revision,
        "the books say {:?}, and {:?} is the update revision",
        status.current_revision,
        status.update_revision
    );
    ensure!(
        status.current_replicas == status.updated_replicas,
        "{status:?}"
    );
    Ok(())
}

fn strategy(set: &StatefulSet) -> Option<&str> {
    let strategy = set.spec.as_ref()?.update_strategy.as_ref()?;
    strategy.type_.as_deref()
}

/// Waits until `status.currentRevision` is the target and the strategy is `OnDelete` again.
async fn closed(world: &World, target: &str) -> Result<()> {
    eventually(ROLLOUT, "the books are closed", async || {
        let set = world.etcd.stateful_set().await?;
        is_ready_to_druid(&set)?;
        let strategy = set.spec.and_then(|spec| spec.update_strategy);
        let kind = strategy.and_then(|strategy| strategy.type_);
        ensure!(kind.as_deref() == Some("OnDelete"), "it is {kind:?} yet");
        anyhow::Ok(())
    })
    .await?;
    let outdated = outdated(world, target).await?;
    ensure!(outdated.is_empty(), "{outdated:?} are outdated");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_rollout_they_are_closed_and_no_pod_goes_for_that() -> Result<()> {
    let world = on_delete("books", |etcd| etcd).start().await?;
    let watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    finished(&world, &target).await?;
    closed(&world, &target).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order.len() == 3, "pods went in this order: {order:?}");
    world.close().await
}

/// The template changes at different moments of the closing of the books. The order stays
/// quorum-aware at each of them.
#[tokio::test(flavor = "multi_thread")]
async fn templates_that_change_while_they_are_closed_are_rolled_out_in_order() -> Result<()> {
    let world = on_delete("books-template", |etcd| etcd).start().await?;
    let leader = world.etcd.leader().await?;
    let watched = Watched::begin(&world).await?;
    let mut target = change(&world, "one").await?;
    for marker in ["two", "three"] {
        finished(&world, &target).await?;
        target = change(&world, marker).await?;
    }
    finished(&world, &target).await?;
    closed(&world, &target).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order.len() == 9, "pods went in this order: {order:?}");
    let first = order.get(..3).context("three went")?;
    ensure!(first.last() == Some(&leader), "{leader} led: {order:?}");
    world.close().await
}

/// Another webhook keeps the StatefulSet controller from closing the books, so that the template
/// surely changes in the middle. Where the controller closes them under `OnDelete` by itself, the
/// gate has no part in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_changes_while_they_are_being_closed_is_set_to_on_delete_with_it()
-> Result<()> {
    let world = on_delete("books-held", |etcd| etcd).start().await?;
    let held = OtherHook::of_closing_books(&world).await?;
    let watched = Watched::begin(&world).await?;
    let first = change(&world, "one").await?;
    let closed_by_itself = eventually(ROLLOUT, "the books are being closed", async || {
        let set = world.etcd.stateful_set().await?;
        if strategy(&set) == Some("RollingUpdate") {
            return Ok(false);
        }
        is_ready_to_druid(&set)?;
        let outdated = outdated(&world, &first).await?;
        ensure!(outdated.is_empty(), "{outdated:?} are outdated");
        anyhow::Ok(true)
    })
    .await?;
    let set = world.etcd.stateful_set().await?;
    if closed_by_itself {
        let mut writers = set.metadata.managed_fields.iter().flatten();
        let gate = writers.find(|w| w.manager.as_deref() == Some("quorumgate-closes-books"));
        ensure!(gate.is_none(), "the gate closed them: {gate:?}");
        watched.end(&world, ELECTION).await?;
        return world.close().await;
    }
    ensure!(is_ready_to_druid(&set).is_err(), "they are closed already");
    let leader = world.etcd.leader().await?;

    world.etcd.change_template("two").await?;
    let changed = world.etcd.stateful_set().await?;
    ensure!(strategy(&changed) == Some("OnDelete"), "{changed:?}");
    let second = another_than(&world, &first).await?;
    finished(&world, &second).await?;
    held.remove().await?;
    closed(&world, &second).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order.len() == 6, "pods went in this order: {order:?}");
    ensure!(order.last() == Some(&leader), "{leader} led: {order:?}");
    world.close().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_dies_while_they_are_closed_leaves_that_to_another() -> Result<()> {
    let world = on_delete("books-killed", |etcd| etcd).start().await?;
    let watched = Watched::begin(&world).await?;
    let target = change(&world, "one").await?;
    finished(&world, &target).await?;
    // The leading replica may be before, in or after the closing of the books when it is killed.
    // One replica after the other is killed.
    for replica in 0..2 {
        world.gate.replica(replica).kill().await?;
        world.gate.replica(replica).restart().await?;
    }
    closed(&world, &target).await?;
    let order = watched.end(&world, ELECTION).await?;
    ensure!(order.len() == 3, "pods went in this order: {order:?}");
    world.close().await
}
