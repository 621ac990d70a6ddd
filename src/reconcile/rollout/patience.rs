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
/// How soon to look again once time alone was waited for, and is over.
const DUE: Duration = Duration::from_millis(50);
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
    /// The same, or as soon as a member that does not serve answers otherwise.
    Attentive(Duration),
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
        match turn {
            Turn::Stepped | Turn::Outdated => Pause::UntilWoken(AT_ONCE),
            Turn::Failed => Pause::Undisturbed(AFTER_FAILURE),
            Turn::Waits(waiting) => self.with(waiting, now, metrics),
            Turn::Rests => Pause::UntilWoken(RESYNC),
        }
    }

    /// Soon at first, and less often the longer it lasts: events and members that answer otherwise wake, so these looks only are for what
    /// nobody tells, and for what time brings.
    fn with(&mut self, waiting: &WaitingOn, now: Instant, metrics: &RolloutMetrics) -> Pause {
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
            | WaitingOn::Obstacle { .. } => Pause::UntilWoken(RESYNC),
            _ => {
                let lasted = now.saturating_duration_since(since);
                let pause = SOON.max(lasted / 20).min(LATER);
                let due = waiting.remaining().map(|remaining| remaining.max(DUE));
                Pause::Attentive(due.map_or(pause, |due| pause.min(due)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Progress;
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

    /// The pauses after looks at these waits, so many seconds after the first.
    fn pauses(waits: &[(WaitingOn, u64)]) -> Vec<Pause> {
        let mut patience = Patience::default();
        let start = Instant::now();
        let pause = |(waiting, seconds): &(WaitingOn, u64)| {
            let now = start + Duration::from_secs(*seconds);
            after(&mut patience, Turn::Waits(waiting), now)
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
    async fn what_lasts_is_looked_at_less_often_and_what_is_new_at_once() {
        let waits = [
            (WaitingOn::Revision, 0),
            (WaitingOn::Revision, 20),
            (WaitingOn::Revision, 600),
            (leads_again(LATER), 600),
        ];
        let times = [SOON, Duration::from_secs(1), LATER, SOON];
        assert_eq!(pauses(&waits), times.map(Pause::Attentive));
    }

    #[tokio::test]
    async fn what_time_alone_ends_is_looked_at_when_it_ends_however_long_it_has_lasted() {
        let left = Duration::from_millis(700);
        let waits = [
            (leads_again(Duration::from_secs(600)), 0),
            (leads_again(Duration::from_secs(9)), 591),
            (leads_again(left), 600),
            (leads_again(Duration::ZERO), 601),
        ];
        let times = [SOON, LATER, left, DUE];
        assert_eq!(pauses(&waits), times.map(Pause::Attentive));
    }

    #[tokio::test]
    async fn what_etcd_cannot_end_is_waited_for_without_asking_it() {
        let progress = Progress {
            updated: 0,
            targets: 3,
        };
        let paused = (WaitingOn::Paused(progress), 0);
        assert_eq!(pauses(&[paused]), [Pause::UntilWoken(RESYNC)]);
    }
}
