//! Steps that the API server refuses although the gate permits them: because of another webhook, a
//! missing right, or a `PodDisruptionBudget` that changed.
//!
//! Each attempt takes a grant, and while that is open no other member may go. So a step that fails
//! again is not tried for longer than a grant needs to settle, unless something about the step
//! changes.

use std::time::Duration;

use tokio::time::Instant;

use super::pauses::AFTER_FAILURE;
use crate::judge::SeenVersions;
use crate::plan::Step;
use crate::quorum::TargetPod;

/// The longest time for which a step is not tried.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// The last step that failed.
#[derive(Debug, Default)]
pub(super) struct Setbacks(Option<Setback>);

#[derive(Debug)]
struct Setback {
    pod: TargetPod,
    /// The generations of budget and StatefulSet at the attempt.
    under: (Option<i64>, Option<i64>),
    because: String,
    times: u32,
    until: Instant,
}

impl Setbacks {
    /// The reason not to try this step now, if there is one.
    pub(super) fn against(&self, step: &Step, seen: &SeenVersions, now: Instant) -> Option<&str> {
        let last = self.0.as_ref().filter(|last| last.is_of(step, seen))?;
        (now < last.until).then_some(last.because.as_str())
    }

    /// Records that the step failed. A grant needs `settle_time` to end.
    pub(super) fn note(
        &mut self,
        step: &Step,
        seen: &SeenVersions,
        because: &str,
        now: Instant,
        settle_time: Duration,
    ) {
        let before = self.0.take().filter(|last| last.is_of(step, seen));
        let times = before.map_or(0, |last| last.times).saturating_add(1);
        self.0 = Some(Setback {
            pod: step.pod.clone(),
            under: under(seen),
            because: because.to_owned(),
            times,
            until: now + pause(times, settle_time),
        });
    }

    /// Records that a step was made.
    pub(super) fn forget(&mut self) {
        self.0 = None;
    }
}

impl Setback {
    fn is_of(&self, step: &Step, seen: &SeenVersions) -> bool {
        self.pod == step.pod && self.under == under(seen)
    }
}

fn under(seen: &SeenVersions) -> (Option<i64>, Option<i64>) {
    (seen.budget, seen.stateful_set)
}

/// The time until the next attempt. A single failure may be an accident. From the second one on,
/// other requests get at least as much time as the grant took from them.
fn pause(times: u32, settle_time: Duration) -> Duration {
    match times {
        0 | 1 => AFTER_FAILURE,
        times => settle_time
            .saturating_mul(2_u32.saturating_pow(times - 1))
            .min(LONGEST.max(settle_time.saturating_mul(2))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconcile::rollout::tests::step;

    const SETTLE: Duration = Duration::from_secs(120);

    fn seen(stateful_set: i64) -> SeenVersions {
        SeenVersions {
            last_seq: 7,
            budget: Some(1),
            stateful_set: Some(stateful_set),
        }
    }

    #[tokio::test]
    async fn a_step_that_fails_again_is_left_alone_until_its_permission_can_have_settled() {
        let mut setbacks = Setbacks::default();
        let start = Instant::now();
        assert_eq!(setbacks.against(&step("u"), &seen(1), start), None);
        setbacks.note(&step("u"), &seen(1), "no", start, SETTLE);
        assert_eq!(setbacks.against(&step("u"), &seen(1), start), Some("no"));
        let again = start + AFTER_FAILURE;
        assert_eq!(setbacks.against(&step("u"), &seen(1), again), None);
        setbacks.note(&step("u"), &seen(1), "no", again, SETTLE);
        let settled = again + SETTLE + Duration::from_secs(1);
        assert!(setbacks.against(&step("u"), &seen(1), settled).is_some());
        assert_eq!(
            setbacks.against(&step("u"), &seen(1), again + SETTLE * 2),
            None
        );
    }

    #[tokio::test]
    async fn another_pod_another_template_and_a_step_that_was_made_begin_anew() {
        let mut setbacks = Setbacks::default();
        let now = Instant::now();
        setbacks.note(&step("u"), &seen(1), "no", now, SETTLE);
        assert_eq!(setbacks.against(&step("v"), &seen(1), now), None);
        assert_eq!(setbacks.against(&step("u"), &seen(2), now), None);
        setbacks.forget();
        assert_eq!(setbacks.against(&step("u"), &seen(1), now), None);
    }

    #[test]
    fn no_pause_is_longer_than_half_an_hour_or_shorter_than_two_settle_times() {
        assert_eq!(pause(40, SETTLE), LONGEST);
        let long = Duration::from_secs(3600);
        assert_eq!(pause(40, long), long * 2);
    }
}
