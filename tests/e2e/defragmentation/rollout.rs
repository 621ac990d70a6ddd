//! Rollouts and defragmentations wait for each other.

use anyhow::{Context as _, Result, ensure};

use super::{all_ran, first_to_begin, fragmented, hold_all, wish};
use crate::rollouts::scene::on_delete;
use crate::rollouts::template::{change, outdated};
use crate::rollouts::told::{finished, waits_on};

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_waits_for_a_run_and_the_next_run_for_the_rollout() -> Result<()> {
    let world = fragmented(on_delete("defrag-rollout", |etcd| etcd)).await?;
    let all = hold_all(&world).await?;
    wish(&world, "Auto").await?;
    let (member, held) = first_to_begin(all).await?;
    let target = change(&world, "one").await?;
    waits_on(&world, &target, &["InFlight"]).await?;
    let left = outdated(&world, &target).await?;
    ensure!(left.len() == 3, "only {left:?} are outdated");
    held.release();

    let told = finished(&world, &target).await?;
    let complete = told.completion_time.context("it is complete")?.0;
    for run in all_ran(&world, None).await? {
        ensure!(
            run.member == member || run.start_time.0 >= complete,
            "{run:?} began before the rollout was complete at {complete}"
        );
    }
    world.whole().await?;
    world.close().await
}
