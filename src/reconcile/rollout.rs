//! The rollout of one cluster: looks, makes the step that the planner names, and looks again.
//!
//! Only the leader drives, to save work; a second driver that does not know yet that it lost the Lease does no harm, because every step
//! takes its grant from the ledger and every delete insists on the pod that was looked at. Nothing is remembered from step to step that
//! a verdict rests on, so a driver that is killed at any point is taken over at that point.

mod absences;
mod carry_out;
mod desired;
mod peer_tls;
mod story;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{Resource as _, ResourceExt as _};
use tokio::time::Instant;
use tracing::{info, warn};

use super::Run;
use super::keeper::{RESYNC, Wake};
use super::look::{Look, Looker, Problem};
use crate::api::{QuorumDisruptionBudgetStatus, names};
use crate::causes::causes;
use crate::observe::ObserveError;
use crate::plan::{Desired, Next, Step, WaitingOn, next_step, progress, unblock};
use crate::quorum::ClusterRef;
use crate::telemetry::events::{Notice, Severity};
use absences::Absences;
use carry_out::{Outcome, carry_out};
use desired::Watched;
use story::Scene;

/// After a step, or when what was seen was out of date: the caches and the API server get a moment.
const AT_ONCE: Duration = Duration::from_millis(20);
/// How soon to look again while something is expected to happen any moment.
const SOON: Duration = Duration::from_millis(200);
/// The longest between two looks at what takes its time.
const LATER: Duration = Duration::from_secs(2);
/// Words that only say how long something has lasted are written this often.
const WORDS: Duration = Duration::from_secs(10);
/// After a failure that time may cure.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Drives the rollouts of one cluster, until cancelled.
pub(super) async fn keep(run: Arc<Run>, cluster: ClusterRef, wake: Arc<Wake>) {
    let mut leading = run.leading.clone();
    let mut driver = Driver {
        looker: Looker::new(Arc::clone(&run), cluster.clone()),
        run,
        cluster,
        absences: Absences::default(),
        waiting: None,
        looked: None,
        words_written: None,
    };
    loop {
        let next = if leading.now() {
            Box::pin(driver.turn()).await
        } else {
            driver.rest();
            RESYNC
        };
        tokio::select! {
            () = wake.for_rollout() => {}
            () = leading.changed() => {}
            () = tokio::time::sleep(next) => {}
        }
    }
}

/// Drives one cluster.
struct Driver {
    run: Arc<Run>,
    cluster: ClusterRef,
    looker: Looker,
    absences: Absences,
    /// What was waited for the last time, and since when.
    waiting: Option<(&'static str, Instant)>,
    /// What was waited for at the last look, and when that was.
    looked: Option<(&'static str, Instant)>,
    words_written: Option<Instant>,
}

impl Driver {
    /// One turn. When to take the next where nothing wakes before.
    async fn turn(&mut self) -> Duration {
        if !self.has_work() {
            self.rest();
            return RESYNC;
        }
        match Box::pin(self.look_and_step()).await {
            Ok(next) => next,
            Err(Problem::Ledger(error)) if error.begin_again() => Duration::ZERO,
            Err(problem) => {
                let because = causes(&problem);
                warn!(cluster = %self.cluster, because, "could not drive its rollout");
                AFTER_FAILURE
            }
        }
    }

    /// Nothing is waited for.
    fn rest(&mut self) {
        self.waiting = None;
        self.looked = None;
    }

    /// Whether there may be something to do, by the caches.
    fn has_work(&self) -> bool {
        let ClusterRef { namespace, name } = &self.cluster;
        let Some(set) = self.run.watches.stateful_sets.get(namespace, name) else {
            return false;
        };
        let status = set.status.as_ref();
        let target = status.and_then(|status| status.update_revision.as_deref());
        let unread = status.and_then(|s| s.observed_generation) < set.metadata.generation;
        let budget = self.run.watches.budgets.get(namespace, name);
        let shown = budget.as_ref().and_then(|b| b.status.as_ref());
        let told = shown.and_then(|status| status.rollout.as_ref());
        let is_told = match told {
            Some(told) => told.finished.is_some() && told.target.as_deref() == target,
            None => !(is_on_delete(&set) && self.run.settings.features.on_delete),
        };
        let pods = self
            .run
            .watches
            .pods
            .filter(|pod| super::watches::cluster_of(pod).as_ref() == Some(&self.cluster));
        let outdated = pods
            .iter()
            .any(|pod| pod.labels().get(names::REVISION).map(String::as_str) != target);
        unread || outdated || !is_told
    }

    async fn look_and_step(&mut self) -> Result<Duration, Problem> {
        let Some(look) = self.looker.look().await? else {
            return Ok(RESYNC);
        };
        let Some(set) = look.world.stateful_set() else {
            return Ok(RESYNC);
        };
        let now = self.run.clock.instant();
        let watched = Watched {
            out_for: self.absences.note(&look.snapshot, now),
            leadership_rests: self.run.judge.leadership_rests(&self.cluster),
        };
        let desired = desired::desired(set, look.page.budget(), &look.world, watched);
        let desired = desired.map_err(ObserveError::Spec)?;
        if !(is_on_delete(set) && self.run.settings.features.on_delete) {
            return self.help_the_controller(&look, &desired).await;
        }
        let next = next_step(&look.snapshot, &look.page.grants, &desired);
        let (made, refused) = match &next {
            Next::Act(steps) => self.carry_out(&look, steps.iter()).await,
            Next::Done | Next::Wait(_) => (Made::Nothing, None),
        };
        let scene = Scene {
            target: look.snapshot.update_revision.as_deref(),
            progress: progress(&look.snapshot, &desired),
            next: &next,
            made: made.step(),
            refused: refused.as_ref(),
            generation: look.page.budget().metadata.generation,
            now: &Time(self.run.clock.now()),
        };
        self.tell(&look, &scene).await?;
        Ok(match (&made, refused.as_ref(), &next) {
            (Made::Again | Made::Step(_), _, _) => AT_ONCE,
            (Made::Nothing, Some(refused), _) => self.patience(refused),
            (Made::Nothing, None, Next::Wait(waiting)) => self.patience(waiting),
            (Made::Nothing, None, Next::Done | Next::Act(_)) => RESYNC,
        })
    }

    /// Makes the steps of one cycle. The first that cannot be made ends it.
    async fn carry_out<'s>(
        &self,
        look: &Look,
        steps: impl Iterator<Item = &'s Step>,
    ) -> (Made, Option<WaitingOn>) {
        let mut made = Made::Nothing;
        for step in steps {
            match carry_out(&self.run, &self.cluster, look, step).await {
                Outcome::Done => {
                    info!(cluster = %self.cluster, step = %step, "rollout");
                    self.run
                        .metrics
                        .rollout
                        .step(step.action.slug(), step.because.slug());
                    made = Made::Step(step.clone());
                }
                Outcome::Outdated => return (made.or(Made::Again), None),
                Outcome::Refused(reason) => {
                    let pod = step.pod.name.clone();
                    return (made, Some(WaitingOn::Permission { pod, reason }));
                }
                Outcome::Failed(because) => {
                    warn!(cluster = %self.cluster, step = %step, because, "a rollout step failed");
                    return (made, None);
                }
            }
        }
        (made, None)
    }

    /// Under `RollingUpdate` the StatefulSet controller updates. Where a broken member keeps it from going on, that one is replaced for it.
    async fn help_the_controller(
        &mut self,
        look: &Look,
        desired: &Desired,
    ) -> Result<Duration, Problem> {
        if look
            .page
            .status()
            .is_some_and(|status| status.rollout.is_some())
        {
            self.run
                .ledger()
                .write_status(&look.page, forget_rollout)
                .await?;
            return Ok(Duration::ZERO);
        }
        let on_delete = look.world.stateful_set().is_some_and(is_on_delete);
        if on_delete {
            // Its owner chose to replace pods by hand.
            return Ok(RESYNC);
        }
        let Some(step) = unblock(&look.snapshot, &look.page.grants, desired) else {
            return Ok(LATER);
        };
        match self.carry_out(look, std::iter::once(&step)).await {
            (Made::Nothing, _) => Ok(LATER),
            (Made::Again | Made::Step(_), _) => Ok(SOON),
        }
    }

    /// Writes the scene where there is news, and tells people what was done and what holds it up.
    async fn tell(&mut self, look: &Look, scene: &Scene<'_>) -> Result<(), Problem> {
        // A step has written to the budget since the look.
        let Some(before) = self.run.ledger().read(&self.cluster).await? else {
            return Ok(());
        };
        let shown = before.status().cloned().unwrap_or_default();
        let mut after = shown.clone();
        scene.show(&mut after);
        if after == shown {
            return Ok(());
        }
        let now = self.run.clock.instant();
        let news = story::is_news(&shown, &after);
        let written = self
            .words_written
            .map(|at| now.saturating_duration_since(at));
        if !news && written.is_some_and(|since| since < WORDS) {
            return Ok(());
        }
        self.run
            .ledger()
            .write_status(&before, |status| {
                status.rollout.clone_from(&after.rollout);
                status.conditions.clone_from(&after.conditions);
            })
            .await?;
        self.words_written = Some(now);
        if news {
            self.notify(look, &shown, &after);
        }
        Ok(())
    }

    fn notify(
        &self,
        look: &Look,
        before: &QuorumDisruptionBudgetStatus,
        after: &QuorumDisruptionBudgetStatus,
    ) {
        let (Some(now), then) = (&after.rollout, &before.rollout) else {
            return;
        };
        let then = then.clone().unwrap_or_default();
        let notice = |severity, reason: &str, note: String| Notice {
            regarding: look.page.budget().object_ref(&()),
            severity,
            reason: reason.into(),
            action: "Rollout",
            note,
        };
        if let Some(step) = now
            .last_step
            .as_ref()
            .filter(|_| now.last_step != then.last_step)
        {
            let note = format!("{} {}: it {}", step.action, step.pod, step.because);
            self.run
                .events
                .notify(notice(Severity::Normal, "RolloutStep", note));
        }
        let reason = |rollout: &crate::api::RolloutStatus| {
            rollout
                .waiting_on
                .as_ref()
                .map(|waiting| waiting.reason.clone())
        };
        if let Some(waiting) = now
            .waiting_on
            .as_ref()
            .filter(|_| reason(now) != reason(&then))
        {
            info!(cluster = %self.cluster, reason = waiting.reason, waiting = waiting.message, "rollout waits");
            let severity = match waiting.reason.as_str() {
                "overdue" | "obstacle" => Severity::Warning,
                _ => Severity::Normal,
            };
            let note = waiting.message.clone();
            self.run
                .events
                .notify(notice(severity, "RolloutWaits", note));
        }
        if now.finished.is_some() && then.finished.is_none() && then.target.is_some() {
            let target = now.target.as_deref().unwrap_or_default();
            info!(cluster = %self.cluster, target, "rollout complete");
            if let (Some(began), Some(ended)) = (&now.started, &now.finished) {
                let took = ended.0.duration_since(began.0);
                self.run.metrics.rollout.finished(took.unsigned_abs());
            }
            let note = format!("every pod has revision {target}");
            self.run
                .events
                .notify(notice(Severity::Normal, "RolloutComplete", note));
        }
    }

    /// When to look again at what is waited for: soon at first, and less often the longer it lasts.
    fn patience(&mut self, waiting: &WaitingOn) -> Duration {
        let now = self.run.clock.instant();
        let slug = waiting.slug();
        let since = match self.waiting {
            Some((before, since)) if before == slug => since,
            Some(_) | None => now,
        };
        if let Some((before, looked)) = self.looked.replace((slug, now))
            && before == slug
        {
            let waited = now.saturating_duration_since(looked);
            self.run.metrics.rollout.waited(slug, waited);
        }
        self.waiting = Some((slug, since));
        match waiting {
            WaitingOn::Enrolment
            | WaitingOn::Teardown(_)
            | WaitingOn::Paused(_)
            | WaitingOn::Obstacle { .. } => RESYNC,
            _ => SOON
                .max(now.saturating_duration_since(since) / 20)
                .min(LATER),
        }
    }
}

/// What a turn did.
enum Made {
    Nothing,
    /// Nothing, because what was seen is out of date.
    Again,
    Step(Step),
}

impl Made {
    fn step(&self) -> Option<&Step> {
        match self {
            Self::Step(step) => Some(step),
            Self::Nothing | Self::Again => None,
        }
    }

    fn or(self, other: Self) -> Self {
        match self {
            Self::Nothing => other,
            Self::Again | Self::Step(_) => self,
        }
    }
}

fn forget_rollout(status: &mut QuorumDisruptionBudgetStatus) {
    status.rollout = None;
    status
        .conditions
        .retain(|c| c.type_ != crate::api::condition::PROGRESSING);
}

/// Whether nobody but us replaces the set's pods.
fn is_on_delete(set: &StatefulSet) -> bool {
    let spec = set.spec.as_ref();
    let strategy = spec.and_then(|spec| spec.update_strategy.as_ref());
    strategy.and_then(|s| s.type_.as_deref()) == Some("OnDelete")
}
