//! The calls of one side in one round. Sides take turns, so that whatever else the machine does hits both alike.

use std::time::Duration;

/// What one side did in one round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// How long each call took, ascending.
    calls: Vec<Duration>,
}

impl Round {
    pub(crate) fn of(mut calls: Vec<Duration>) -> Self {
        calls.sort_unstable();
        Self { calls }
    }

    /// So many of a hundred calls took no longer, seconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let at = self.calls.len() * percent / 100;
        let call = self.calls.get(at).or(self.calls.last());
        call.map_or(f64::NAN, Duration::as_secs_f64)
    }
}
