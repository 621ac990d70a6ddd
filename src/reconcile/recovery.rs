//! The recovery of one cluster from a permanent loss of quorum, as the annotation
//! `quorumgate.io/recover` on its budget asks for it.
//!
//! Only the leader acts. It makes one step per look, as the planner says
//! ([`crate::plan::recovery`]), and looks again. While the others join the member that started
//! alone, the replacement of members does the work.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;

use super::condition::{self as conditions, ConditionText, find};
use super::deletion::delete_pod;
use super::look::{ReconcileError, template_etcd, versions};
use super::operation::{
    Applied, Made, Operation, OperationContext, Permission, Permit, Plan, Report, Rest,
};
use super::replacement::{facts_of, member_claims, time};
use super::rollout::management;
use super::run::Run;
use super::scale::{cannot_join, wanted};
use crate::api::{
    QuorumDisruptionBudget, QuorumDisruptionBudgetStatus, RecoveryPhase, RecoveryStatus, condition,
    names,
};
use crate::judge::Maintenance;
use crate::ledger::{Page, StatusUpdate};
use crate::observe::{MemberClaim, is_held, membership, starting_alone};
use crate::plan::PodManagement;
use crate::plan::recovery::{Next, Phase, Record, RecoveryInput, Refusal, Step, next};
use crate::quorum::{
    ClusterRef, MemberId, PodName, PodUid, TargetPod, confirmed_list, volume_finding,
};

/// The pauses: after a step, while the member starts or the others join, and while nothing can
/// begin.
const STEP: Duration = Duration::from_millis(100);
const WAITING: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(5);

/// The recovery of one cluster.
#[derive(Default)]
pub(super) struct Recovery;

/// The facts of a recovery.
pub(super) enum Input {
    /// A recovery is asked for or under way.
    Open(Box<RecoveryInput>),
    /// The latest has ended, and nobody asks for it any more.
    Spent,
}

/// The reason why nothing is done.
pub(super) enum Wait {
    /// No person asks.
    Unasked,
    /// A step has to wait.
    For(Refusal),
}

/// The steps of the planner, and the end of the record.
#[derive(derive_more::Display)]
pub(super) enum Act {
    #[display("{_0}")]
    Plan(Step),
    #[display("forget the recovery, which has ended")]
    Forget,
}

/// The time for which a request counts. Clocks may differ by minutes.
const COUNTS: SignedDuration = SignedDuration::from_hours(1);

/// A request: the member's id, and when somebody asked.
struct Request<'a> {
    written: &'a str,
    id: &'a str,
    at: Option<Timestamp>,
}

impl<'a> Request<'a> {
    /// The request on the budget, unless it was served.
    fn on(budget: &'a QuorumDisruptionBudget) -> Option<Self> {
        let written = budget.annotations().get(names::RECOVER)?.trim();
        let (id, at) = written.split_once('@').unwrap_or((written, ""));
        let at: Option<Timestamp> = at.parse().ok();
        let is_served = latest(budget)
            .is_some_and(|known| known.completion_time.is_some() && known.request == written);
        let request = Self { written, id, at };
        (!written.is_empty() && !is_served).then_some(request)
    }

    fn read(&self, now: Timestamp) -> Result<MemberId, Refusal> {
        let is_current = |at: Timestamp| now.duration_since(at).abs() <= COUNTS;
        let written = || self.written.to_owned();
        if !self.at.is_some_and(is_current) {
            return Err(Refusal::Expired(written()));
        }
        self.id
            .parse()
            .map_err(|_| Refusal::NoSuchMember(written()))
    }
}

fn latest(budget: &QuorumDisruptionBudget) -> Option<&RecoveryStatus> {
    budget.status.as_ref()?.recovery.as_deref()
}

/// Whether the budget asks for a recovery, or has one under way, or one to forget.
fn is_open(budget: &QuorumDisruptionBudget, now: Timestamp) -> bool {
    let asks = budget.annotations().contains_key(names::RECOVER);
    let known = latest(budget);
    let conditions = budget.status.as_ref().map(|status| &status.conditions);
    let is_told = conditions.is_some_and(|all| find(all, condition::RECOVERED).is_some());
    let is_under_way = known.is_some_and(|known| known.completion_time.is_none());
    let is_spent = is_told || known.is_some_and(|known| is_forgotten(known, now));
    is_under_way || Request::on(budget).is_some() || !asks && is_spent
}

/// Whether the request of a recovery that has ended counts for nobody any more. Until then it must
/// not count again, whoever writes it.
fn is_forgotten(known: &RecoveryStatus, now: Timestamp) -> bool {
    let ended = known.completion_time.as_ref();
    ended.is_some_and(|ended| now.duration_since(ended.0) > COUNTS * 2)
}

impl Operation for Recovery {
    const NAME: &'static str = "recovery";
    type Input = Input;
    type Step = Act;
    type Wait = Wait;

    fn is_at_work(&mut self, run: &Run, cluster: &ClusterRef, leads: bool) -> bool {
        let budget = run.watches.budgets.of_cluster(cluster);
        leads && budget.is_some_and(|budget| is_open(&budget, run.clock.now()))
    }

    async fn gather(
        &mut self,
        context: &OperationContext<'_>,
    ) -> Result<Option<Input>, ReconcileError> {
        let (run, look) = (context.run, context.look);
        let (page, view) = (&look.page, &look.view);
        let budget = page.budget();
        if !is_open(budget, run.clock.now()) {
            return Ok(None);
        }
        let record = page.open_recovery().map(read).transpose();
        let record = record.map_err(ReconcileError::Gather)?;
        let request = Request::on(budget).map(|request| request.read(run.clock.now()));
        if record.is_none() && request.is_none() {
            return Ok(Some(Input::Spent));
        }
        let claims = member_claims(run, look).boxed().await;
        let claims = claims.map_err(ReconcileError::Gather)?;
        let volumes = page.recorded_volumes();
        let facts = |(pod, claim): (&PodName, &MemberClaim)| {
            let found = volume_finding(&volumes, pod, claim.volume.as_ref());
            (pod.clone(), facts_of(claim, found))
        };
        let list = confirmed_list(&look.snapshot, &look.round);
        let held = view.pods().iter().filter(|pod| is_held(pod));
        let set = view.stateful_set();
        let records = page.volume_records();
        let wanted =
            wanted(look).map_or(look.snapshot.replicas, |wanted| wanted.end - wanted.start);
        let input = RecoveryInput {
            request,
            recorded: records.iter().map(|(pod, r)| (pod.clone(), r.id)).collect(),
            versions: versions(look),
            wanted,
            membership: membership(budget, set),
            only_warns: budget.only_warns(),
            bootstraps: run.observer.bootstraps(budget, set),
            management: set.map_or(PodManagement::Parallel, management),
            cannot_start: template_etcd(look)
                .and_then(|etcd| etcd.and_then(starting_alone).err())
                .or_else(|| cannot_join(look)),
            is_forced: record
                .as_ref()
                .is_some_and(|record| view.is_forced(&record.member)),
            claims: claims.iter().map(facts).collect(),
            list,
            held_pods: held
                .filter_map(|pod| Some(PodUid::new(pod.uid()?)))
                .collect(),
            record,
        };
        Ok(Some(Input::Open(Box::new(input))))
    }

    fn next(&self, context: &OperationContext<'_>, input: &Input) -> Plan<Act, Wait> {
        let Input::Open(input) = input else {
            return Plan::Act(vec![Act::Forget]);
        };
        match next(&context.look.snapshot, &context.look.page.grants, input) {
            Next::Nothing => Plan::Wait(Wait::Unasked),
            Next::Wait(because) => Plan::Wait(Wait::For(because)),
            Next::Act(step) => Plan::Act(vec![Act::Plan(step)]),
        }
    }

    fn permit(&self, context: &OperationContext<'_>, _: &Input, step: &Act) -> Option<Permit> {
        let Act::Plan(Step::Begin(record) | Step::StartAgain(record)) = step else {
            return None;
        };
        let pod = TargetPod {
            name: record.member.clone(),
            uid: record.pod.clone(),
        };
        let record = Box::new(written(context, record, false));
        let recover = Maintenance::Recover { pod, record };
        Some(Permit::Maintenance(Box::new(recover)))
    }

    async fn apply(
        &mut self,
        context: &OperationContext<'_>,
        _: &Input,
        step: &Act,
        _: Option<Permission>,
    ) -> Result<Applied, ReconcileError> {
        let page = &context.look.page;
        let note = async |record: Option<RecoveryStatus>| {
            let update = StatusUpdate {
                recovery: Some(record),
                ..StatusUpdate::default()
            };
            context.run.ledger().update(page, update).await
        };
        let step = match step {
            Act::Forget => {
                let known = latest(page.budget());
                if known.is_some_and(|known| is_forgotten(known, context.run.clock.now())) {
                    note(None).await?;
                }
                return Ok(Applied::Done);
            }
            Act::Plan(step) => step,
        };
        let applied = match step {
            // The record was written with the permission.
            Step::Begin(_) | Step::StartAgain(_) => Applied::Done,
            Step::DeletePod(pod) => delete_pod(context, &pod.name, &pod.uid).boxed().await,
            Step::Abandon(_) => {
                note(None).await?;
                Applied::Done
            }
            Step::Rejoin(record) => {
                note(Some(written(context, record, false))).await?;
                Applied::Done
            }
            Step::Finish(record) => {
                note(Some(written(context, record, true))).await?;
                Applied::Done
            }
        };
        if matches!(applied, Applied::Done) {
            context.run.metrics.recovery_step(step.slug());
        }
        Ok(applied)
    }

    fn report(
        &self,
        context: &OperationContext<'_>,
        _: &Input,
        next: &Plan<Act, Wait>,
        made: &Made<'_, Act>,
    ) -> Option<Report> {
        let said: ConditionText = match (next, made.failure()) {
            (_, Some((step, because))) => {
                let text = format!("tried again: {step}. It failed: {because}.");
                ("False", "Failing", text)
            }
            (Plan::Act(steps), None) => match steps.first()? {
                Act::Forget => {
                    let dropped = |status: &mut QuorumDisruptionBudgetStatus| {
                        status
                            .conditions
                            .retain(|c| c.type_ != condition::RECOVERED);
                    };
                    return Some(Box::new(dropped));
                }
                Act::Plan(Step::Finish(record)) => ("True", "Recovered", ended(record)),
                Act::Plan(step) => ("False", "Recovering", format!("next: {step}")),
            },
            (Plan::Wait(Wait::Unasked), None) => return None,
            (Plan::Wait(Wait::For(because)), None) => {
                ("False", because.slug(), because.to_string())
            }
        };
        Some(conditions::report(
            context,
            condition::RECOVERED,
            said,
            true,
        ))
    }

    fn rest(
        &mut self,
        _: &OperationContext<'_>,
        _: &Input,
        next: &Plan<Act, Wait>,
        made: &Made<'_, Act>,
    ) -> Rest {
        match next {
            Plan::Act(_) if made.done.is_some() => Rest::NotBefore(STEP),
            Plan::Act(_)
            | Plan::Wait(Wait::For(Refusal::Starting(_) | Refusal::Rejoining { .. })) => {
                Rest::Within(WAITING)
            }
            Plan::Wait(Wait::For(_)) => Rest::Within(LONG),
            Plan::Wait(Wait::Unasked) => Rest::Idle,
        }
    }
}

fn ended(record: &Record) -> String {
    format!(
        "all members are back, with what member {} of {} had; remove the annotation {} from the budget",
        record.id,
        record.member,
        names::RECOVER
    )
}

/// The record as the planner has it. The error says for people what is not understood.
fn read(status: &RecoveryStatus) -> Result<Record, String> {
    let id = status.member_id.parse();
    let problem = |_| format!("status.recovery has a member id {:?}", status.member_id);
    Ok(Record {
        member: PodName::new(&status.member),
        id: id.map_err(problem)?,
        pod: PodUid::new(&status.pod_uid),
        phase: match status.phase {
            RecoveryPhase::Alone => Phase::Alone,
            RecoveryPhase::Again => Phase::Again,
            RecoveryPhase::Rejoining => Phase::Rejoining,
        },
    })
}

/// The record as it is written now.
fn written(context: &OperationContext<'_>, record: &Record, has_ended: bool) -> RecoveryStatus {
    let now = time(context.run.clock.now());
    let page: &Page = &context.look.page;
    let open = page.open_recovery();
    let request = Request::on(page.budget()).map(|request| request.written.to_owned());
    let asked_before = open.map(|open| open.request.clone());
    let request = if record.phase == Phase::Alone {
        request.or(asked_before)
    } else {
        asked_before
    };
    let began = open.map(|open| open.start_time.clone());
    let mut given_up: BTreeSet<String> = open
        .into_iter()
        .flat_map(|open| open.given_up_ids.iter().cloned())
        .collect();
    if record.phase == Phase::Alone {
        let records = page.volume_records().into_values();
        given_up.extend(records.map(|known| known.id.to_string()));
        given_up.remove(&record.id.to_string());
    }
    RecoveryStatus {
        member: record.member.to_string(),
        member_id: record.id.to_string(),
        pod_uid: record.pod.to_string(),
        phase: match record.phase {
            Phase::Alone => RecoveryPhase::Alone,
            Phase::Again => RecoveryPhase::Again,
            Phase::Rejoining => RecoveryPhase::Rejoining,
        },
        request: request.unwrap_or_default(),
        given_up_ids: given_up.into_iter().collect(),
        start_time: began.unwrap_or_else(|| now.clone()),
        completion_time: has_ended.then_some(now),
    }
}
