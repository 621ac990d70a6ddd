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

/// When to take the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pause {
    /// After this time, or as soon as something happens.
    UntilWoken(Duration),
    /// Not before this time: what was tried failed, and has written to the budget, which would wake us at once.
    Undisturbed(Duration),
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
    /// When to look again.
    pub(super) fn after(
        &mut self,
        turn: Turn<'_>,
        now: Instant,
        metrics: &RolloutMetrics,
    ) -> Pause {
        Pause::UntilWoken(match turn {
            Turn::Stepped | Turn::Outdated => AT_ONCE,
            Turn::Failed => return Pause::Undisturbed(AFTER_FAILURE),
            Turn::Waits(waiting) => self.with(waiting, now, metrics),
            Turn::Rests => RESYNC,
        })
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

    fn after(patience: &mut Patience, turn: Turn<'_>, now: Instant) -> Pause {
        patience.after(turn, now, &Metrics::new().rollout)
    }

    #[tokio::test]
    async fn a_step_that_failed_is_tried_again_soon_and_whatever_happens_not_before() {
        let mut patience = Patience::default();
        let pause = after(&mut patience, Turn::Failed, Instant::now());
        assert_eq!(pause, Pause::Undisturbed(AFTER_FAILURE));
        assert!(AFTER_FAILURE < RESYNC);
    }

    #[tokio::test]
    async fn what_lasts_is_looked_at_less_often_and_what_is_new_at_once() {
        let mut patience = Patience::default();
        let now = Instant::now();
        let mut later = |waiting: &WaitingOn, seconds| {
            let then = now + Duration::from_secs(seconds);
            after(&mut patience, Turn::Waits(waiting), then)
        };
        let revision = WaitingOn::Revision;
        assert_eq!(later(&revision, 0), Pause::UntilWoken(SOON));
        let second = Duration::from_secs(1);
        assert_eq!(later(&revision, 20), Pause::UntilWoken(second));
        assert_eq!(later(&revision, 600), Pause::UntilWoken(LATER));
        let other = WaitingOn::Leadership {
            leader: "etcd-0".into(),
            remaining: second,
        };
        assert_eq!(later(&other, 600), Pause::UntilWoken(SOON));
    }
}
