//! Publishes the report on a rollout: in the budget's status, by Events, in the log and in metrics.

use std::sync::Arc;
use std::time::Duration;

use kube::Resource as _;
use tokio::time::Instant;
use tracing::info;

use super::story::{self, Scene};
use crate::api::{QuorumDisruptionBudgetStatus, RolloutStatus, condition};
use crate::ledger::{LedgerError, Page};
use crate::quorum::ClusterRef;
use crate::reconcile::Run;
use crate::telemetry::events::{Notice, Severity};

/// The shortest time between two writes of texts that only state a duration.
const WORDS: Duration = Duration::from_secs(10);

/// The publisher for one cluster's rollouts.
pub(super) struct Teller {
    run: Arc<Run>,
    cluster: ClusterRef,
    words_written: Option<Instant>,
}

impl Teller {
    pub(super) fn new(run: Arc<Run>, cluster: ClusterRef) -> Self {
        Self {
            run,
            cluster,
            words_written: None,
        }
    }

    /// Writes the report on the budget's latest page if it has news, and publishes steps and
    /// obstacles.
    pub(super) async fn tell(&mut self, page: &Page, scene: &Scene<'_>) -> Result<(), LedgerError> {
        let shown = page.status().cloned().unwrap_or_default();
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
            .write_status(page, |status| {
                status.rollout.clone_from(&after.rollout);
                status.updated_members = after.updated_members;
                status.conditions.clone_from(&after.conditions);
            })
            .await?;
        self.words_written = Some(now);
        if let (true, Some(rollout)) = (news, &after.rollout) {
            let then = shown.rollout.map(|then| *then).unwrap_or_default();
            self.notify(page, &then, rollout);
        }
        Ok(())
    }

    /// Removes the report, since the gate does not roll out this cluster any more. Returns `false`
    /// if there was none.
    pub(super) async fn take_back(&self, page: &Page) -> Result<bool, LedgerError> {
        if page.status().is_none_or(|status| status.rollout.is_none()) {
            return Ok(false);
        }
        let forget = |status: &mut QuorumDisruptionBudgetStatus| {
            status.rollout = None;
            status
                .conditions
                .retain(|c| c.type_ != condition::PROGRESSING);
        };
        self.run.ledger().write_status(page, forget).await?;
        Ok(true)
    }

    fn notify(&self, page: &Page, then: &RolloutStatus, now: &RolloutStatus) {
        let event = |severity, reason: &str, note: String| {
            self.run.events.notify(Notice {
                regarding: page.budget().object_ref(&()),
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
            && reason(now) != reason(then)
        {
            info!(cluster = %self.cluster, reason = waiting.reason, waiting = waiting.message, "rollout waits");
            let severity = match waiting.reason.as_str() {
                "overdue" | "obstacle" | "failed" => Severity::Warning,
                _ => Severity::Normal,
            };
            event(severity, "RolloutWaits", waiting.message.clone());
        }
        if now.finished.is_some() && then.finished.is_none() && then.target.is_some() {
            let target = now.target.as_deref().unwrap_or_default();
            info!(cluster = %self.cluster, target, "rollout complete");
            if let (Some(began), Some(ended)) = (&now.started, &now.finished) {
                let took = ended.0.duration_since(began.0);
                self.run.metrics.rollout.finished(took.unsigned_abs());
            }
            let note = format!("every pod has revision {target}");
            event(Severity::Normal, "RolloutComplete", note);
        }
    }
}

fn reason(rollout: &RolloutStatus) -> Option<&str> {
    let waiting = rollout.waiting_on.as_ref();
    waiting.map(|waiting| waiting.reason.as_str())
}
