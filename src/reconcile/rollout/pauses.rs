//! The time until the next look.

use std::time::Duration;

use tokio::time::Instant;

use crate::plan::WaitingOn;
use crate::reconcile::operation::Rest;
use crate::reconcile::workers::RESYNC;
use crate::telemetry::metrics::RolloutMetrics;

/// The pause after a step or after an outdated look, which gives the caches and the API server a
/// moment.
const AT_ONCE: Duration = Duration::from_millis(20);
/// The pause while a change is expected any moment.
pub(super) const SOON: Duration = Duration::from_millis(200);
/// The pause after a wait for a time that is over.
const DUE: Duration = Duration::from_millis(50);
/// The longest pause while something takes its time.
pub(super) const LATER: Duration = Duration::from_secs(2);
/// The pause while the window is closed, or there is no recent backup.
const MINUTE: Duration = Duration::from_secs(60);
/// The pause after a failure that time may cure.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// The outcome of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum Outcome<'a> {
    /// A step was made.
    Stepped,
    /// The look is outdated.
    Outdated,
    /// A step failed.
    Failed,
    /// The rollout waits.
    Waits(&'a WaitingOn),
    /// There is nothing to do.
    Rests,
}

/// The present wait and its duration.
#[derive(Debug, Default)]
pub(super) struct Pauses {
    /// The reason of the last wait, and since when.
    waiting: Option<(&'static str, Instant)>,
    /// The reason at the last look, and its time.
    looked: Option<(&'static str, Instant)>,
}

impl Pauses {
    /// The time of the next look.
    pub(super) fn after(
        &mut self,
        outcome: Outcome<'_>,
        now: Instant,
        metrics: &RolloutMetrics,
    ) -> Rest {
        match outcome {
            Outcome::Stepped | Outcome::Outdated => Rest::Within(AT_ONCE),
            // The failed attempt has written to the budget, and that change would wake the loop.
            Outcome::Failed => Rest::NotBefore(AFTER_FAILURE),
            Outcome::Waits(waiting) => self.with(waiting, now, metrics),
            Outcome::Rests => Rest::Within(RESYNC),
        }
    }

    /// The pause for a wait: short at first, and longer the longer it lasts. Events and different
    /// answers of members wake the driver, so these looks are only for changes without an event.
    fn with(&mut self, waiting: &WaitingOn, now: Instant, metrics: &RolloutMetrics) -> Rest {
        let slug = waiting.slug();
        let since = match self.waiting {
            Some((before, since)) if before == slug => since,
            Some(_) | None => now,
        };
        if let Some((before, looked)) = self.looked.replace((slug, now))
            && before == slug
        {
            metrics.waited(slug, now.saturating_duration_since(looked));
        }
        self.waiting = Some((slug, since));
        match waiting {
            WaitingOn::Enrolment
            | WaitingOn::Teardown(_)
            | WaitingOn::TooManyReplicas { .. }
            | WaitingOn::Paused(_)
            | WaitingOn::Preflight { .. }
            | WaitingOn::Obstacle { .. } => Rest::Within(RESYNC),
            WaitingOn::RolloutLimit { again, .. } => Rest::Within(*again),
            WaitingOn::OutsideWindow { .. } | WaitingOn::Backup { .. } => Rest::Within(MINUTE),
            _ => {
                let lasted = now.saturating_duration_since(since);
                let pause = SOON.max(lasted / 20).min(LATER);
                let due = waiting.remaining().map(|remaining| remaining.max(DUE));
                Rest::Attentive(due.map_or(pause, |due| pause.min(due)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Progress;
    use crate::telemetry::metrics::Metrics;

    fn after(pauses: &mut Pauses, outcome: Outcome<'_>, now: Instant) -> Rest {
        pauses.after(outcome, now, &Metrics::new().rollout)
    }

    #[tokio::test]
    async fn a_step_that_failed_is_tried_again_soon_and_whatever_happens_not_before() {
        let mut pauses = Pauses::default();
        let pause = after(&mut pauses, Outcome::Failed, Instant::now());
        assert_eq!(pause, Rest::NotBefore(AFTER_FAILURE));
        assert!(AFTER_FAILURE < RESYNC);
    }

    /// The pauses after looks with these waits. The numbers are seconds after the first look.
    fn pauses(waits: &[(WaitingOn, u64)]) -> Vec<Rest> {
        let mut pauses = Pauses::default();
        let start = Instant::now();
        let pause = |(waiting, seconds): &(WaitingOn, u64)| {
            let now = start + Duration::from_secs(*seconds);
            after(&mut pauses, Outcome::Waits(waiting), now)
        };
        waits.iter().map(pause).collect()
    }

    fn leads_again(remaining: Duration) -> WaitingOn {
        WaitingOn::Leadership {
            leader: "etcd-0".into(),
            remaining,
        }
    }

    #[tokio::test]
    async fn a_long_wait_has_fewer_looks_and_a_new_wait_an_early_one() {
        let waits = [
            (WaitingOn::Revision, 0),
            (WaitingOn::Revision, 20),
            (WaitingOn::Revision, 600),
            (leads_again(LATER), 600),
        ];
        let times = [SOON, Duration::from_secs(1), LATER, SOON];
        assert_eq!(pauses(&waits), times.map(Rest::Attentive));
    }

    #[tokio::test]
    async fn a_wait_for_a_time_is_looked_at_when_the_time_is_over() {
        let left = Duration::from_millis(700);
        let waits = [
            (leads_again(Duration::from_secs(600)), 0),
            (leads_again(Duration::from_secs(9)), 591),
            (leads_again(left), 600),
            (leads_again(Duration::ZERO), 601),
        ];
        let times = [SOON, LATER, left, DUE];
        assert_eq!(pauses(&waits), times.map(Rest::Attentive));
    }

    #[tokio::test]
    async fn what_etcd_cannot_end_is_waited_for_without_asking_it() {
        let progress = Progress {
            updated: 0,
            targets: 3,
        };
        let paused = (WaitingOn::Paused(progress), 0);
        assert_eq!(pauses(&[paused]), [Rest::Within(RESYNC)]);
    }
}
