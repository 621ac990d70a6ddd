//! Operations: the work of the gate that changes a cluster by steps. One trait, and the driver that
//! takes the steps.
//!
//! An operation is a file or a folder with its [`Operation`], and a line in [`super::operations`].
//! The driver is the same for all of them: it gathers what the look lacks, asks the planner, asks
//! the judge, carries out, and hands over what there is to report. No verdict depends on what an
//! operation remembers from one look to the next, so another replica goes on at any point where one
//! ended.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::look::{Look, ReconcileError};
use super::run::Run;
use super::workers::RESYNC;
use crate::api::QuorumDisruptionBudgetStatus;
use crate::causes::causes;
use crate::etcd::Prober;
use crate::judge::{
    Allowed, Asker, Decision, DryRun, Ground, Judging as _, Maintenance, MaintenanceQuestion,
    Question, Refused, SeenVersions,
};
use crate::ledger::{Page, Recorded};
use crate::quorum::{Actor, ClusterRef, Grace, Kind, Reason, TargetPod};

/// The time limit of the judge.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause after a look that others have outdated.
const AT_ONCE: Duration = Duration::from_millis(100);
/// The pause after a failure that time may cure.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// A cluster that was just looked at.
pub(super) struct OperationContext<'a> {
    pub(super) run: &'a Arc<Run>,
    pub(super) cluster: &'a ClusterRef,
    pub(super) look: &'a Look,
    /// Whether this replica leads.
    pub(super) leads: bool,
    /// When the members were asked.
    pub(super) asked: Instant,
}

/// The next move of an operation.
pub(super) enum Plan<S, W> {
    /// Steps are taken, each with its own permission. The first that cannot be taken ends
    /// them.
    Act(Vec<S>),
    /// Nothing is done now.
    Wait(W),
}

/// The permission that a step needs.
pub(super) enum Permit {
    /// A pod goes.
    Pod(TargetPod, Kind),
    /// A member is defragmented or replaced.
    Maintenance(Box<Maintenance>),
}

/// A permission that is on record.
pub(super) struct Permission {
    pub(super) proof: Recorded,
    /// Until when it may be used. A process that was held up for longer does nothing with it.
    pub(super) until: Instant,
}

/// The effect of a step.
pub(super) enum Applied {
    /// The step was made, so the look is outdated: no later operation takes its turn with it, and
    /// the next look comes soon. A step that changes nothing is never `Done`.
    Done,
    /// The facts have changed since the look.
    Outdated,
    /// Nothing was changed: the step has to wait. Later operations take their turns.
    Deferred,
    /// The step had no effect, for this reason.
    Failed(String),
}

/// The result of the steps of a turn.
pub(super) struct Made<'s, S> {
    /// The last step that was made.
    pub(super) done: Option<&'s S>,
    /// The step that could not be made, and why.
    pub(super) ended: Option<(&'s S, Ended)>,
}

/// The reason why a step could not be made.
pub(super) enum Ended {
    Outdated,
    Deferred,
    Refused(Reason),
    Failed(String),
}

impl<S> Made<'_, S> {
    /// The reason for which the judge or the API server refused a step.
    pub(super) fn failure(&self) -> Option<(&S, String)> {
        match self.ended.as_ref()? {
            (step, Ended::Refused(because)) => Some((step, because.to_string())),
            (step, Ended::Failed(because)) => Some((step, because.clone())),
            (_, Ended::Outdated | Ended::Deferred) => None,
        }
    }
}

/// The part of an operation in the status of the budget. Changes of the ledger's record in it are
/// dropped ([`QuorumDisruptionBudgetStatus::reporting`]).
pub(super) type Report = Box<dyn Fn(&mut QuorumDisruptionBudgetStatus) + Send + Sync>;

/// When an operation takes its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Rest {
    /// With the next look, whenever that is.
    #[default]
    Idle,
    /// With the next look, which comes after this time at the latest.
    Within(Duration),
    /// The same, and a look comes as soon as a member that does not serve answers differently.
    Attentive(Duration),
    /// After this time, and not before.
    NotBefore(Duration),
    /// Not before this time, after which it needs no look of its own.
    Asleep(Duration),
}

/// Something that the gate does to a cluster by steps.
pub(super) trait Operation: Send {
    /// The name, for people.
    const NAME: &'static str;
    /// The facts that a look lacks.
    type Input: Send + Sync;
    /// A single effect, which may have happened already.
    type Step: Display + Send + Sync;
    /// The reason why nothing is done.
    type Wait: Send + Sync;

    /// Whether the caches show that the operation needs a look. Called before every wait.
    fn is_at_work(&mut self, run: &Run, cluster: &ClusterRef, leads: bool) -> bool;

    /// Takes note of what has to be known before the members are asked.
    fn before_members(&mut self, _run: &Run, _page: &Page) {}

    /// Gathers the facts that the look lacks. `None` if there is nothing to do.
    fn gather(
        &mut self,
        context: &OperationContext<'_>,
    ) -> impl Future<Output = Result<Option<Self::Input>, ReconcileError>> + Send;

    /// The next move. Pure.
    fn next(
        &self,
        context: &OperationContext<'_>,
        input: &Self::Input,
    ) -> Plan<Self::Step, Self::Wait>;

    /// The permission that a step needs, if it needs one. Pure.
    fn permit(
        &self,
        context: &OperationContext<'_>,
        input: &Self::Input,
        step: &Self::Step,
    ) -> Option<Permit>;

    /// Carries out a step.
    fn apply(
        &mut self,
        context: &OperationContext<'_>,
        input: &Self::Input,
        step: &Self::Step,
        permission: Option<Permission>,
    ) -> impl Future<Output = Result<Applied, ReconcileError>> + Send;

    /// Says on other objects than the budget what comes next.
    fn publish(
        &mut self,
        _context: &OperationContext<'_>,
        _input: &Self::Input,
        _next: &Plan<Self::Step, Self::Wait>,
    ) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// The report on the turn, if there is anything to say. Pure.
    fn report(
        &self,
        context: &OperationContext<'_>,
        input: &Self::Input,
        next: &Plan<Self::Step, Self::Wait>,
        made: &Made<'_, Self::Step>,
    ) -> Option<Report>;

    /// When to take the next turn.
    fn rest(
        &mut self,
        context: &OperationContext<'_>,
        input: &Self::Input,
        next: &Plan<Self::Step, Self::Wait>,
        made: &Made<'_, Self::Step>,
    ) -> Rest;

    /// Whether a request of a person ends a rest.
    fn is_asked_anew(&mut self, _run: &Run, _cluster: &ClusterRef) -> bool {
        false
    }

    /// Returns when a member that did not serve answers differently.
    fn until_otherwise<'a>(&'a self, _prober: &'a Prober) -> BoxFuture<'a, ()> {
        std::future::pending().boxed()
    }
}

/// An operation, and its next turn.
#[derive(Default)]
pub(super) struct Driven<O> {
    operation: O,
    pace: Pace,
}

/// When an operation takes its next turn.
#[derive(Debug, Default)]
struct Pace {
    rest: Rest,
    /// When the last turn ended.
    since: Option<Instant>,
}

impl Pace {
    fn after(rest: Rest, now: Instant) -> Self {
        let since = Some(now);
        Self { rest, since }
    }

    /// When a look is needed, if one is. `is_at_work`: the caches show that one is.
    fn look_at(&self, is_at_work: bool, now: Instant) -> Option<Instant> {
        let since = self.since.unwrap_or(now);
        match self.rest {
            // The last turn found nothing to do, whatever the caches show.
            Rest::Idle => is_at_work.then(|| self.since.map_or(now, |since| since + RESYNC)),
            Rest::Asleep(time) => is_at_work.then_some(since + time),
            Rest::Within(time) | Rest::Attentive(time) | Rest::NotBefore(time) => {
                Some(since + time)
            }
        }
    }

    /// Whether a look at this time is too early for a turn.
    fn is_too_early(&self, asked: Instant) -> bool {
        match (self.rest, self.since) {
            (Rest::NotBefore(time) | Rest::Asleep(time), Some(since)) => asked < since + time,
            _ => false,
        }
    }
}

/// An operation as the loop sees it.
pub(super) trait Driver: Send {
    fn look_at(
        &mut self,
        run: &Run,
        cluster: &ClusterRef,
        leads: bool,
        now: Instant,
    ) -> Option<Instant>;

    fn before_members(&mut self, run: &Run, page: &Page);

    fn take_turn<'a>(
        &'a mut self,
        context: &'a OperationContext<'_>,
    ) -> BoxFuture<'a, (bool, Option<Report>)>;

    /// Returns when a member that did not serve answers differently, if the operation waits for
    /// that.
    fn until_otherwise<'a>(&'a self, prober: &'a Prober) -> BoxFuture<'a, ()>;
}

impl<O: Operation> Driver for Driven<O> {
    fn look_at(
        &mut self,
        run: &Run,
        cluster: &ClusterRef,
        leads: bool,
        now: Instant,
    ) -> Option<Instant> {
        let is_at_work = self.operation.is_at_work(run, cluster, leads);
        if !leads && !is_at_work || self.operation.is_asked_anew(run, cluster) {
            self.pace = Pace::default();
        }
        self.pace.look_at(is_at_work, now)
    }

    fn before_members(&mut self, run: &Run, page: &Page) {
        self.operation.before_members(run, page);
    }

    fn take_turn<'a>(
        &'a mut self,
        context: &'a OperationContext<'_>,
    ) -> BoxFuture<'a, (bool, Option<Report>)> {
        async move {
            let (run, cluster) = (context.run, context.cluster);
            let mut is_missed = || context.leads || self.operation.is_at_work(run, cluster, false);
            if self.pace.is_too_early(context.asked) || !is_missed() {
                return (false, None);
            }
            let (rest, outcome) = match self.act(context).await {
                Ok(taken) => taken,
                Err(ReconcileError::Ledger(error)) if error.begin_again() => {
                    (Rest::Within(AT_ONCE), (true, None))
                }
                Err(problem) => {
                    let because = causes(&problem);
                    warn!(%cluster, operation = O::NAME, because, "operation failed");
                    (Rest::NotBefore(AFTER_FAILURE), (false, None))
                }
            };
            self.pace = Pace::after(rest, run.clock.instant());
            outcome
        }
        .boxed()
    }

    fn until_otherwise<'a>(&'a self, prober: &'a Prober) -> BoxFuture<'a, ()> {
        match self.pace.rest {
            Rest::Attentive(_) => self.operation.until_otherwise(prober),
            _ => std::future::pending().boxed(),
        }
    }
}

impl<O: Operation> Driven<O> {
    async fn act(
        &mut self,
        context: &OperationContext<'_>,
    ) -> Result<(Rest, (bool, Option<Report>)), ReconcileError> {
        let operation = &mut self.operation;
        let Some(input) = operation.gather(context).await? else {
            return Ok((Rest::Idle, (false, None)));
        };
        let next = operation.next(context, &input);
        operation.publish(context, &input, &next).await;
        let steps = match &next {
            Plan::Act(steps) => steps.as_slice(),
            Plan::Wait(_) => &[],
        };
        let made = make(operation, context, &input, steps).await?;
        let report = operation.report(context, &input, &next, &made);
        let rest = operation.rest(context, &input, &next, &made);
        // A step that had no effect took its grant, so the look is outdated as well.
        let changed = match &made.ended {
            Some((_, Ended::Outdated | Ended::Failed(_))) => true,
            Some((_, Ended::Refused(_) | Ended::Deferred)) | None => made.done.is_some(),
        };
        Ok((rest, (changed, report)))
    }
}

/// Makes the steps, each by its own permission. The first that cannot be made ends them.
async fn make<'s, O: Operation>(
    operation: &mut O,
    context: &OperationContext<'_>,
    input: &O::Input,
    steps: &'s [O::Step],
) -> Result<Made<'s, O::Step>, ReconcileError> {
    let OperationContext {
        run, cluster, look, ..
    } = *context;
    let mut seen = SeenVersions::new(&look.page, &look.view);
    let mut done = None;
    for step in steps {
        let ended = |why| {
            let ended = Some((step, why));
            Ok(Made { done, ended })
        };
        if context.leads && !run.leading.now() {
            return ended(Ended::Outdated);
        }
        let permission = match operation.permit(context, input, step) {
            None => None,
            Some(permit) => match ask(context, permit, seen).await {
                Ok(permission) => Some(permission),
                Err(why) => {
                    if let Ended::Refused(because) = &why {
                        debug!(%cluster, operation = O::NAME, %step, %because, "step refused");
                    }
                    return ended(why);
                }
            },
        };
        if let Some(permission) = &permission {
            seen.last_seq = permission.proof.seq();
        }
        match operation.apply(context, input, step, permission).await? {
            Applied::Done => {
                info!(%cluster, operation = O::NAME, %step, "step made");
                done = Some(step);
            }
            Applied::Outdated => return ended(Ended::Outdated),
            Applied::Deferred => return ended(Ended::Deferred),
            Applied::Failed(because) => {
                warn!(%cluster, operation = O::NAME, %step, because, "step failed");
                return ended(Ended::Failed(because));
            }
        }
    }
    Ok(Made { done, ended: None })
}

/// Asks the judge, as everybody does. `seen` is the cluster at the look, with the grants of the
/// steps since.
async fn ask(
    context: &OperationContext<'_>,
    permit: Permit,
    seen: SeenVersions,
) -> Result<Permission, Ended> {
    let run = context.run;
    let asker = Asker {
        name: run.own_username.clone(),
        actor: Actor::Gate,
    };
    let until = run.clock.instant() + PATIENCE;
    let decision: Decision = match permit {
        Permit::Pod(pod, kind) => {
            let question = Question {
                namespace: context.cluster.namespace.clone(),
                pod: pod.name,
                shown: None,
                kind,
                asker,
                grace: Grace::Graceful,
                precondition: Some(pod.uid),
                dry_run: DryRun::No,
                deadline: until,
                only_if_etcd_is: Vec::new(),
                seen: Some(seen),
            };
            run.judge.judge(question).await.decision
        }
        Permit::Maintenance(what) => {
            let question = MaintenanceQuestion {
                cluster: context.cluster.clone(),
                what: *what,
                asker,
                deadline: until,
                seen,
            };
            run.judge.judge_maintenance(question).boxed().await.decision
        }
    };
    match decision.map(Allowed::into_ground) {
        Ok(Ground::Recorded(_, proof)) => Ok(Permission { proof, until }),
        Ok(Ground::Ungranted | Ground::Unrecorded | Ground::DryRun(_) | Ground::Warned(_)) => {
            let because = "the judge gave no permission that can be used";
            Err(Ended::Failed(because.to_owned()))
        }
        Err(Refused::Wait(reason) | Refused::Deny(reason)) => Err(Ended::Refused(reason)),
        // A waiver says that the pod runs no member any more, or is not the incarnation that was
        // seen.
        Ok(Ground::Waived(_)) | Err(Refused::NoSuchPod | Refused::Outdated) => Err(Ended::Outdated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(7);

    /// The pace after a turn that ended now, with the time.
    fn after(rest: Rest) -> (Pace, Instant) {
        let now = Instant::now();
        (Pace::after(rest, now), now)
    }

    #[test]
    fn an_operation_without_work_needs_no_look_and_one_at_work_one_at_once() {
        let (new, now) = (Pace::default(), Instant::now());
        assert_eq!(new.look_at(false, now), None);
        assert_eq!(new.look_at(true, now), Some(now));
        assert!(!new.is_too_early(now));
    }

    #[test]
    fn one_whose_turn_found_nothing_to_do_does_not_look_over_and_over() {
        let (idle, now) = after(Rest::Idle);
        assert_eq!(idle.look_at(false, now), None);
        assert_eq!(idle.look_at(true, now), Some(now + RESYNC));
        assert!(!idle.is_too_early(now));
    }

    #[test]
    fn one_that_waits_has_a_look_in_time_and_takes_part_in_earlier_ones() {
        for rest in [Rest::Within(TIME), Rest::Attentive(TIME)] {
            let (waits, now) = after(rest);
            assert_eq!(waits.look_at(false, now), Some(now + TIME), "{rest:?}");
            assert!(!waits.is_too_early(now), "{rest:?}");
        }
    }

    #[test]
    fn one_that_failed_takes_no_part_in_earlier_looks() {
        let (failed, now) = after(Rest::NotBefore(TIME));
        assert_eq!(failed.look_at(false, now), Some(now + TIME));
        assert!(failed.is_too_early(now) && !failed.is_too_early(now + TIME));
    }

    #[test]
    fn one_that_sleeps_asks_for_no_look_unless_it_has_work_and_then_a_later_one() {
        let (asleep, now) = after(Rest::Asleep(TIME));
        assert_eq!(asleep.look_at(false, now), None);
        assert_eq!(asleep.look_at(true, now), Some(now + TIME));
        assert!(asleep.is_too_early(now) && !asleep.is_too_early(now + TIME));
    }
}
