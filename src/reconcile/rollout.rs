//! The rollout of one cluster, in quorum-aware order.
//!
//! Only the leader rolls out, to save work. A second replica that does not know yet that it lost
//! the Lease does no harm: every step takes its grant from the ledger, and every delete names the
//! incarnation that was seen.

mod absences;
mod attention;
mod carry_out;
mod desired;
mod due;
mod pauses;
mod report;
mod setback;
mod step;
mod unblock;
mod work;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::look::{Look, ReconcileError};
use super::operation::{
    Applied, Ended, Made, Operation, OperationContext, Permission, Permit, Plan, Report, Rest,
};
use super::run::Run;
use super::strategy::kind;
use super::workers::RESYNC;
use crate::api::names::PROCEED_WITHOUT_QUORUM;
use crate::api::{QuorumDisruptionBudgetStatus, condition};
use crate::etcd::Prober;
use crate::judge::SeenVersions;
use crate::observe::{ObserveError, first_ordinal};
use crate::plan::{self, Finding, WaitingOn, ignored, next_step, preflight, progress, unblock};
use crate::quorum::ClusterRef;
use crate::strategy::ON_DELETE;
use absences::Absences;
use attention::Attention;
use desired::Watched;
pub(super) use desired::management;
use pauses::{LATER, Outcome, Pauses, SOON};
use report::RolloutReport;
pub(super) use report::announce;
use setback::Setbacks;
use step::{Input, Step, Wait};
use unblock::{Replaced, partition, write_partition};

/// The rollout of one cluster.
#[derive(Default)]
pub(super) struct Rollout {
    absences: Absences,
    attention: Attention,
    pauses: Pauses,
    replaced: Replaced,
    setbacks: Setbacks,
}

impl Rollout {
    /// Whether only the gate replaces the StatefulSet's pods.
    fn is_ours(run: &Run, set: &StatefulSet) -> bool {
        run.settings.features.on_delete && kind(set) == ON_DELETE
    }

    /// The steps up to the first that failed a short time ago.
    fn without_setbacks(
        &self,
        steps: Vec<plan::Step>,
        context: &OperationContext<'_>,
        now: Instant,
    ) -> Plan<Step, Wait> {
        let seen = SeenVersions::new(&context.look.page, &context.look.view);
        let mut untried = Vec::new();
        for step in steps {
            match self.setbacks.against(&step, &seen, now) {
                None => untried.push(Step::Go(step)),
                Some(because) if untried.is_empty() => {
                    let (pod, because) = (step.pod.name, because.to_owned());
                    return Plan::Wait(Wait::On(WaitingOn::Failed { pod, because }));
                }
                Some(_) => break,
            }
        }
        Plan::Act(untried)
    }

    /// The help under `RollingUpdate`, where the StatefulSet controller updates: a broken member
    /// that keeps it from continuing is replaced.
    fn help(&self, context: &OperationContext<'_>, input: &Input) -> Plan<Step, Wait> {
        let Look {
            page,
            view,
            snapshot,
            ..
        } = context.look;
        let Some(set) = view.stateful_set().filter(|set| kind(set) != ON_DELETE) else {
            return Plan::Wait(Wait::Owner);
        };
        let Some(step) = unblock(snapshot, &page.grants, &input.desired) else {
            return Plan::Wait(Wait::Controller);
        };
        let target = snapshot.update_revision.as_deref();
        if !self.replaced.may_go(&step.pod.name, target, input.now) {
            return Plan::Wait(Wait::Controller);
        }
        match partition(set) {
            None => self.without_setbacks(vec![step], context, input.now),
            Some(patch) if self.replaced.may_write_partition(input.now) => {
                Plan::Act(vec![Step::Partition(patch)])
            }
            Some(_) => Plan::Wait(Wait::Controller),
        }
    }
}

impl Operation for Rollout {
    const NAME: &'static str = "rollout";
    type Input = Input;
    type Step = Step;
    type Wait = Wait;

    fn is_at_work(&mut self, run: &Run, cluster: &ClusterRef, leads: bool) -> bool {
        let has_work = || {
            let watches = &run.watches;
            let set = watches.stateful_sets.of_cluster(cluster)?;
            let set = set.stateful_set(cluster);
            let budget = watches.budgets.of_cluster(cluster);
            let pod = |pod: &str| watches.pods.get(&cluster.namespace, pod);
            let ours = Self::is_ours(run, &set);
            Some(work::is_there(&set, budget.as_deref(), ours, pod))
        };
        let is_at_work = leads && has_work().unwrap_or_default();
        if !is_at_work {
            run.fleet.leave(cluster);
            if !leads {
                run.fleet.stand_down();
            }
            // There is no rollout, so nothing has lasted for any time.
            *self = Self::default();
        }
        is_at_work
    }

    async fn gather(
        &mut self,
        context: &OperationContext<'_>,
    ) -> Result<Option<Input>, ReconcileError> {
        let OperationContext { run, look, .. } = *context;
        let set = look.view.stateful_set();
        // A StatefulSet that is being deleted creates no pods.
        let set = set.filter(|set| set.metadata.deletion_timestamp.is_none());
        let Some(set) = set.filter(|_| self.is_at_work(run, context.cluster, context.leads)) else {
            run.fleet.leave(context.cluster);
            return Ok(None);
        };
        let now = run.clock.instant();
        let limit = run.observer.round_limit(&look.page)?;
        self.attention.take_in(look, limit, now);
        let ours = Self::is_ours(run, set);
        let watched = Watched {
            findings: if ours {
                findings(context).await
            } else {
                Vec::new()
            },
            out_for: self.absences.note(&look.snapshot, first_ordinal(set), now),
            leadership_rests: run.judge.leadership_rests(&look.page, &look.snapshot),
        };
        let desired = desired::desired(set, look.page.budget(), &look.view, watched);
        Ok(Some(Input {
            desired: desired.map_err(ObserveError::Spec)?,
            ours,
            now,
        }))
    }

    fn next(&self, context: &OperationContext<'_>, input: &Input) -> Plan<Step, Wait> {
        if !input.ours {
            context.run.fleet.leave(context.cluster);
            return self.help(context, input);
        }
        let look = context.look;
        match next_step(&look.snapshot, &look.page.grants, &input.desired) {
            plan::Next::Act(steps) => {
                let mut steps: Vec<plan::Step> = steps.iter().cloned().collect();
                match due::keep_due(context, input, &mut steps) {
                    Some(full) if steps.is_empty() => Plan::Wait(Wait::On(full)),
                    _ => self.without_setbacks(steps, context, input.now),
                }
            }
            plan::Next::Wait(waiting) => {
                if WaitingOn::gives_way(waiting.slug()) {
                    context.run.fleet.leave(context.cluster);
                }
                Plan::Wait(Wait::On(waiting))
            }
            plan::Next::Done => {
                context.run.fleet.leave(context.cluster);
                Plan::Wait(Wait::Done)
            }
        }
    }

    fn permit(&self, _: &OperationContext<'_>, _: &Input, step: &Step) -> Option<Permit> {
        match step {
            Step::Go(step) => Some(Permit::Pod(step.pod.clone(), step.kind())),
            Step::Partition(_) => None,
        }
    }

    async fn apply(
        &mut self,
        context: &OperationContext<'_>,
        input: &Input,
        step: &Step,
        permission: Option<Permission>,
    ) -> Result<Applied, ReconcileError> {
        let OperationContext { run, look, .. } = *context;
        let step = match step {
            Step::Go(step) => step,
            Step::Partition(patch) => {
                self.replaced.note_partition(input.now);
                let written = write_partition(&run.client, context.cluster, patch).await;
                return Ok(match written {
                    Ok(()) => Applied::Done,
                    Err(error) => Applied::Failed(error.to_string()),
                });
            }
        };
        let applied = match look.view.pod(&step.pod.name).zip(permission) {
            Some((pod, _)) => carry_out::carry_out(run, pod, step).await,
            None => Applied::Outdated,
        };
        match &applied {
            Applied::Done => {
                self.setbacks.forget();
                let (action, because) = (step.action.slug(), step.because.slug());
                run.metrics.rollout.step(action, because);
            }
            Applied::Failed(because) => {
                let seen = SeenVersions::new(&look.page, &look.view);
                let settle_time = run.settings.settle_time;
                self.setbacks
                    .note(step, &seen, because, input.now, settle_time);
            }
            Applied::Outdated | Applied::Deferred => {}
        }
        if !input.ours && matches!(applied, Applied::Done | Applied::Failed(_)) {
            let target = look.snapshot.update_revision.as_deref();
            self.replaced.note(&step.pod.name, target, input.now);
        }
        Ok(applied)
    }

    fn report(
        &self,
        context: &OperationContext<'_>,
        input: &Input,
        next: &Plan<Step, Wait>,
        made: &Made<'_, Step>,
    ) -> Option<Report> {
        let OperationContext { run, look, .. } = *context;
        if !input.ours {
            return Some(Box::new(take_back));
        }
        let step = match made.done {
            Some(Step::Go(step)) => Some(step.clone()),
            Some(Step::Partition(_)) | None => None,
        };
        let waiting = waiting(next, made);
        let done = matches!(next, Plan::Wait(Wait::Done));
        if step.is_none() && waiting.is_none() && !done {
            // The look was outdated.
            return None;
        }
        let budget = look.page.budget();
        let annotations = budget.metadata.annotations.as_ref();
        let accepted = annotations.and_then(|a| a.get(PROCEED_WITHOUT_QUORUM));
        let scene = RolloutReport {
            target: look.snapshot.update_revision.clone(),
            progress: progress(&look.snapshot, &input.desired),
            done,
            waiting,
            made: step,
            ignored: accepted.and_then(|named| ignored(named, &look.snapshot, &input.desired)),
            generation: budget.metadata.generation,
            now: Time(run.clock.now()),
        };
        Some(Box::new(move |status| scene.show(status)))
    }

    fn rest(
        &mut self,
        context: &OperationContext<'_>,
        input: &Input,
        next: &Plan<Step, Wait>,
        made: &Made<'_, Step>,
    ) -> Rest {
        if !input.ours {
            return Rest::Within(match (next, made.done, &made.ended) {
                (Plan::Wait(Wait::Owner), ..) => RESYNC,
                (_, Some(_), _) | (_, _, Some((_, Ended::Outdated))) => SOON,
                _ => LATER,
            });
        }
        let waiting = waiting(next, made);
        let outcome = outcome(made, waiting.as_ref());
        let (now, metrics) = (context.run.clock.instant(), &context.run.metrics.rollout);
        self.pauses.after(outcome, now, metrics)
    }

    fn until_otherwise<'a>(&'a self, prober: &'a Prober) -> BoxFuture<'a, ()> {
        self.attention.until_otherwise(prober).boxed()
    }
}

/// The findings of the preflight.
async fn findings(context: &OperationContext<'_>) -> Vec<Finding> {
    let OperationContext { run, look, .. } = *context;
    let Some(template) = look.view.template_etcd() else {
        return Vec::new();
    };
    let seen = (&look.snapshot, &look.round);
    let running = run.observer.running_members(&look.view, seen, &template);
    preflight(&template, &running.await)
}

/// The outcome of a turn.
fn outcome<'w>(made: &Made<'_, Step>, waiting: Option<&'w WaitingOn>) -> Outcome<'w> {
    match (made.done, &made.ended) {
        // Where some steps were made, their effect has to be seen.
        (Some(_), _) => Outcome::Stepped,
        (None, Some((_, Ended::Outdated | Ended::Deferred))) => Outcome::Outdated,
        (None, Some((_, Ended::Failed(_)))) => Outcome::Failed,
        (None, Some((_, Ended::Refused(_))) | None) => {
            waiting.map_or(Outcome::Rests, Outcome::Waits)
        }
    }
}

/// The wait of the rollout after this turn.
fn waiting(next: &Plan<Step, Wait>, made: &Made<'_, Step>) -> Option<WaitingOn> {
    match (&made.ended, next) {
        (Some((Step::Go(step), Ended::Refused(reason))), _) => Some(WaitingOn::Permission {
            pod: step.pod.name.clone(),
            reason: reason.clone(),
        }),
        (Some((Step::Go(step), Ended::Failed(because))), _) => Some(WaitingOn::Failed {
            pod: step.pod.name.clone(),
            because: because.clone(),
        }),
        (None, Plan::Wait(Wait::On(waiting))) => Some(waiting.clone()),
        _ => None,
    }
}

/// Removes the report, since the gate does not roll out this cluster any more.
fn take_back(status: &mut QuorumDisruptionBudgetStatus) {
    if status.rollout.take().is_some() {
        let conditions = &mut status.conditions;
        conditions.retain(|c| c.type_ != condition::PROGRESSING);
    }
}

#[cfg(test)]
mod tests;
