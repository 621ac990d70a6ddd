//! When to look again.

use std::time::Duration;

use tokio::time::Instant;

use crate::plan::WaitingOn;
use crate::reconcile::keeper::RESYNC;
use crate::telemetry::metrics::RolloutMetrics;

/// After a step, or when what was seen was out of date: the caches and the API server get a moment.
const AT_ONCE: Duration = Duration::from_millis(20);
/// How soon to look again while something is expected to happen any moment.
pub(super) const SOON: Duration = Duration::from_millis(200);
/// The longest between two looks at what takes its time.
pub(super) const LATER: Duration = Duration::from_secs(2);
/// After a failure that time may cure.
pub(super) const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// What a turn came to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Turn<'a> {
    /// A step was made.
    Stepped,
    /// What was seen is out of date.
    Outdated,
    /// A step failed.
    Failed,
    /// Something is waited for.
    Waits(&'a WaitingOn),
    /// There is nothing to do.
    Rests,
}

/// Remembers what is waited for, and for how long it has been.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// What was waited for the last time, and since when.
    waiting: Option<(&'static str, Instant)>,
    /// What was waited for at the last look, and when that was.
    looked: Option<(&'static str, Instant)>,
}

impl Patience {
    /// When to look again where nothing wakes before.
    pub(super) fn after(
        &mut self,
        turn: Turn<'_>,
        now: Instant,
        metrics: &RolloutMetrics,
    ) -> Duration {
        match turn {
            Turn::Stepped | Turn::Outdated => AT_ONCE,
            Turn::Failed => AFTER_FAILURE,
            Turn::Waits(waiting) => self.with(waiting, now, metrics),
            Turn::Rests => RESYNC,
        }
    }

    /// Soon at first, and less often the longer it lasts.
    fn with(&mut self, waiting: &WaitingOn, now: Instant, metrics: &RolloutMetrics) -> Duration {
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
            | WaitingOn::Paused(_)
            | WaitingOn::Obstacle { .. } => RESYNC,
            _ => SOON
                .max(now.saturating_duration_since(since) / 20)
                .min(LATER),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    fn after(patience: &mut Patience, turn: Turn<'_>, now: Instant) -> Duration {
        patience.after(turn, now, &Metrics::new().rollout)
    }

    #[tokio::test]
    async fn a_step_that_failed_is_tried_again_soon() {
        let mut patience = Patience::default();
        let now = Instant::now();
        assert_eq!(after(&mut patience, Turn::Failed, now), AFTER_FAILURE);
        assert!(AFTER_FAILURE < RESYNC);
    }

    #[tokio::test]
    async fn what_lasts_is_looked_at_less_often_and_what_is_new_at_once() {
        let mut patience = Patience::default();
        let now = Instant::now();
        let waits = Turn::Waits(&WaitingOn::Revision);
        assert_eq!(after(&mut patience, waits, now), SOON);
        let later = now + Duration::from_secs(20);
        assert_eq!(after(&mut patience, waits, later), Duration::from_secs(1));
        let much_later = now + Duration::from_secs(600);
        assert_eq!(after(&mut patience, waits, much_later), LATER);
        let other = WaitingOn::Leadership {
            leader: "etcd-0".into(),
            remaining: Duration::from_secs(1),
        };
        assert_eq!(after(&mut patience, Turn::Waits(&other), much_later), SOON);
    }
}
