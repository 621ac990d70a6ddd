//! The steps of a replacement. Each is one effect, which may have happened already.

use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Resource as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;
use tracing::warn;

use super::gather::Input;
use super::{record, report};
use crate::api::ReplacementStatus;
use crate::api::names::IDENTITY;
use crate::causes::causes;
use crate::ledger::StatusUpdate;
use crate::plan::replacement::{Proof, Record, Step};
use crate::quorum::evidence::{Alarm, AlarmKind};
use crate::quorum::{MemberId, PodName, PodUid, ReplacementProgress, VolumeRecord};
use crate::reconcile::deletion::{delete_pod, done, pods};
use crate::reconcile::look::{Look, ReconcileError};
use crate::reconcile::member_list::{CALL, Refusals, any_of, asked, others};
use crate::reconcile::operation::{Applied, OperationContext, Permission};
use crate::reconcile::settle;
use crate::telemetry::events::{Notice, Severity};

/// The time after which a call that was given up cannot take effect any more. etcd gives a change
/// of the members up after twelve seconds at most.
const CALLS_ARE_OVER: Duration = Duration::from_secs(30);

/// Carries out a step of the planner.
pub(super) async fn carry_out(
    refusals: &mut Refusals,
    context: &OperationContext<'_>,
    input: &Input,
    step: &Step,
    permission: Option<Permission>,
) -> Result<Applied, ReconcileError> {
    let look = context.look;
    let deadline = context.run.clock.instant() + CALL;
    let admin = context.run.judge.admin();
    let applied = match step {
        Step::Grant { record, proof } => {
            say_begun(context, record, proof.as_ref());
            Applied::Done
        }
        Step::Renew { .. } if permission.is_some() => Applied::Done,
        Step::Renew { .. } => Applied::Failed("nothing is on record any more".to_owned()),
        Step::MoveLeader { pod, to } => return refusals.move_leader(context, pod, *to).await,
        Step::RemoveMember { pod, id } => refusals.remove(context, pod, *id, permission).await,
        Step::AddLearner { pod, peer_urls } => asked(
            any_of(others(look, pod), |voter| {
                admin.add_learner(voter, peer_urls, deadline)
            })
            .await,
        ),
        Step::Promote { pod, id } => asked(
            any_of(others(look, pod), |voter| {
                admin.promote(voter, *id, deadline)
            })
            .await,
        ),
        Step::DeleteClaim { pod, uid } => delete_claim(context, input, pod, uid).await,
        Step::DeletePod { pod, uid } => delete_pod(context, pod, uid).await,
        Step::Release { pod, uid } => release(context, pod, uid).await,
        Step::RecordVolume { pod, id } => {
            return record_volume(context, input, pod, *id).await;
        }
        Step::Settle { pod } => return settle(context, input, pod).await,
        // The operation makes its own step of it.
        Step::Undo { pod, .. } => return undo(context, pod).await,
    };
    Ok(applied)
}

fn say_begun(context: &OperationContext<'_>, record: &Record, proof: Option<&Proof>) {
    let because = proof.map_or_else(|| "somebody asked for it".to_owned(), ToString::to_string);
    let note = format!("{} is being replaced: {because}", record.member);
    notify(context, Severity::Warning, "MemberReplacing", note);
}

/// Records the volume on which the new member runs.
async fn record_volume(
    context: &OperationContext<'_>,
    input: &Input,
    pod: &PodName,
    id: MemberId,
) -> Result<Applied, ReconcileError> {
    let OperationContext { run, look, .. } = *context;
    let record = volume_record(look, input, pod);
    let Some(record) = record.filter(|record| record.id == id) else {
        return Ok(Applied::Deferred);
    };
    let mut volumes = look.page.volume_records();
    volumes.insert(pod.clone(), record);
    let update = StatusUpdate {
        volumes: Some(volumes),
        ..StatusUpdate::default()
    };
    run.ledger().update(&look.page, update).await?;
    Ok(Applied::Done)
}

/// Deletes the old claim, after that of the write-ahead log if it is another. Both stay,
/// terminating, until their pod is gone.
async fn delete_claim(
    context: &OperationContext<'_>,
    input: &Input,
    pod: &PodName,
    uid: &str,
) -> Applied {
    let Some(claim) = input.claims.get(pod) else {
        return Applied::Failed("its claim is not known".to_owned());
    };
    let namespace = &context.cluster.namespace;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(context.run.client.clone(), namespace);
    let wal = claim.wal.as_ref().map(|(name, uid)| (name, uid.as_str()));
    for (name, uid) in wal.into_iter().chain([(&claim.name, uid)]) {
        let only_this = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        let deleted = done(claims.delete(name, &only_this).await.map(drop));
        if !matches!(deleted, Applied::Done) {
            return deleted;
        }
    }
    Applied::Done
}

/// Removes the scheduling gate from a pod.
pub(super) async fn release(
    context: &OperationContext<'_>,
    pod: &PodName,
    uid: &PodUid,
) -> Applied {
    let change = json!({
        "metadata": {"uid": uid.as_str()},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": IDENTITY}]},
    });
    let change = Patch::Strategic(&change);
    let params = PatchParams::default();
    let patched = pods(context).patch(pod.as_str(), &params, &change).await;
    if patched.is_ok() {
        let namespace = &context.cluster.namespace;
        let told = report::say_held(context.run, namespace, (pod, uid), None).await;
        if let Err(error) = told {
            let because = causes(&error);
            warn!(cluster = %context.cluster, %pod, because, "cannot write the pod's condition");
        }
    }
    done(patched.map(drop))
}

/// Disarms a CORRUPT alarm for which the member that was removed is the reason. etcd refuses writes
/// while it stands.
pub(super) async fn disarm(
    context: &OperationContext<'_>,
    input: &Input,
    member: MemberId,
) -> Applied {
    let Some(record) = &input.facts.record else {
        return Applied::Outdated;
    };
    let kind = AlarmKind::Corrupt;
    let deadline = context.run.clock.instant() + CALL;
    let admin = context.run.judge.admin();
    let disarmed = any_of(others(context.look, &record.member), |voter| {
        admin.disarm(voter, Alarm { member, kind }, deadline)
    });
    asked(disarmed.await)
}

/// Ends the replacement: the new voter serves. Its volume is recorded in the same write.
async fn settle(
    context: &OperationContext<'_>,
    input: &Input,
    pod: &PodName,
) -> Result<Applied, ReconcileError> {
    let now = record::time(context.run.clock.now());
    let record = volume_record(context.look, input, pod);
    settle::replacement(context, pod, ReplacementProgress::Serves, |all, volumes| {
        let own = |one: &&mut ReplacementStatus| one.member == pod.as_str();
        if let Some(own) = all.iter_mut().find(own) {
            own.completion_time = Some(now);
        }
        match record {
            Some(record) => drop(volumes.insert(pod.clone(), record)),
            None => drop(volumes.remove(pod)),
        }
    })
    .await?;
    let note = format!("{pod} was replaced and serves");
    notify(context, Severity::Normal, "MemberServes", note);
    Ok(Applied::Done)
}

/// Ends the replacement before anything was changed. A call that was given up may take effect a
/// little later, and until then the member must not count.
pub(super) async fn undo(
    context: &OperationContext<'_>,
    pod: &PodName,
) -> Result<Applied, ReconcileError> {
    let page = &context.look.page;
    let causes = page.grants.get(pod).into_iter().flat_map(|g| &g.causes);
    let seen = context.run.ledger().seen();
    let age = causes.map(|cause| seen.cause_for(&page.cluster, &page.uid, cause.seq));
    if age.min().is_some_and(|age| age < CALLS_ARE_OVER) {
        return Ok(Applied::Deferred);
    }
    settle::replacement(context, pod, ReplacementProgress::Undone, |all, _| {
        all.retain(|one| one.member != pod.as_str() || one.completion_time.is_some());
    })
    .await?;
    Ok(Applied::Done)
}

fn notify(context: &OperationContext<'_>, severity: Severity, reason: &str, note: String) {
    context.run.events.notify(Notice {
        regarding: context.look.page.budget().object_ref(&()),
        severity,
        reason: reason.to_owned(),
        action: "Replace",
        note,
    });
}

/// The record of the volume on which the member in this pod runs.
fn volume_record(look: &Look, input: &Input, pod: &PodName) -> Option<VolumeRecord> {
    let member = look.snapshot.member(pod)?;
    Some(VolumeRecord {
        id: member.id?,
        pod: member.pod.as_ref()?.uid.clone(),
        volume: input.claims.get(pod)?.volume.clone()?,
    })
}
