//! The rollout of one cluster: looks at the cluster, makes the step that the planner names, and
//! looks again.
//!
//! Only the leader drives, to save work. A second driver that does not know yet that it lost the
//! Lease does no harm: every step takes its grant from the ledger, and every delete names the
//! incarnation that was seen. No verdict depends on memory from step to step, so another driver
//! continues at any point where one was killed.

mod absences;
mod attention;
mod carry_out;
mod desired;
mod patience;
mod setback;
mod story;
mod tell;
mod unblock;
mod work;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tracing::{info, warn};

use super::Run;
use super::look::{Look, Problem, ReadPermit, look};
use super::strategy::kind;
use super::workers::{RESYNC, Wake};
use crate::api::names::PROCEED_WITHOUT_QUORUM;
use crate::causes::causes;
use crate::judge::SeenVersions;
use crate::ledger::LedgerError;
use crate::observe::{ObserveError, first_ordinal};
use crate::plan::{Desired, Next, Step, WaitingOn, ignored, next_step, progress, unblock};
use crate::quorum::ClusterRef;
use crate::strategy::ON_DELETE;
use absences::Absences;
use attention::Attention;
use carry_out::{StepOutcome, carry_out};
use desired::Durations;
use patience::{AFTER_FAILURE, LATER, Patience, Pause, SOON, Turn};
use setback::Setbacks;
use story::Scene;
use tell::Teller;
use unblock::{Replaced, partition, write_partition};

/// The most attempts to report a step while other clients write to the budget.
const TELL_ATTEMPTS: u32 = 10;

/// Drives the rollouts of one cluster until cancelled.
pub(super) async fn keep(run: Arc<Run>, cluster: ClusterRef, wake: Arc<Wake>) {
    let mut leading = run.leading.begun_now();
    let mut driver = Driver {
        teller: Teller::new(Arc::clone(&run), cluster.clone()),
        run,
        cluster,
        absences: Absences::default(),
        attention: Attention::default(),
        patience: Patience::default(),
        replaced: Replaced::default(),
        setbacks: Setbacks::default(),
    };
    loop {
        let pause = if leading.now() {
            Box::pin(driver.turn()).await
        } else {
            driver.rest();
            Pause::UntilWoken(RESYNC)
        };
        let otherwise = driver
            .attention
            .until_otherwise(driver.run.observer.prober());
        tokio::select! {
            () = rest_for(pause, &wake, otherwise) => {}
            () = leading.changed() => {}
        }
    }
}

/// Waits between two turns. `otherwise` completes when a member that did not serve answers
/// differently.
async fn rest_for(pause: Pause, wake: &Wake, otherwise: impl Future<Output = ()>) {
    let (time, wakes, attends) = match pause {
        Pause::UntilWoken(time) => (time, true, false),
        Pause::Attentive(time) => (time, true, true),
        Pause::Undisturbed(time) => (time, false, false),
    };
    tokio::select! {
        () = wake.for_rollout(), if wakes => {}
        () = otherwise, if attends => {}
        () = tokio::time::sleep(time) => {}
    }
}

/// The driver of one cluster.
struct Driver {
    run: Arc<Run>,
    cluster: ClusterRef,
    teller: Teller,
    absences: Absences,
    attention: Attention,
    patience: Patience,
    replaced: Replaced,
    setbacks: Setbacks,
}

impl Driver {
    /// Takes one turn. Returns when to take the next.
    async fn turn(&mut self) -> Pause {
        if !self.has_work() {
            self.rest();
            return Pause::UntilWoken(RESYNC);
        }
        let permit = ReadPermit::wait(&self.run).await;
        match Box::pin(self.look_and_step(permit)).await {
            Ok(pause) => pause,
            Err(Problem::Ledger(error)) if error.begin_again() => Pause::UntilWoken(Duration::ZERO),
            Err(problem) => {
                let because = causes(&problem);
                warn!(cluster = %self.cluster, because, "could not drive its rollout");
                Pause::Undisturbed(AFTER_FAILURE)
            }
        }
    }

    /// Resets the state of waits and absences, since there is no rollout.
    fn rest(&mut self) {
        self.patience = Patience::default();
        self.absences = Absences::default();
        self.attention = Attention::default();
        self.replaced = Replaced::default();
        self.setbacks = Setbacks::default();
    }

    /// Whether the caches show something to do.
    fn has_work(&self) -> bool {
        let watches = &self.run.watches;
        let Some(set) = watches.stateful_sets.of(&self.cluster) else {
            return false;
        };
        let set = set.stateful_set(&self.cluster);
        let budget = watches.budgets.of(&self.cluster);
        let pod = |pod: &str| watches.pods.get(&self.cluster.namespace, pod);
        work::is_there(&set, budget.as_deref(), self.is_ours(&set), pod)
    }

    /// Whether only the gate replaces the StatefulSet's pods.
    fn is_ours(&self, set: &StatefulSet) -> bool {
        self.run.settings.features.on_delete && kind(set) == ON_DELETE
    }

    async fn look_and_step(&mut self, permit: ReadPermit) -> Result<Pause, Problem> {
        let prober = self.run.observer.prober();
        let Some(look) = look(&self.run, &self.cluster, permit, prober).await? else {
            return Ok(Pause::UntilWoken(RESYNC));
        };
        let set = look.world.stateful_set();
        // A StatefulSet that is being deleted creates no pods.
        let Some(set) = set.filter(|set| set.metadata.deletion_timestamp.is_none()) else {
            return Ok(Pause::UntilWoken(RESYNC));
        };
        let now = self.run.clock.instant();
        let patience = self.run.observer.patience(&look.page)?;
        self.attention.take_in(&look, patience, now);
        let first = first_ordinal(set);
        let watched = Durations {
            out_for: self.absences.note(&look.snapshot, first, now),
            leadership_rests: self.run.judge.leadership_rests(&look.page, &look.snapshot),
        };
        let desired = desired::desired(set, look.page.budget(), &look.world, watched);
        let desired = desired.map_err(ObserveError::Spec)?;
        if !self.is_ours(set) {
            let next = self.help_the_controller(set, &look, &desired).await?;
            return Ok(Pause::UntilWoken(next));
        }
        let next = next_step(&look.snapshot, &look.page.grants, &desired);
        let (made, refused) = match &next {
            Next::Act(steps) => self.carry_out(&look, steps.iter()).await,
            Next::Done | Next::Wait(_) => (Made::Nothing, None),
        };
        let annotations = look.page.budget().metadata.annotations.as_ref();
        let accepted = annotations.and_then(|a| a.get(PROCEED_WITHOUT_QUORUM));
        let ignored = accepted.and_then(|named| ignored(named, &look.snapshot, &desired));
        let scene = Scene {
            target: look.snapshot.update_revision.as_deref(),
            progress: progress(&look.snapshot, &desired),
            next: &next,
            made: made.step(),
            refused: refused.as_ref(),
            ignored: ignored.as_ref(),
            generation: look.page.budget().metadata.generation,
            now: &Time(self.run.clock.now()),
        };
        self.tell(&look, &scene).await?;
        let now = self.run.clock.instant();
        let turn = made.turn(refused.as_ref(), &next);
        Ok(self.patience.after(turn, now, &self.run.metrics.rollout))
    }

    /// Makes the steps of one cycle. The first step that cannot be made ends the cycle.
    async fn carry_out<'s>(
        &mut self,
        look: &Look,
        steps: impl Iterator<Item = &'s Step>,
    ) -> (Made, Option<WaitingOn>) {
        let mut made = Made::Nothing;
        let mut seen = SeenVersions::of(&look.page, &look.world);
        for step in steps {
            if !self.run.leading.now() {
                return (made.or(Made::Again), None);
            }
            let now = self.run.clock.instant();
            if let Some(because) = self.setbacks.against(step, &seen, now) {
                let (pod, because) = (step.pod.name.clone(), because.to_owned());
                return (made, Some(WaitingOn::Failed { pod, because }));
            }
            match carry_out(&self.run, &self.cluster, look, &mut seen, step).await {
                StepOutcome::Done => {
                    self.setbacks.forget();
                    info!(cluster = %self.cluster, step = %step, "rollout");
                    self.run
                        .metrics
                        .rollout
                        .step(step.action.slug(), step.because.slug());
                    made = Made::Step(step.clone());
                }
                StepOutcome::Outdated => return (made.or(Made::Again), None),
                StepOutcome::Refused(reason) => {
                    let pod = step.pod.name.clone();
                    return (made, Some(WaitingOn::Permission { pod, reason }));
                }
                StepOutcome::Failed(because) => {
                    warn!(cluster = %self.cluster, step = %step, because, "a rollout step failed");
                    let settle_time = self.run.settings.settle_time;
                    self.setbacks.note(step, &seen, &because, now, settle_time);
                    let pod = step.pod.name.clone();
                    let waiting = WaitingOn::Failed { pod, because };
                    return (made.or(Made::Failed), Some(waiting));
                }
            }
        }
        (made, None)
    }

    /// Helps under `RollingUpdate`, where the StatefulSet controller updates: replaces a broken
    /// member that keeps the controller from continuing.
    async fn help_the_controller(
        &mut self,
        set: &StatefulSet,
        look: &Look,
        desired: &Desired,
    ) -> Result<Duration, Problem> {
        if self.teller.take_back(&look.page).await? {
            return Ok(Duration::ZERO);
        }
        if kind(set) == ON_DELETE {
            // The owner replaces pods by hand.
            return Ok(RESYNC);
        }
        let Some(step) = unblock(&look.snapshot, &look.page.grants, desired) else {
            return Ok(LATER);
        };
        let target = look.snapshot.update_revision.as_deref();
        let now = self.run.clock.instant();
        if !self.replaced.may_go(&step.pod.name, target, now) {
            return Ok(LATER);
        }
        if let Some(patch) = partition(set) {
            if !self.replaced.may_write_partition(now) {
                return Ok(LATER);
            }
            let written = write_partition(&self.run.client, &self.cluster, &patch).await;
            if let Err(error) = written {
                warn!(cluster = %self.cluster, %error, "its partition could not be written out");
                return Ok(LATER);
            }
            return Ok(SOON);
        }
        let (made, _) = self.carry_out(look, std::iter::once(&step)).await;
        if matches!(made, Made::Step(_) | Made::Failed) {
            self.replaced.note(&step.pod.name, target, now);
        }
        Ok(match made {
            Made::Nothing | Made::Failed => LATER,
            Made::Again | Made::Step(_) => SOON,
        })
    }

    async fn tell(&mut self, look: &Look, scene: &Scene<'_>) -> Result<(), Problem> {
        if !matches!(scene.next, Next::Act(_)) {
            return Ok(self.teller.tell(&look.page, scene).await?);
        }
        // The judge has written the grant to the budget since the look, and others may write
        // meanwhile. A later look would not show the step, so the report is tried again on a
        // conflict.
        let mut attempts = 0..TELL_ATTEMPTS;
        loop {
            let Some(page) = self.run.ledger().read(&self.cluster).await? else {
                return Ok(());
            };
            match self.teller.tell(&page, scene).await {
                Err(LedgerError::Conflict) if attempts.next().is_some() => {}
                told => return Ok(told?),
            }
        }
    }
}

/// The result of the steps of a turn.
#[derive(Debug)]
enum Made {
    /// No step was made, because there was none or it was refused.
    Nothing,
    /// The look is outdated.
    Again,
    /// The first step failed.
    Failed,
    /// At least one step was made. This is the last one.
    Step(Step),
}

impl Made {
    fn step(&self) -> Option<&Step> {
        match self {
            Self::Step(step) => Some(step),
            Self::Nothing | Self::Again | Self::Failed => None,
        }
    }

    fn or(self, other: Self) -> Self {
        match self {
            Self::Nothing => other,
            Self::Again | Self::Failed | Self::Step(_) => self,
        }
    }

    /// The result of the turn.
    fn turn<'a>(&self, refused: Option<&'a WaitingOn>, next: &'a Next) -> Turn<'a> {
        match (self, refused, next) {
            (Self::Step(_), _, _) => Turn::Stepped,
            (Self::Again, _, _) => Turn::Outdated,
            (Self::Failed, _, _) => Turn::Failed,
            (Self::Nothing, Some(waiting), _) | (Self::Nothing, None, Next::Wait(waiting)) => {
                Turn::Waits(waiting)
            }
            (Self::Nothing, None, Next::Done | Next::Act(_)) => Turn::Rests,
        }
    }
}

#[cfg(test)]
mod tests;
