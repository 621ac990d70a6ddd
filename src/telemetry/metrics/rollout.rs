//! Metrics of rollouts: steps, waits and durations.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Bucket bounds in seconds, from a cluster of one to seven slow members.
const MINUTES: [f64; 10] = [
    5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1800.0, 7200.0,
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    action: &'static str,
    because: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WaitLabel {
    reason: &'static str,
}

/// Metrics of all rollouts.
#[derive(Debug)]
pub struct RolloutMetrics {
    steps: Family<StepLabel, Counter>,
    waited: Family<WaitLabel, Counter<f64, std::sync::atomic::AtomicU64>>,
    duration: Histogram,
}

impl RolloutMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self {
            steps: Family::default(),
            waited: Family::default(),
            duration: Histogram::new(MINUTES),
        };
        registry.register(
            "rollout_steps",
            "Steps that rollouts made, by what was done and why it was that member's turn",
            metrics.steps.clone(),
        );
        registry.register_with_unit(
            "rollout_waited",
            "Time that rollouts waited, by what for",
            Unit::Seconds,
            metrics.waited.clone(),
        );
        registry.register_with_unit(
            "rollout_duration",
            "Time from a template's change to the last pod of the new revision",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        metrics
    }

    /// Shows a step at zero that was not made yet.
    pub fn expect_step(&self, action: &'static str, because: &'static str) {
        drop(self.steps.get_or_create(&StepLabel { action, because }));
    }

    /// Shows a wait at zero that did not happen yet.
    pub fn expect_wait(&self, reason: &'static str) {
        drop(self.waited.get_or_create(&WaitLabel { reason }));
    }

    /// Counts a step.
    pub fn step(&self, action: &'static str, because: &'static str) {
        let label = StepLabel { action, because };
        self.steps.get_or_create(&label).inc();
    }

    /// Adds to the time that rollouts waited for `reason`.
    pub fn waited(&self, reason: &'static str, time: Duration) {
        let label = WaitLabel { reason };
        self.waited.get_or_create(&label).inc_by(time.as_secs_f64());
    }

    /// Records the duration of a complete rollout.
    pub fn finished(&self, took: Duration) {
        self.duration.observe(took.as_secs_f64());
    }
}
