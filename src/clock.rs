//! The clock: the wall time and the monotonic time.
//!
//! Code that needs the time is given a [`Clock`]; tests give one that they move by hand. The
//! monotonic time is tokio's, so that it can be handed to tokio's timers. A frozen clock changes
//! what is read, and does not stop those timers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A source of the time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Frozen(Arc<Mutex<Reading>>),
}

#[derive(Debug, Clone, Copy)]
struct Reading {
    wall: Timestamp,
    monotonic: Instant,
}

/// The control of a frozen [`Clock`] and of all its clones.
#[derive(Debug)]
pub struct ClockHand(Arc<Mutex<Reading>>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that shows `wall` until it is moved by the returned [`ClockHand`].
    pub fn frozen(wall: Timestamp) -> (Self, ClockHand) {
        let monotonic = monotonic_now();
        let reading = Arc::new(Mutex::new(Reading { wall, monotonic }));
        (
            Self(Source::Frozen(Arc::clone(&reading))),
            ClockHand(reading),
        )
    }

    /// The wall time, for people, for certificates, and for the age of what the Kubernetes API
    /// dates. It may jump, and it differs between machines.
    pub fn now(&self) -> Timestamp {
        self.read().wall
    }

    /// The monotonic time, for deadlines and for durations within this process.
    pub fn instant(&self) -> Instant {
        self.read().monotonic
    }

    fn read(&self) -> Reading {
        match &self.0 {
            Source::System => system_reading(),
            Source::Frozen(reading) => *reading.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl ClockHand {
    /// Moves both times forward.
    pub fn advance(&self, by: Duration) {
        let mut reading = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reading.monotonic += by;
        let step = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        reading.wall = reading.wall.saturating_add(step).unwrap_or(Timestamp::MAX);
    }
}

/// The machine's monotonic time, for what the process measures of itself and of its connections:
/// latencies, pauses, how long a peer has been silent. What is decided about a cluster takes its
/// time from a [`Clock`].
#[allow(
    clippy::disallowed_methods,
    reason = "the only reader of the monotonic time"
)]
pub fn monotonic_now() -> Instant {
    Instant::now()
}

#[allow(
    clippy::disallowed_methods,
    reason = "the only reader of the wall time"
)]
fn system_reading() -> Reading {
    Reading {
        wall: Timestamp::now(),
        monotonic: monotonic_now(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frozen_clock_stands_until_its_hands_are_moved() {
        let (clock, hand) = Clock::frozen(Timestamp::UNIX_EPOCH);
        let copy = clock.clone();
        let start = clock.instant();
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);

        hand.advance(Duration::from_secs(90));

        assert_eq!(copy.now().as_second(), 90);
        assert_eq!(copy.instant() - start, Duration::from_secs(90));
    }

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = Clock::system();
        let first = clock.instant();
        assert!(clock.instant() >= first);
    }
}
