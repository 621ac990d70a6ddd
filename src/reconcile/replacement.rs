//! The replacement of one cluster's members whose data is lost, and the pods that are kept from
//! starting meanwhile.
//!
//! Only the leader acts. It makes one step per look, as the planner says
//! ([`crate::plan::replacement`]), and looks again. A replacement goes on from what is seen and
//! from the record in the budget's status, so a replica that ends between any two effects loses
//! nothing.

mod carry_out;
mod compare;
mod gather;
mod record;
mod report;
mod start;
mod step;
mod survivors;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;
use tracing::warn;

use super::condition::{self as conditions, find};
use super::deletion::delete_pod;
use super::look::{Look, ReconcileError, mode};
use super::member_list::Refusals;
use super::operation::{
    Applied, Made, Operation, OperationContext, Permission, Permit, Plan, Report, Rest,
};
use super::run::Run;
use crate::api::condition;
use crate::judge::Maintenance;
use crate::observe::{ClusterView, is_held};
use crate::plan::replacement::{self as plan, CrashLoop, Mode, disarm};
use crate::quorum::{ClusterRef, Comparison, Condition, GrantKind, PodUid, Role};
use compare::Comparisons;
use gather::{Input, gather};
pub(super) use gather::{facts_of, member_claims};
pub(super) use record::time;
use step::{Step, Wait};

/// The pauses: after a step, while a replacement waits, and after etcd refused to remove a member.
const STEP: Duration = Duration::from_millis(100);
const WAITING: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(10);

/// The time between two looks at claims and volumes of a healthy cluster: no other look shows that
/// one terminates. With many clusters the time is longer, by so much for each.
const CLAIMS: Duration = Duration::from_secs(60);
const CLAIMS_PER_CLUSTER: Duration = Duration::from_millis(300);

/// The replacement of one cluster's members.
#[derive(Default)]
pub(super) struct Replacement {
    refusals: Refusals,
    comparisons: Comparisons,
    /// When this replica first saw that etcd ends over and over, by pod.
    crash_loops: BTreeMap<PodUid, Instant>,
    /// When the claims were last looked at.
    looked: Option<Instant>,
}

impl Replacement {
    /// Whether a replacement is under way, by the cache.
    fn is_open(run: &Run, cluster: &ClusterRef) -> bool {
        let budget = run.watches.budgets.of_cluster(cluster);
        let status = budget.as_ref().and_then(|budget| budget.status.as_ref());
        status.is_some_and(|s| s.replacements.iter().any(|r| r.completion_time.is_none()))
    }

    /// Whether the claims were not looked at for their period.
    fn are_claims_due(&mut self, run: &Run) -> bool {
        let now = run.clock.instant();
        let clusters = u32::try_from(run.watches.budgets.len()).unwrap_or(u32::MAX);
        let period = CLAIMS.max(CLAIMS_PER_CLUSTER.saturating_mul(clusters));
        let looked = *self.looked.get_or_insert(now);
        now.saturating_duration_since(looked) >= period
    }

    /// The pods in which etcd ends over and over, with the time for which this replica has seen it.
    fn crash_loops(&mut self, view: &ClusterView, now: Instant) -> BTreeMap<PodUid, CrashLoop> {
        let exits = view.crash_loops();
        self.crash_loops.retain(|uid, _| exits.contains_key(uid));
        let loops = exits.into_iter().map(|(uid, exit)| {
            let since = *self.crash_loops.entry(uid.clone()).or_insert(now);
            let lasted = now.saturating_duration_since(since);
            (uid, CrashLoop { exit, lasted })
        });
        loops.collect()
    }
}

impl Operation for Replacement {
    const NAME: &'static str = "replacement";
    type Input = Input;
    type Step = Step;
    type Wait = Wait;

    fn is_at_work(&mut self, run: &Run, cluster: &ClusterRef, leads: bool) -> bool {
        leads && (Self::is_open(run, cluster) || self.are_claims_due(run))
    }

    async fn gather(
        &mut self,
        context: &OperationContext<'_>,
    ) -> Result<Option<Input>, ReconcileError> {
        let OperationContext { run, look, .. } = *context;
        let is_open = Self::is_open(run, context.cluster);
        if !is_open && !self.are_claims_due(run) && !is_worth_a_closer_look(look) {
            return Ok(None);
        }
        let now = run.clock.instant();
        self.looked = Some(now);
        let leadership_stays = self.refusals.leadership_stays(now);
        let data = if mode(look.page.budget()) == Mode::Off && !is_open {
            Comparison::Unknown
        } else {
            self.comparisons.compare(context)
        };
        let loops = self.crash_loops(&look.view, now);
        let input = gather(run, look, leadership_stays, data, loops).boxed();
        input.await.map(Some).map_err(ReconcileError::Gather)
    }

    fn next(&self, context: &OperationContext<'_>, input: &Input) -> Plan<Step, Wait> {
        let OperationContext { run, look, .. } = *context;
        if let Some(member) = disarm(&look.snapshot, &input.facts).into_iter().next()
            && input.facts.record.is_some()
        {
            return Plan::Act(vec![Step::Disarm(member)]);
        }
        let next = plan::next(&look.snapshot, &look.page.grants, &input.facts);
        let stay = self.refusals.members_stay(input.now);
        match (next, stay) {
            (plan::Next::Act(plan::Step::RemoveMember { pod, .. }), Some(because)) => {
                let because = because.to_owned();
                Plan::Act(vec![Step::Undo { pod, because }])
            }
            (plan::Next::Act(plan::Step::Grant { .. }), Some(because)) => {
                Plan::Wait(Wait::MembersStay(because.to_owned()))
            }
            (plan::Next::Act(plan::Step::Undo { pod, because }), _) => {
                let because = because.to_string();
                Plan::Act(vec![Step::Undo { pod, because }])
            }
            (plan::Next::Act(step), _) => Plan::Act(vec![Step::Plan(step)]),
            // A pod that etcd expects starts, also where a person changed the member list.
            (next, _) => match start::start(&run.observer, look, input) {
                Some(step) => Plan::Act(vec![step]),
                None => Plan::Wait(Wait::Plan(next)),
            },
        }
    }

    fn permit(&self, context: &OperationContext<'_>, input: &Input, step: &Step) -> Option<Permit> {
        let Step::Plan(step) = step else {
            return None;
        };
        let (member, begins) = match step {
            plan::Step::Grant { record, proof } => {
                let begins = record::begun(record, proof.as_ref(), input.at);
                (&record.member, Some(begins))
            }
            plan::Step::Renew { record } => {
                let open = context.look.page.open_replacement()?;
                (&record.member, Some(record::renewed(open, record)))
            }
            plan::Step::RemoveMember { pod, .. } => (pod, None),
            _ => return None,
        };
        let member = member.clone();
        let replace = Maintenance::Replace { member, begins };
        Some(Permit::Maintenance(Box::new(replace)))
    }

    async fn apply(
        &mut self,
        context: &OperationContext<'_>,
        input: &Input,
        step: &Step,
        permission: Option<Permission>,
    ) -> Result<Applied, ReconcileError> {
        let applied = match step {
            Step::Plan(step) => {
                let refusals = &mut self.refusals;
                let done = carry_out::carry_out(refusals, context, input, step, permission);
                done.boxed().await
            }
            Step::Undo { pod, .. } => carry_out::undo(context, pod).boxed().await,
            Step::Disarm(member) => Ok(carry_out::disarm(context, input, *member).boxed().await),
            Step::Start { pod, uid } => {
                start::record_expected(context, input, (pod, uid))
                    .boxed()
                    .await?;
                Ok(carry_out::release(context, pod, uid).boxed().await)
            }
            Step::CreateAnew { pod, uid } => Ok(delete_pod(context, pod, uid).boxed().await),
            Step::BeginAnew(pods) => {
                let pods = pods.iter().cloned();
                context
                    .run
                    .ledger()
                    .begin_anew(&context.look.page, pods)
                    .await?;
                Ok(Applied::Done)
            }
        }?;
        if matches!(applied, Applied::Done) {
            let slug = match step {
                Step::Plan(step) => step.slug(),
                Step::Undo { .. } => "Undo",
                _ => return Ok(applied),
            };
            context.run.metrics.replacement_step(slug);
        }
        Ok(applied)
    }

    async fn publish(
        &mut self,
        context: &OperationContext<'_>,
        input: &Input,
        next: &Plan<Step, Wait>,
    ) {
        match next {
            Plan::Wait(Wait::MembersStay(because)) => {
                warn!(cluster = %context.cluster, because, "no member is replaced: etcd refused to remove one");
            }
            Plan::Wait(Wait::Plan(_)) => {
                report::tell_held(context.run, context.look, input)
                    .boxed()
                    .await;
            }
            Plan::Act(_) => {}
        }
    }

    fn report(
        &self,
        context: &OperationContext<'_>,
        input: &Input,
        next: &Plan<Step, Wait>,
        made: &Made<'_, Step>,
    ) -> Option<Report> {
        let said = match next {
            Plan::Wait(Wait::Plan(next)) => report::said(context.look, input, next),
            Plan::Wait(Wait::MembersStay(_)) => return None,
            Plan::Act(_) => {
                let (step, because) = made.failure()?;
                input.facts.record.as_ref()?;
                let text = format!("tried again: {step}. It failed: {because}.");
                ("False", "Replacing", text)
            }
        };
        Some(conditions::report(
            context,
            condition::DATA_PROTECTED,
            said,
            true,
        ))
    }

    fn rest(
        &mut self,
        _: &OperationContext<'_>,
        input: &Input,
        next: &Plan<Step, Wait>,
        made: &Made<'_, Step>,
    ) -> Rest {
        match (next, made.done) {
            (Plan::Act(_), Some(Step::CreateAnew { .. }) | None) => Rest::NotBefore(WAITING),
            (Plan::Act(_), Some(_)) => Rest::NotBefore(STEP),
            (Plan::Wait(Wait::Plan(plan::Next::Wait { .. })), _)
                if input.facts.record.is_some() =>
            {
                Rest::NotBefore(WAITING)
            }
            (Plan::Wait(Wait::Plan(_)), _) if self.comparisons.are_running() => {
                Rest::Within(WAITING)
            }
            (Plan::Wait(Wait::Plan(_)), _) => Rest::Idle,
            (Plan::Wait(Wait::MembersStay(_)), _) => Rest::Asleep(LONG),
        }
    }
}

/// Whether a look shows that a closer look may find something to do.
fn is_worth_a_closer_look(look: &Look) -> bool {
    let Look {
        page,
        view,
        snapshot,
        ..
    } = look;
    let is_protected = page.status().is_some_and(|status| {
        find(&status.conditions, condition::DATA_PROTECTED).is_some_and(|c| c.status == "True")
    });
    let open = page.open_replacement().is_some() || page.open_recovery().is_some();
    let held = view.pods().iter().any(is_held);
    let ill = || {
        let is_ill = |member: &crate::quorum::Member| member.condition != Condition::Serving;
        snapshot.members.iter().any(is_ill)
            || !snapshot.not_members.is_empty()
            || !snapshot.accused.is_empty()
    };
    let mut records = page.volume_records().into_values();
    let auto = mode(page.budget()) == Mode::Auto || records.any(|record| record.volume.is_in_pod());
    let learns = || {
        snapshot
            .members
            .iter()
            .any(|member| member.role == Role::Learner)
    };
    // A permission to delete a claim, which may still be there under a member that serves.
    let gives_up = || {
        let mut causes = page.grants.iter().flat_map(|(_, grant)| &grant.causes);
        causes.any(|cause| cause.what == GrantKind::Replace)
    };
    let anew = || !view.crash_loops().is_empty() && !snapshot.proves_quorum();
    let may_begin = || ill() && (auto || learns() || !view.crash_loops().is_empty());
    let asked = || gather::requested(page).is_some();
    !is_protected || open || held || asked() || gives_up() || may_begin() || anew()
}
