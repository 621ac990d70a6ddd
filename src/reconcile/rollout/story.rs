//! The report on a rollout in the budget's status: its progress, the reason of its wait, and its
//! last step. Pure.

use heck::ToUpperCamelCase as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use crate::api::{
    QuorumDisruptionBudgetStatus, RolloutStatus, StepStatus, WaitingStatus, condition,
};
use crate::plan::{Ignored, Next, Progress, Step, WaitingOn};
use crate::reconcile::condition::put;

/// The facts for the report after a look.
pub(super) struct Scene<'a> {
    /// The target revision.
    pub(super) target: Option<&'a str>,
    /// The progress of the rollout.
    pub(super) progress: Option<Progress>,
    /// The next action.
    pub(super) next: &'a Next,
    /// The step that was just made, if one was.
    pub(super) made: Option<&'a Step>,
    /// The reason why the next step was refused, if it was.
    pub(super) refused: Option<&'a WaitingOn>,
    /// Why the owner's permission to go on without quorum has no effect, if there is one that has
    /// none.
    pub(super) ignored: Option<&'a Ignored>,
    /// The generation of the budget's spec.
    pub(super) generation: Option<i64>,
    pub(super) now: &'a Time,
}

impl Scene<'_> {
    /// Writes the report into a status.
    pub(super) fn show(&self, status: &mut QuorumDisruptionBudgetStatus) {
        let before = *status.rollout.take().unwrap_or_default();
        let same = before.target.as_deref() == self.target;
        let waiting = self.waiting();
        let done = *self.next == Next::Done;
        let progress = self.progress;
        let number = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let begins = !same || (before.finished.is_some() && !done);
        if begins && let Some(progress) = progress {
            // The observer counts updated members, but a moment later. Until then the status would
            // show the count of the last revision.
            status.updated_members = Some(number(progress.updated));
        }
        status.rollout = Some(Box::new(RolloutStatus {
            target: self.target.map(str::to_owned),
            updated: progress.map_or(before.updated, |p| number(p.updated)),
            targets: progress.map_or(before.targets, |p| number(p.targets)),
            started: if begins {
                Some(self.now.clone())
            } else {
                before.started.clone()
            },
            finished: match (done, begins) {
                (false, _) => None,
                (true, true) => Some(self.now.clone()),
                (true, false) => before.finished.clone().or_else(|| Some(self.now.clone())),
            },
            waiting_on: waiting.map(|waiting| self.told(waiting, before.waiting_on.as_ref())),
            last_step: self.made.map(|step| self.step(step)).or(before.last_step),
        }));
        self.condition(waiting, &mut status.conditions);
    }

    fn waiting(&self) -> Option<&WaitingOn> {
        match (self.refused, self.made, self.next) {
            (Some(refused), _, _) => Some(refused),
            (None, None, Next::Wait(waiting)) => Some(waiting),
            (None, _, _) => None,
        }
    }

    fn told(&self, waiting: &WaitingOn, before: Option<&WaitingStatus>) -> WaitingStatus {
        let reason = waiting.slug();
        let since = before.filter(|before| before.reason == reason);
        WaitingStatus {
            reason: reason.into(),
            message: self.words(waiting),
            since: since
                .and_then(|before| before.since.clone())
                .or_else(|| Some(self.now.clone())),
        }
    }

    /// The wait in words, with the annotation that a person set and that does not end it.
    fn words(&self, waiting: &WaitingOn) -> String {
        match self.ignored {
            Some(ignored) => format!("{waiting}; {ignored}"),
            None => waiting.to_string(),
        }
    }

    fn step(&self, step: &Step) -> StepStatus {
        StepStatus {
            pod: step.pod.name.to_string(),
            action: step.action.slug().into(),
            because: step.because.to_string(),
            at: Some(self.now.clone()),
        }
    }

    fn condition(&self, waiting: Option<&WaitingOn>, conditions: &mut Vec<Condition>) {
        let (is, reason, message) = match (waiting, self.next) {
            (Some(stuck), _) if stuck.is_stuck() => (
                "False",
                stuck.slug().to_upper_camel_case(),
                self.words(stuck),
            ),
            (Some(waiting @ WaitingOn::Paused(_)), _) => {
                ("Unknown", "Paused".into(), self.words(waiting))
            }
            (Some(waiting), _) => (
                "True",
                waiting.slug().to_upper_camel_case(),
                self.words(waiting),
            ),
            (None, Next::Done) => (
                "True",
                "Complete".into(),
                "every pod has the update revision".into(),
            ),
            (None, _) => (
                "True",
                "Stepping".into(),
                self.made.map_or_else(String::new, Step::to_string),
            ),
        };
        let shown = Condition {
            type_: condition::PROGRESSING.into(),
            status: is.into(),
            reason,
            message,
            observed_generation: self.generation,
            last_transition_time: self.now.clone(),
        };
        put(conditions, shown);
    }
}

/// Whether the report has to be written at once: all changes but the text of a wait whose reason is
/// the same.
pub(super) fn is_news(
    before: &QuorumDisruptionBudgetStatus,
    after: &QuorumDisruptionBudgetStatus,
) -> bool {
    let quiet = |status: &QuorumDisruptionBudgetStatus| {
        let mut rollout = status.rollout.clone();
        if let Some(waiting) = rollout.as_mut().and_then(|r| r.waiting_on.as_mut()) {
            waiting.message.clear();
        }
        let progressing = status.conditions.iter();
        let progressing = progressing
            .filter(|c| c.type_ == condition::PROGRESSING)
            .map(|c| (c.status.clone(), c.reason.clone()));
        (rollout, progressing.collect::<Vec<_>>())
    };
    quiet(before) != quiet(after)
}

#[cfg(test)]
mod tests;
