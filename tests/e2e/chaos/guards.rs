//! Changes of what the gate guards beside pods: claims, budgets, and the range of ordinals.

use std::time::Duration;

use anyhow::{Result, bail};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use quorumgate_testbed::eventually;
use serde_json::json;

use super::data;
use super::operation::Broken;
use super::stage::Stage;
use super::timeline::{Nobody, Replaced};
use crate::asking::By;

/// The time limit until the pod of a deleted claim may go.
const GOES: Duration = Duration::from_secs(600);

/// Deletes the claim of a member and then its pod, as a repair by hand. The gate refuses that while
/// it needs the member's data, and otherwise replaces the member.
pub(super) async fn delete_claim(stage: &Stage, cluster: usize, member: &str) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let _turn = cluster.size.lock().await;
    let known = data::known(stage, cluster, member).await;
    let id = known.map_err(|why| Nobody(format!("{why:#}")))?;
    let uid = cluster.etcd.pod_uid(member).await;
    let uid = uid.map_err(|why| Nobody(format!("{why:#}")))?;
    let since = Timestamp::now();
    let claims: Api<PersistentVolumeClaim> = stage.world.sandbox.api();
    let claim = format!("data-{member}");
    let deleted = claims.delete(&claim, &DeleteParams::default()).await;
    deleted.map_err(|refusal| Nobody(refusal.to_string()))?;
    eventually(GOES, format!("{member} goes with its claim"), || async {
        let _unrest = cluster.unrest.read().await;
        match stage.world.ask_for_this(By::Delete, member, &uid).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            answer => answer,
        }
    })
    .await?;
    let replaced = data::replaced(stage, cluster, member, id).await;
    stage.was_broken(Broken::Member(member.to_owned()), since);
    stage.was_replaced(member, since, Replaced::Lost);
    replaced
}

/// Deletes the budget of an enrolled StatefulSet. The gate makes another.
pub(super) async fn delete_budget(stage: &Stage, cluster: usize) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    // Whoever changes the size or replaces members has set a mode in the budget.
    let _turn = cluster.size.lock().await;
    let (budgets, how) = (stage.world.budgets(), DeleteParams::default());
    let deleted = budgets.delete(cluster.etcd.name(), &how).await;
    deleted.map_err(|why| Nobody(why.to_string()))?;
    data::set_mode(stage, &cluster.etcd, "Auto").await
}

/// Tries to move the range of ordinals, which would end a listed member for good.
pub(super) async fn move_ordinals(stage: &Stage, cluster: usize) -> Result<()> {
    let cluster = stage.cluster(cluster)?;
    let _turn = cluster.size.lock().await;
    let sets: Api<StatefulSet> = stage.world.sandbox.api();
    let moved = Patch::Merge(json!({"spec": {"ordinals": {"start": 1}}}));
    let params = PatchParams::default();
    match sets.patch(cluster.etcd.name(), &params, &moved).await {
        Ok(_) => bail!("a listed member's ordinal is gone"),
        Err(refusal) => Err(Nobody(refusal.to_string()).into()),
    }
}
