//! The budget's report on a rollout.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams};
use quorumgate::api::RolloutStatus;
use quorumgate_testbed::eventually;
use serde_json::{Value, json};

use super::template::outdated;
use crate::world::{SOON, World};

/// The time limit for a rollout of a few members on a busy machine.
pub(super) const ROLLOUT: Duration = Duration::from_secs(300);

/// The shortest grace period of a lost quorum that a budget accepts.
pub(super) const GRACE: &str = "7s";

/// Waits until every pod has this revision, whatever the budget reports.
pub(super) async fn all_updated(world: &World, revision: &str) -> Result<()> {
    eventually(ROLLOUT, "all are updated", async || {
        let left = outdated(world, revision).await?;
        ensure!(left.is_empty(), "{left:?} are not");
        Ok(())
    })
    .await
}

/// Changes the budget's spec.
pub(crate) async fn wish(world: &World, spec: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"spec": spec}));
    world
        .budgets()
        .patch(world.etcd.name(), &PatchParams::default(), &patch)
        .await?;
    Ok(())
}

/// The present report.
pub(super) async fn rollout(world: &World) -> Result<RolloutStatus> {
    let status = world.budget().await?.status.context("no status")?;
    let told = status.rollout.map(|told| *told);
    told.context("the budget tells of no rollout")
}

/// Waits until the report says that the rollout to this revision is complete.
pub(crate) async fn finished(world: &World, target: &str) -> Result<RolloutStatus> {
    let what = format!("the rollout to {target} is complete");
    eventually(ROLLOUT, what, async || {
        let told = rollout(world).await?;
        let complete = told.completion_time.is_some() && told.target.as_deref() == Some(target);
        ensure!(complete, "{told:?}");
        Ok(told)
    })
    .await
}

/// Waits until the rollout to this revision waits for one of these reasons.
pub(crate) async fn waits_on(
    world: &World,
    target: &str,
    reasons: &[&str],
) -> Result<RolloutStatus> {
    let what = format!("the rollout to {target} waits for one of {reasons:?}");
    eventually(SOON, what, async || {
        let told = rollout(world).await?;
        let waiting = told.waiting_on.as_ref();
        let reason = waiting.map_or("", |waiting| waiting.reason.as_str());
        let waits = told.target.as_deref() == Some(target) && reasons.contains(&reason);
        ensure!(waits, "{told:?}");
        Ok(told)
    })
    .await
}
