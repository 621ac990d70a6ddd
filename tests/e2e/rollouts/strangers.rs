//! Other clients that remove or change members during a rollout.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::interval;

use super::scene::{ELECTION, Watched, on_delete};
use super::template::{change, outdated};
use super::told::finished;
use crate::vigil::Vigil;
use crate::world::World;

/// The period at which the autoscaler evicts a pod and changes one in place.
const AUTOSCALER: Duration = Duration::from_millis(700);
/// The number of rollouts, in which at least one eviction has to be permitted and at least one
/// refused.
const ROLLOUTS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_and_a_rollout_at_once_both_finish_and_keep_a_majority() -> Result<()> {
    let world = on_delete("rollout-drain", |etcd| etcd)
        .nodes(4)
        .start()
        .await?;
    let drained = world.node_of("etcd-0").await?;
    let watched = Watched::begin(&world).await?;
    let vigil = Vigil::start(&world.etcd).await?;

    let target = change(&world, "one").await?;
    world.drain(&drained, &[]).await?;
    finished(&world, &target).await?;
    let order = watched.end(&world, ELECTION).await?;
    vigil.assert_never_below(2).await?;
    ensure!(
        world.node_of("etcd-0").await? != drained,
        "etcd-0 is on the drained node"
    );
    // An evicted pod comes back updated. Only a pod that was updated on the node before the drain
    // goes a second time.
    ensure!((3..=4).contains(&order.len()), "{order:?}");
    world.close().await
}

/// Acts as the vertical pod autoscaler: it evicts without regard to revisions, and changes pods in
/// place.
#[tokio::test(flavor = "multi_thread")]
async fn evictions_and_changes_in_place_do_not_confuse_a_rollout() -> Result<()> {
    let world = on_delete("rollout-vpa", |etcd| etcd).start().await?;
    let vigil = Vigil::start(&world.etcd).await?;
    let (mut permitted, mut refused) = (0, 0);
    // Chance decides whether an eviction or the rollout's next step comes first.
    for rollout in 0..ROLLOUTS {
        let watched = Watched::begin(&world).await?;
        let target = change(&world, &rollout.to_string()).await?;
        let (yes, no) = autoscale(&world, &target).await?;
        finished(&world, &target).await?;
        watched.end(&world, ELECTION).await?;
        permitted += yes;
        refused += no;
        if permitted > 0 && refused > 0 {
            break;
        }
    }
    ensure!(
        permitted > 0 && refused > 0,
        "{permitted} evictions were permitted, {refused} refused"
    );
    vigil.assert_never_below(2).await?;
    world.close().await
}

/// Acts until all members are updated. Returns the numbers of permitted and of refused evictions.
async fn autoscale(world: &World, target: &str) -> Result<(u32, u32)> {
    let mut ticks = interval(AUTOSCALER);
    let (mut permitted, mut refused) = (0, 0);
    for (turn, pod) in world.etcd.pod_names().iter().cycle().enumerate() {
        ticks.tick().await;
        if outdated(world, target).await?.is_empty() {
            break;
        }
        let change = json!({"metadata": {"annotations": {"vpa/turn": turn.to_string()}}});
        let params = PatchParams::default();
        // The pod may be gone for a moment.
        let _ = world
            .pods()
            .patch(pod, &params, &Patch::Merge(change))
            .await;
        match world.evict(pod).await {
            Ok(()) => permitted += 1,
            Err(kube::Error::Api(status)) if [404, 429].contains(&status.code) => refused += 1,
            Err(other) => {
                return Err(other).context("an eviction was neither permitted nor refused");
            }
        }
    }
    Ok((permitted, refused))
}
