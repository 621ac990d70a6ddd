//! Startup, readiness and liveness probes.
//!
//! `Counter` implements the documented meaning of the thresholds, without time or IO. `watch` runs
//! one probe of one container on its schedule. `check` asks the container.

pub(super) mod check;
mod http;

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Probe;
use tokio::time::MissedTickBehavior;

/// The question that a probe answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Has the container started? Until then the other two do not run.
    Startup,
    /// Should the pod be in its Services' endpoints?
    Readiness,
    /// Should the container be restarted?
    Liveness,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        })
    }
}

/// The schedule and the thresholds of a probe, with the documented defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The time from the container's start to the first attempt.
    pub initial_delay: Duration,
    /// The time between attempts.
    pub period: Duration,
    /// The time limit of an attempt.
    pub timeout: Duration,
    /// The number of consecutive successes that make a success.
    pub success_threshold: u32,
    /// The number of consecutive failures that make a failure.
    pub failure_threshold: u32,
}

impl From<&Probe> for Schedule {
    fn from(probe: &Probe) -> Self {
        let positive = |value: Option<i32>, default: u32| {
            value
                .and_then(|v| u32::try_from(v).ok())
                .filter(|v| *v > 0)
                .unwrap_or(default)
        };
        let seconds = |n: u32| Duration::from_secs(u64::from(n));
        Self {
            initial_delay: seconds(positive(probe.initial_delay_seconds, 0)),
            period: seconds(positive(probe.period_seconds, 10)),
            timeout: seconds(positive(probe.timeout_seconds, 1)),
            success_threshold: positive(probe.success_threshold, 1),
            failure_threshold: positive(probe.failure_threshold, 3),
        }
    }
}

/// The result of a probe after a threshold was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The last attempts succeeded.
    Success,
    /// The last attempts failed.
    Failure,
}

/// Counts consecutive results.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    schedule: Schedule,
    last: Option<Outcome>,
    run: u32,
}

impl Counter {
    /// A counter without results.
    pub(crate) fn new(schedule: Schedule) -> Self {
        Self {
            schedule,
            last: None,
            run: 0,
        }
    }

    /// Adds a result. Returns the outcome if its threshold is reached now or was before.
    pub(crate) fn observe(&mut self, result: Outcome) -> Option<Outcome> {
        if self.last == Some(result) {
            self.run = self.run.saturating_add(1);
        } else {
            self.last = Some(result);
            self.run = 1;
        }
        let threshold = match result {
            Outcome::Success => self.schedule.success_threshold,
            Outcome::Failure => self.schedule.failure_threshold,
        };
        (self.run >= threshold).then_some(result)
    }
}

/// Runs a probe of a container that started at `started` until `report` needs no more.
///
/// `report` gets every outcome that changes the answer, with the message of the last failure. A
/// startup probe ends with its first success. Every probe ends with a failure of liveness or
/// startup, since the container is restarted then.
pub(crate) async fn watch<A: Future<Output = Result<(), String>>>(
    kind: Kind,
    schedule: Schedule,
    started: Instant,
    mut attempt: impl FnMut() -> A,
    mut report: impl FnMut(Outcome, String),
) {
    tokio::time::sleep_until((started + schedule.initial_delay).into()).await;
    let mut ticks = tokio::time::interval(schedule.period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut counter = Counter::new(schedule);
    let mut said = None;
    loop {
        ticks.tick().await;
        let result = match tokio::time::timeout(schedule.timeout, attempt()).await {
            Ok(result) => result,
            Err(_elapsed) => Err(format!("timed out after {} s", schedule.timeout.as_secs())),
        };
        let seen = if result.is_ok() {
            Outcome::Success
        } else {
            Outcome::Failure
        };
        let Some(outcome) = counter.observe(seen) else {
            continue;
        };
        if said != Some(outcome) {
            said = Some(outcome);
            report(outcome, result.err().unwrap_or_default());
        }
        match (kind, outcome) {
            (Kind::Startup, _) | (Kind::Liveness, Outcome::Failure) => return,
            (Kind::Readiness, _) | (Kind::Liveness, Outcome::Success) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn schedule(success_threshold: u32, failure_threshold: u32) -> Schedule {
        Schedule {
            initial_delay: Duration::from_secs(5),
            period: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            success_threshold,
            failure_threshold,
        }
    }

    #[test]
    fn unset_fields_have_the_documented_defaults() {
        let schedule = Schedule::from(&Probe::default());
        assert_eq!(schedule.period.as_secs(), 10);
        assert_eq!(schedule.timeout.as_secs(), 1);
        assert_eq!(
            (schedule.success_threshold, schedule.failure_threshold),
            (1, 3)
        );
        assert!(schedule.initial_delay.is_zero());
    }

    #[test]
    fn only_consecutive_results_reach_a_threshold() {
        use Outcome::{Failure, Success};
        let mut counter = Counter::new(schedule(2, 3));
        let results = [
            Failure, Failure, Success, Failure, Failure, Failure, Success, Success,
        ];
        let outcomes: Vec<_> = results.map(|r| counter.observe(r)).to_vec();
        assert_eq!(
            outcomes,
            [
                None,
                None,
                None,
                None,
                None,
                Some(Failure),
                None,
                Some(Success)
            ]
        );
    }

    /// The times of a probe's reports in seconds after the start, with the outcomes.
    async fn reports(
        kind: Kind,
        schedule: Schedule,
        fails: impl Fn(u64) -> bool,
    ) -> Vec<(u64, Outcome)> {
        let start = tokio::time::Instant::now();
        let elapsed = || start.elapsed().as_secs();
        let seen = RefCell::new(Vec::new());
        let attempt = || {
            std::future::ready(if fails(elapsed()) {
                Err(String::new())
            } else {
                Ok(())
            })
        };
        let report = |outcome, _| seen.borrow_mut().push((elapsed(), outcome));
        let run = watch(kind, schedule, start.into_std(), attempt, report);
        tokio::time::timeout(Duration::from_secs(60), run)
            .await
            .ok();
        seen.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn readiness_flips_after_threshold_times_period_and_back() {
        let seen = reports(Kind::Readiness, schedule(1, 3), |t| (10..30).contains(&t)).await;
        // The attempts are at 5, 7, 9, 11 (fails), 13, 15 (third failure), …, 31.
        let expected = [
            (5, Outcome::Success),
            (15, Outcome::Failure),
            (31, Outcome::Success),
        ];
        assert_eq!(seen, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_startup_probe_ends_with_its_first_outcome() {
        let seen = reports(Kind::Startup, schedule(1, 30), |t| t < 12).await;
        assert_eq!(seen, [(13, Outcome::Success)]);
        let seen = reports(Kind::Startup, schedule(1, 3), |_| true).await;
        assert_eq!(seen, [(9, Outcome::Failure)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_hangs_fails_at_its_timeout() {
        let seen = RefCell::new(Vec::new());
        let start = tokio::time::Instant::now();
        let attempt = std::future::pending;
        let report = |outcome, _| seen.borrow_mut().push((start.elapsed().as_secs(), outcome));
        watch(
            Kind::Liveness,
            schedule(1, 1),
            start.into_std(),
            attempt,
            report,
        )
        .await;
        assert_eq!(seen.into_inner(), [(6, Outcome::Failure)]);
    }
}
