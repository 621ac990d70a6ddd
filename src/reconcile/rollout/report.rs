//! The report on a rollout in the budget's status: its progress, the reason of its wait, and its
//! last step; and the Events about it.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use tracing::info;

use crate::api::{
    QuorumDisruptionBudgetStatus, RolloutStatus, StepStatus, WaitingStatus, condition,
};
use crate::plan::{Because, Ignored, Progress, Step, WaitingOn};
use crate::quorum::ClusterRef;
use crate::reconcile::condition::put;
use crate::reconcile::run::Run;
use crate::telemetry::events::{Notice, Severity};

/// The facts for the report after a look.
pub(super) struct RolloutReport {
    /// The target revision.
    pub(super) target: Option<String>,
    /// The progress of the rollout.
    pub(super) progress: Option<Progress>,
    /// Whether every pod has the target revision.
    pub(super) done: bool,
    /// The reason to wait, if the rollout waits.
    pub(super) waiting: Option<WaitingOn>,
    /// The step that was just made, if one was.
    pub(super) made: Option<Step>,
    /// Why the owner's permission to go on without quorum has no effect, if there is one that has
    /// none.
    pub(super) ignored: Option<Ignored>,
    /// The generation of the budget's spec.
    pub(super) generation: Option<i64>,
    pub(super) now: Time,
}

impl RolloutReport {
    /// Writes the report into a status.
    pub(super) fn show(&self, status: &mut QuorumDisruptionBudgetStatus) {
        let before = *status.rollout.take().unwrap_or_default();
        let same = before.target == self.target;
        let waiting = self.waiting.as_ref();
        let done = self.done;
        let progress = self.progress;
        let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let begins = !same || (before.completion_time.is_some() && !done);
        if begins && let Some(progress) = progress {
            // The report on the cluster counts updated members, but at a look without a step. Until
            // then the status would show the count of the last revision.
            status.updated_members = Some(number(progress.updated));
        }
        status.rollout = Some(Box::new(RolloutStatus {
            target: self.target.clone(),
            updated: progress.map_or(before.updated, |p| number(p.updated)),
            targets: progress.map_or(before.targets, |p| number(p.targets)),
            start_time: if begins {
                Some(self.now.clone())
            } else {
                before.start_time.clone()
            },
            completion_time: match (done, begins) {
                (false, _) => None,
                (true, true) => Some(self.now.clone()),
                (true, false) => before
                    .completion_time
                    .clone()
                    .or_else(|| Some(self.now.clone())),
            },
            took_serving: self.takes_serving() || before.took_serving && !begins,
            waiting_on: waiting.map(|waiting| self.told(waiting, before.waiting_on.as_ref())),
            last_step: self
                .made
                .as_ref()
                .map(|step| self.step(step))
                .or(before.last_step),
        }));
        self.condition(waiting, &mut status.conditions);
    }

    /// Whether the step that was just made replaced a member that served.
    fn takes_serving(&self) -> bool {
        let made = self.made.as_ref();
        made.is_some_and(|step| !matches!(step.because, Because::NonServing(_)))
    }

    fn told(&self, waiting: &WaitingOn, before: Option<&WaitingStatus>) -> WaitingStatus {
        let reason = waiting.slug();
        let since = before.filter(|before| before.reason == reason);
        WaitingStatus {
            reason: reason.into(),
            message: self.words(waiting),
            start_time: since
                .and_then(|before| before.start_time.clone())
                .or_else(|| Some(self.now.clone())),
        }
    }

    /// The wait in words, with the annotation that a person set and that does not end it.
    fn words(&self, waiting: &WaitingOn) -> String {
        match &self.ignored {
            Some(ignored) => format!("{waiting}; {ignored}"),
            None => waiting.to_string(),
        }
    }

    fn step(&self, step: &Step) -> StepStatus {
        StepStatus {
            pod: step.pod.name.to_string(),
            action: step.action.slug().into(),
            because: step.because.to_string(),
            time: Some(self.now.clone()),
        }
    }

    fn condition(&self, waiting: Option<&WaitingOn>, conditions: &mut Vec<Condition>) {
        let (is, reason, message) = match (waiting, self.done) {
            (Some(waiting), _) => {
                let is = match waiting {
                    stuck if stuck.is_stuck() => "False",
                    WaitingOn::Paused(_) => "Unknown",
                    _ => "True",
                };
                (is, waiting.slug(), self.words(waiting))
            }
            (None, true) => (
                "True",
                "Complete",
                "every pod has the update revision".into(),
            ),
            (None, false) => (
                "True",
                "Stepping",
                self.made.as_ref().map_or_else(String::new, Step::to_string),
            ),
        };
        let shown = Condition {
            type_: condition::PROGRESSING.into(),
            status: is.into(),
            reason: reason.into(),
            message,
            observed_generation: self.generation,
            last_transition_time: self.now.clone(),
        };
        put(conditions, shown);
    }
}

/// Publishes the steps and obstacles between two reports.
pub(in crate::reconcile) fn announce(
    run: &Run,
    cluster: &ClusterRef,
    regarding: &ObjectReference,
    before: &QuorumDisruptionBudgetStatus,
    after: &QuorumDisruptionBudgetStatus,
) {
    let Some(now) = &after.rollout else {
        return;
    };
    let then = before.rollout.clone().unwrap_or_default();
    let event = |severity, reason: &str, note: String| {
        run.events.notify(Notice {
            regarding: regarding.clone(),
            severity,
            reason: reason.into(),
            action: "Rollout",
            note,
        });
    };
    if let Some(step) = &now.last_step
        && now.last_step != then.last_step
    {
        let note = format!("{} {}: it {}", step.action, step.pod, step.because);
        event(Severity::Normal, "RolloutStep", note);
    }
    if let Some(waiting) = &now.waiting_on
        && reason(now) != reason(&then)
    {
        info!(%cluster, reason = waiting.reason, waiting = waiting.message, "rollout waits");
        let severity = match waiting.reason.as_str() {
            "Overdue" | "Obstacle" | "Preflight" | "Failed" => Severity::Warning,
            _ => Severity::Normal,
        };
        event(severity, "RolloutWaits", waiting.message.clone());
    }
    if now.completion_time.is_some() && then.completion_time.is_none() && then.target.is_some() {
        let target = now.target.as_deref().unwrap_or_default();
        info!(%cluster, target, "rollout complete");
        if let (Some(began), Some(ended)) = (&now.start_time, &now.completion_time) {
            let took = ended.0.duration_since(began.0);
            run.metrics.rollout.finished(took.unsigned_abs());
        }
        let note = format!("every pod has revision {target}");
        event(Severity::Normal, "RolloutComplete", note);
    }
}

fn reason(rollout: &RolloutStatus) -> Option<&str> {
    let waiting = rollout.waiting_on.as_ref();
    waiting.map(|waiting| waiting.reason.as_str())
}

#[cfg(test)]
mod tests;
