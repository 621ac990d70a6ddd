//! The steps of a run: the grant, the move of leadership, the call, and the settlement.
//!
//! Grant and call are permitted by the judge, like every disruption. Its second yes renews the
//! grant right before the call.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{error, info, warn};

use super::calls::CallEnd;
use super::gather::Input;
use super::runs;
use super::step::Step;
use crate::causes::causes;
use crate::etcd::Endpoint;
use crate::ledger::Recorded;
use crate::plan::defragmentation::Refusal;
use crate::quorum::evidence::{Alarm, AlarmKind};
use crate::quorum::{self, ClusterRef, MemberId, PodName, TargetPod};
use crate::reconcile::leadership;
use crate::reconcile::look::ReconcileError;
use crate::reconcile::operation::{Applied, OperationContext, Permission};
use crate::reconcile::run::Run;
use crate::reconcile::settle;

/// The time limit of the move of leadership.
const MOVE: Duration = Duration::from_secs(1);

/// The time for which the gate does not try to move leadership again after etcd refused to.
const AFTER_REFUSAL: Duration = Duration::from_mins(10);

/// The moves of leadership by this replica.
#[derive(Debug, Default)]
pub(super) struct Leadership {
    /// The sequence number of the permission under which leadership was moved last.
    moved_under: Option<u64>,
    /// The time until which leadership is not moved, because it did not move.
    stays_until: Option<Instant>,
}

impl Leadership {
    /// Whether leadership is not moved now.
    pub(super) fn stays(&self, now: Instant) -> bool {
        self.stays_until.is_some_and(|until| now < until)
    }

    /// Whether leadership was moved under this permission.
    pub(super) fn was_moved_under(&self, seq: u64) -> bool {
        self.moved_under == Some(seq)
    }
}

/// Carries out a step.
pub(super) async fn carry_out(
    moves: &mut Leadership,
    context: &OperationContext<'_>,
    input: &Input,
    step: &Step,
    permission: Option<Permission>,
) -> Result<Applied, ReconcileError> {
    match step {
        Step::Grant { .. } => Ok(Applied::Done),
        Step::Begin { pod } => Ok(begin(context, pod, permission)),
        Step::MoveLeader { pod, to } => move_leader(moves, context, input, pod, *to).await,
        Step::GiveUp { pod, because } => {
            if because.is_none() && context.leads {
                let until = context.run.clock.instant() + AFTER_REFUSAL;
                moves.stays_until = Some(until);
            }
            give_up(context, pod, because.as_ref()).await
        }
        Step::Settle { pod, seen } => settle(context, input, pod, *seen).await,
        Step::Disarm(members) => Ok(disarm(context, members).await),
    }
}

/// Moves leadership from the member that has the grant, once.
async fn move_leader(
    moves: &mut Leadership,
    context: &OperationContext<'_>,
    input: &Input,
    pod: &TargetPod,
    to: MemberId,
) -> Result<Applied, ReconcileError> {
    let Some(answer) = leadership::move_leader(context, &pod.name, to).await? else {
        return Ok(Applied::Outdated);
    };
    moves.moved_under = input.open.as_ref().map(|open| open.seq);
    if let Err(error) = answer {
        let because = causes(&error);
        warn!(cluster = %context.cluster, from = %pod.name, %to, because, "cannot move leadership");
    }
    // The next look says whether it moved.
    Ok(Applied::Done)
}

/// Settles the grant of a call that was not made.
async fn give_up(
    context: &OperationContext<'_>,
    pod: &PodName,
    because: Option<&Refusal>,
) -> Result<Applied, ReconcileError> {
    let seen = quorum::DefragmentationProgress::NotBegun;
    let take_back = |all: &mut Vec<_>| runs::take_back(all, pod);
    settle::defragmentation(context, pod, seen, take_back).await?;
    let because = because.map(ToString::to_string);
    info!(cluster = %context.cluster, %pod, because, "defragmentation given up");
    Ok(Applied::Done)
}

/// Settles a grant whose run is over by what was `seen` of it.
async fn settle(
    context: &OperationContext<'_>,
    input: &Input,
    pod: &PodName,
    seen: quorum::DefragmentationProgress,
) -> Result<Applied, ReconcileError> {
    let (run, cluster) = (context.run, context.cluster);
    let Some(open) = &input.open else {
        return Ok(Applied::Outdated);
    };
    let ours = open.holder == run.me;
    let end = run.calls.end_of(cluster, open.seq).filter(|_| ours);
    let sizes = context
        .look
        .snapshot
        .member(pod)
        .and_then(|member| member.sizes);
    let size = sizes.map(|sizes| sizes.db);
    let now = run.clock.now();
    let settled = settle::defragmentation(context, pod, seen, |all| {
        runs::end(all, pod, end.as_ref(), size, now);
    });
    if !settled.await? {
        return Ok(Applied::Outdated);
    }
    run.calls.forget(cluster);
    let holder = &open.holder;
    match &end {
        Some(end) => {
            info!(%cluster, %pod, size, took = ?end.took, error = end.error, "defragmentation finished");
        }
        None => {
            info!(%cluster, %pod, holder, size, "grant to defragment the member settled by its age");
        }
    }
    Ok(Applied::Done)
}
/// Makes the call, under the grant that was just renewed. The age of the grant counts from now on
/// for others, so a process that was held up does not make the call any more.
fn begin(
    context: &OperationContext<'_>,
    pod: &TargetPod,
    permission: Option<Permission>,
) -> Applied {
    let (run, cluster) = (context.run, context.cluster);
    let endpoint = context.look.view.endpoint_of(&pod.name);
    let (Some(permission), Some(endpoint)) = (permission, endpoint) else {
        return Applied::Outdated;
    };
    if run.clock.instant() >= permission.until {
        return Applied::Outdated;
    }
    info!(%cluster, pod = %pod.name, "defragmentation started");
    make(
        &Arc::clone(run),
        cluster,
        &permission.proof,
        endpoint.clone(),
    );
    Applied::Done
}

/// Disarms the NOSPACE alarms of these members, which were seen.
async fn disarm(context: &OperationContext<'_>, members: &[MemberId]) -> Applied {
    let (run, look) = (context.run, context.look);
    let mut serving = look.snapshot.members.iter().filter(|m| m.serves_quorum());
    let endpoint = serving.find_map(|m| look.view.endpoint_of(m.pod_name()?));
    let Some(endpoint) = endpoint else {
        return Applied::Failed("no voter serves".to_owned());
    };
    for member in members {
        let deadline = run.clock.instant() + MOVE;
        let alarm = Alarm {
            member: *member,
            kind: AlarmKind::NoSpace,
        };
        if let Err(error) = run.judge.admin().disarm(endpoint, alarm, deadline).await {
            return Applied::Failed(causes(&error));
        }
    }
    Applied::Done
}

/// Makes the call, under the grant that was just renewed. Returns at once.
fn make(run: &Arc<Run>, cluster: &ClusterRef, proof: &Recorded, member: Endpoint) {
    let seq = proof.seq();
    if !run.calls.begin(cluster, seq) {
        error!(%cluster, seq, "second defragmentation call prevented (please report)");
        return;
    }
    let begun = run.clock.instant();
    let work = {
        let (run, cluster) = (Arc::clone(run), cluster.clone());
        async move {
            let answer = run.judge.admin().defragment(&member).await;
            let end = CallEnd::new(answer, run.clock.instant() - begun);
            info!(%cluster, member = member.address, took = ?end.took, error = end.error, "defragmentation call returned");
            run.calls.end(&cluster, seq, end);
        }
    };
    let broke = {
        let (run, cluster) = (Arc::clone(run), cluster.clone());
        move |how: &crate::supervise::TaskEnd| {
            error!(%cluster, %how, "defragmentation call ended unexpectedly (please report)");
            let end = CallEnd {
                took: run.clock.instant() - begun,
                error: Some(how.to_string()),
                answered: false,
            };
            run.calls.end(&cluster, seq, end);
        }
    };
    run.supervisor.once(run.ending.clone(), work, broke);
}
