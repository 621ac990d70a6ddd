//! The calls of one side in one round. Sides take turns, so that other work on the machine affects
//! both alike.

use std::time::Duration;

/// The calls of one side in one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The durations of the calls, ascending.
    calls: Vec<Duration>,
}

impl Round {
    pub(crate) fn from_calls(mut calls: Vec<Duration>) -> Self {
        calls.sort_unstable();
        Self { calls }
    }

    /// A percentile of the durations in seconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let at = self.calls.len() * percent / 100;
        let call = self.calls.get(at).or(self.calls.last());
        call.map_or(f64::NAN, Duration::as_secs_f64)
    }
}
