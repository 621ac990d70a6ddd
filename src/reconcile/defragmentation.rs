//! The defragmentation of one cluster's members: which are due, what holds them back, and the runs.
//!
//! The leader begins runs, by itself or when the annotation asks, as the planner says
//! ([`crate::plan::defragmentation`]). The process that holds a grant goes on with its run, also if
//! it leads no longer. A grant whose holder is gone is settled by any replica, when its age says
//! that nobody can be at it any more, and the member does not say otherwise.

pub(super) mod calls;
mod carry_out;
mod gather;
mod report;
mod runs;
mod step;

use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::Instant;
use tracing::info;

use super::condition::find;
use super::look::{Look, ReconcileError};
use super::operation::{
    Applied, Ended, Made, Operation, OperationContext, Permission, Permit, Plan, Report, Rest,
};
use super::run::Run;
use crate::api::{cause_kind, condition};
use crate::judge::Maintenance;
use crate::ledger::Page;
use crate::observe::ObserveError;
use crate::plan::defragmentation::{self as plan, Call, Disarm, Mode, Refusal, disarm, progress};
use crate::quorum::evidence::AlarmKind;
use crate::quorum::{ClusterRef, Snapshot};
use carry_out::Leadership;
use gather::{Input, Known, gather, open, request};
use step::{Step, Wait};

/// The longest time between two looks of which the first still says that all have served.
const GAP: Duration = Duration::from_secs(6);
/// The pauses: after a step, while a run of this process is under way, while all members have to
/// serve for a while, while another process holds the permission, between two looks at a cluster
/// with something to report, and after a failure.
const STEP: Duration = Duration::from_millis(100);
const RUNNING: Duration = Duration::from_millis(500);
const SERVING: Duration = Duration::from_secs(1);
const OF_ANOTHER: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(30);
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The bytes that a look at the sizes alone takes for worth a closer look. No run frees less.
const WORTH: u64 = 32 << 20;

/// The defragmentation of one cluster.
#[derive(Default)]
pub(super) struct Defragmentation {
    /// Since when every voter has served, and the last look that said so.
    served: Option<(Instant, Instant)>,
    leadership: Leadership,
    /// The call of this process, as it was before the members were asked: one that serves serves
    /// after the call.
    call: Call,
    /// The sequence number of another process's permission that was over at the last turn. The
    /// process that made the call settles first, since it alone knows how the call ended.
    over: Option<u64>,
    /// The generation of the budget, and the request on it, at the last turn.
    asked: Option<(Option<i64>, Option<String>)>,
}

impl Defragmentation {
    /// Notes whether all voters serve. Returns for how long they have.
    fn note_served(&mut self, snapshot: &Snapshot, now: Instant) -> Duration {
        let all = snapshot.all_voters_serve();
        let before = self.served.take();
        let before = before.filter(|(_, last)| now.saturating_duration_since(*last) < GAP);
        let since = before.map_or(now, |(since, _)| since);
        self.served = all.then_some((since, now));
        if all {
            now.saturating_duration_since(since)
        } else {
            Duration::ZERO
        }
    }

    /// The next move while nothing runs.
    fn begin_or_rest(look: &Look, input: &Input) -> Plan<Step, Wait> {
        let facts = &input.facts;
        let alarms = disarm(&look.snapshot, facts);
        if let Disarm::Disarm(members) = alarms {
            return Plan::Act(vec![Step::Disarm(members)]);
        }
        let next = |facts| plan::next(&look.snapshot, &look.page.grants, facts);
        match next(facts) {
            plan::Next::Act(plan::Step::Grant { pod, due }) => {
                Plan::Act(vec![Step::Grant { pod, due }])
            }
            plan::Next::Wait {
                because: Refusal::ServingTooShort { .. },
                ..
            } => match next(&facts.after_a_while()) {
                plan::Next::Act(_) => Plan::Wait(Wait::Serving),
                later => Plan::Wait(Wait::Resting(later, alarms)),
            },
            next => Plan::Wait(Wait::Resting(next, alarms)),
        }
    }
}

impl Operation for Defragmentation {
    const NAME: &'static str = "defragmentation";
    type Input = Input;
    type Step = Step;
    type Wait = Wait;

    /// A permission is open, by the cache. The process that holds it need not lead.
    fn is_at_work(&mut self, run: &Run, cluster: &ClusterRef, _leads: bool) -> bool {
        let budget = run.watches.budgets.of_cluster(cluster);
        let status = budget.as_ref().and_then(|budget| budget.status.as_ref());
        let grants = status.into_iter().flat_map(|status| &status.grants);
        let mut causes = grants.flat_map(|grant| &grant.causes);
        causes.any(|cause| cause.kind == cause_kind::DEFRAGMENT)
    }

    /// A new request and new settings shorten a pause.
    fn is_asked_anew(&mut self, run: &Run, cluster: &ClusterRef) -> bool {
        let budget = run.watches.budgets.of_cluster(cluster);
        let asked = budget.map(|budget| (budget.metadata.generation, request(&budget)));
        let is_new = self.asked != asked;
        self.asked = asked;
        is_new
    }

    fn before_members(&mut self, run: &Run, page: &Page) {
        let open = open(page);
        let ours = open.filter(|open| open.holder == run.me);
        self.call = run.calls.state(&page.cluster, ours.map(|open| open.seq));
    }

    async fn gather(
        &mut self,
        context: &OperationContext<'_>,
    ) -> Result<Option<Input>, ReconcileError> {
        let OperationContext { run, look, .. } = *context;
        let is_open = open(&look.page).is_some();
        let may_begin = || context.leads && is_worth_a_closer_look(look);
        if !is_open && !may_begin() {
            return Ok(None);
        }
        let known = Known {
            served_for: self.note_served(&look.snapshot, context.asked),
            leadership_stays: self.leadership.stays(context.asked),
            call: self.call,
        };
        let input = gather(run, look, known).boxed().await;
        let mut input = input.map_err(ObserveError::Spec)?;
        let over = input.open.as_ref().and_then(|open| {
            let seen = progress(&look.snapshot, &open.pod, &open.holder, &input.facts);
            let settle_time = run.settings.settle_time;
            let ledger = run.ledger();
            let is_over = ledger.is_defragmentation_over(&look.page, &open.pod, seen, settle_time);
            is_over.then_some((open.seq, open.holder == run.me, seen))
        });
        let before = std::mem::replace(&mut self.over, over.map(|(seq, ..)| seq));
        input.over = over
            .filter(|(seq, ours, _)| *ours || before == Some(*seq))
            .map(|(_, _, seen)| seen);
        Ok(Some(input))
    }

    fn next(&self, context: &OperationContext<'_>, input: &Input) -> Plan<Step, Wait> {
        let OperationContext { run, look, .. } = *context;
        let facts = &input.facts;
        let Some(open) = &input.open else {
            return Self::begin_or_rest(look, input);
        };
        if open.holder == run.me {
            let pod = open.pod.clone();
            match plan::next(&look.snapshot, &look.page.grants, facts) {
                // Another replica leads, and waits until the permission is gone.
                plan::Next::Act(plan::Step::MoveLeader { .. } | plan::Step::Begin { .. })
                    if !context.leads =>
                {
                    return Plan::Act(vec![Step::GiveUp { pod, because: None }]);
                }
                // What failed is not tried again.
                plan::Next::Act(plan::Step::MoveLeader { .. })
                    if self.leadership.was_moved_under(open.seq) =>
                {
                    return Plan::Act(vec![Step::GiveUp { pod, because: None }]);
                }
                plan::Next::Act(plan::Step::MoveLeader { pod, to }) => {
                    return Plan::Act(vec![Step::MoveLeader { pod, to }]);
                }
                plan::Next::Act(plan::Step::Begin { pod }) => {
                    return Plan::Act(vec![Step::Begin { pod }]);
                }
                plan::Next::Act(plan::Step::GiveUp { pod, because }) => {
                    let because = Some(because);
                    return Plan::Act(vec![Step::GiveUp { pod, because }]);
                }
                plan::Next::Act(plan::Step::Settle { .. } | plan::Step::Grant { .. })
                | plan::Next::Watch { .. }
                | plan::Next::Wait { .. }
                | plan::Next::Nothing => {}
            }
        }
        if let Some(seen) = input.over {
            let pod = open.pod.clone();
            return Plan::Act(vec![Step::Settle { pod, seen }]);
        }
        Plan::Wait(Wait::Running(facts.call == Call::Running))
    }

    fn permit(&self, context: &OperationContext<'_>, input: &Input, step: &Step) -> Option<Permit> {
        let (pod, begins) = match step {
            Step::Grant { pod, .. } => (pod, None),
            Step::Begin { pod } => {
                let snapshot = &context.look.snapshot;
                let member = snapshot.member(&pod.name)?;
                let now = context.run.clock.now();
                let begins = runs::begun(snapshot, member, &pod.name, &input.facts, now);
                (pod, Some(begins))
            }
            _ => return None,
        };
        Some(Permit::Maintenance(Box::new(Maintenance::Defragment {
            pod: pod.clone(),
            holder: context.run.me.clone(),
            timeout: input.facts.settings.timeout,
            begins,
        })))
    }

    async fn apply(
        &mut self,
        context: &OperationContext<'_>,
        input: &Input,
        step: &Step,
        permission: Option<Permission>,
    ) -> Result<Applied, ReconcileError> {
        let leadership = &mut self.leadership;
        let done = carry_out::carry_out(leadership, context, input, step, permission);
        let applied = done.boxed().await?;
        if let (Step::GiveUp { .. } | Step::Settle { .. }, Applied::Done) = (step, &applied) {
            self.served = None;
        }
        Ok(applied)
    }

    fn report(
        &self,
        context: &OperationContext<'_>,
        input: &Input,
        next: &Plan<Step, Wait>,
        _: &Made<'_, Step>,
    ) -> Option<Report> {
        match next {
            Plan::Wait(wait) if context.leads => report::report(context, input, wait),
            Plan::Act(_) | Plan::Wait(_) => None,
        }
    }

    fn rest(
        &mut self,
        context: &OperationContext<'_>,
        input: &Input,
        next: &Plan<Step, Wait>,
        made: &Made<'_, Step>,
    ) -> Rest {
        match (next, &made.ended) {
            (Plan::Act(_), Some((step, Ended::Refused(because)))) => {
                info!(cluster = %context.cluster, %step, %because, "defragmentation refused");
                Rest::NotBefore(AFTER_FAILURE)
            }
            (Plan::Act(_), Some((_, Ended::Failed(_)))) => Rest::NotBefore(AFTER_FAILURE),
            (Plan::Act(_), _) => Rest::NotBefore(STEP),
            (Plan::Wait(Wait::Running(_)), _) => {
                let open = input.open.as_ref();
                let ours = open.is_some_and(|open| open.holder == context.run.me);
                Rest::NotBefore(if ours { RUNNING } else { OF_ANOTHER })
            }
            (Plan::Wait(Wait::Serving), _) => Rest::NotBefore(SERVING),
            (Plan::Wait(Wait::Resting(..)), _) => Rest::Asleep(LONG),
        }
    }
}

/// Whether a look shows that a closer look may find something to do.
fn is_worth_a_closer_look(look: &Look) -> bool {
    let Ok(wishes) = look.page.budget().spec.defragmentation() else {
        return false;
    };
    if open(&look.page).is_some() || is_shown(&look.page) {
        return true;
    }
    let least = WORTH.min(wishes.min_reclaim);
    let is_worth = |member: &crate::quorum::Member| {
        let sizes = member.sizes;
        sizes.is_some_and(|sizes| sizes.db.saturating_sub(sizes.in_use) >= least)
            || member.alarms.contains(&AlarmKind::NoSpace)
    };
    gather::settings(&wishes).mode != Mode::Off
        && (is_requested(&look.page) || look.snapshot.members.iter().any(is_worth))
}

/// Whether the budget says that a member is due.
fn is_shown(page: &Page) -> bool {
    let status = page.status();
    status.is_some_and(|status| {
        find(&status.conditions, condition::DEFRAGMENTED).is_some_and(|c| c.status != "True")
    })
}

/// Whether a run of some member is asked for that was not made yet.
fn is_requested(page: &Page) -> bool {
    let Some(request) = request(page.budget()) else {
        return false;
    };
    let status = page.status();
    status.is_none_or(|status| {
        let served = |pod: &str| {
            let mut runs = status.defragmentations.iter();
            runs.any(|run| run.member == pod && run.request.as_ref() == Some(&request))
        };
        let mut pods = status.members.iter().filter_map(|m| m.pod.as_deref());
        !pods.all(served)
    })
}
