//! The clock: the wall time and the monotonic time.
//!
//! The wall time is that of the API servers. They date what they store, check the gate's
//! certificate, and serve those who write overrides. A machine whose clock differs is corrected by
//! the dates of their answers.
//!
//! Code that needs the time is given a [`Clock`]; tests give one that they move by hand. The
//! monotonic time is tokio's, so that it can be handed to tokio's timers. A frozen clock changes
//! what is read, and does not stop those timers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// For how long every answer has to contradict the correction in use before it changes. Where one
/// of several API servers has another clock than the rest, nothing changes.
const CONTRADICTED: Duration = Duration::from_secs(10);

/// The widest bounds of an answer by which a clock is believed to be right as it is.
const PRECISE: SignedDuration = SignedDuration::from_secs(2);

/// A source of the time. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Clock {
    source: Source,
    /// By how much the source is ahead of API servers. Shared by all clones.
    ahead: Arc<Mutex<Ahead>>,
}

/// By how much a clock is ahead of API servers.
#[derive(Debug, Default)]
struct Ahead {
    /// The correction in use. `None` before the first answer.
    by: Option<SignedDuration>,
    /// Since when every answer has contradicted it.
    contradicted: Option<Instant>,
}

/// The comparison of this machine's clock with the date of an API server's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compared {
    /// By how much this machine's clock is ahead, at the least. Zero if the answer does not prove
    /// that it is off.
    pub ahead: SignedDuration,
    /// The correction that is in use from now on, if it has changed.
    pub corrected: Option<SignedDuration>,
}

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
        Self::from_source(Source::System)
    }

    /// A clock that shows `wall` until it is moved by the returned [`ClockHand`].
    pub fn frozen(wall: Timestamp) -> (Self, ClockHand) {
        let monotonic = monotonic_now();
        let reading = Arc::new(Mutex::new(Reading { wall, monotonic }));
        (
            Self::from_source(Source::Frozen(Arc::clone(&reading))),
            ClockHand(reading),
        )
    }

    fn from_source(source: Source) -> Self {
        Self {
            source,
            ahead: Arc::default(),
        }
    }

    /// The wall time of API servers, for people, for certificates, and for the age of what the
    /// Kubernetes API dates. It may jump.
    pub fn now(&self) -> Timestamp {
        let ahead = self.ahead().by.unwrap_or_default();
        let wall = self.read().wall;
        wall.saturating_sub(ahead).unwrap_or(wall)
    }

    /// Takes in that an API server dated its answer, to a request that was sent at `asked`.
    pub fn compare(&self, asked: Instant, dated: Timestamp) -> Compared {
        let Reading { wall, monotonic } = self.read();
        let took = monotonic.saturating_duration_since(asked);
        let took = SignedDuration::try_from(took).unwrap_or(SignedDuration::MAX);
        // The date is rounded down to a second, and the answer may be as old as the request.
        let most = wall.duration_since(dated);
        let least = most.saturating_sub(took.saturating_add(SignedDuration::from_secs(1)));
        let mut ahead = self.ahead();
        let corrected = ahead.take_in((least, most), monotonic);
        Compared {
            ahead: SignedDuration::ZERO.clamp(least, most),
            corrected,
        }
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The monotonic time, for deadlines and for durations within this process.
    pub fn instant(&self) -> Instant {
        self.read().monotonic
    }

    fn read(&self) -> Reading {
        match &self.source {
            Source::System => system_reading(),
            Source::Frozen(reading) => *reading.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Ahead {
    /// Takes in between what bounds the clock is ahead. Returns the correction if it changes.
    ///
    /// Where one answer agrees with the clock as it is, two clocks agree, and it is not corrected.
    fn take_in(
        &mut self,
        (least, most): (SignedDuration, SignedDuration),
        now: Instant,
    ) -> Option<SignedDuration> {
        let is_first = self.by.is_none();
        let by = *self.by.get_or_insert_default();
        let agrees = |by: SignedDuration| by.clamp(least, most) == by;
        let is_precise = most.saturating_sub(least) <= PRECISE;
        let next = if agrees(SignedDuration::ZERO) && is_precise {
            SignedDuration::ZERO
        } else if agrees(by) {
            by
        } else {
            let contradicted = *self.contradicted.get_or_insert(now);
            if !is_first && now.saturating_duration_since(contradicted) < CONTRADICTED {
                return None;
            }
            by.clamp(least, most)
        };
        self.contradicted = None;
        self.by = Some(next);
        (next != by).then_some(next)
    }
}

impl ClockHand {
    /// Sets the wall time, as somebody may who sets a machine's clock.
    pub fn set(&self, wall: Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wall = wall;
    }

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

    const MINUTES: SignedDuration = SignedDuration::from_mins(5);

    fn noon() -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    fn off_by(skew: SignedDuration) -> (Clock, ClockHand) {
        Clock::frozen(noon() + skew)
    }

    #[test]
    fn a_clock_that_is_five_minutes_off_shows_the_time_of_api_servers() {
        for skew in [MINUTES, -MINUTES] {
            let (clock, _) = off_by(skew);
            assert_eq!(clock.now(), noon() + skew);
            let compared = clock.clone().compare(clock.instant(), noon());
            assert_eq!(compared.corrected, Some(compared.ahead));
            let off = (compared.ahead - skew).abs();
            assert!(off <= SignedDuration::from_secs(1), "{compared:?}");
            let off = clock.now().duration_since(noon()).abs();
            assert!(off <= SignedDuration::from_secs(1), "{}", clock.now());
        }
    }

    #[test]
    fn an_answer_that_took_long_proves_no_more_than_it_can() {
        let (clock, hand) = off_by(SignedDuration::ZERO);
        let asked = clock.instant();
        hand.advance(Duration::from_secs(20));
        // It was dated when it was asked for, or just now.
        for dated in [noon(), noon() + SignedDuration::from_secs(20)] {
            let compared = clock.compare(asked, dated);
            assert_eq!(compared.ahead, SignedDuration::ZERO);
            assert_eq!(compared.corrected, None);
        }
    }

    #[test]
    fn one_api_server_with_another_clock_than_the_rest_corrects_nothing() {
        for first in 0..3 {
            let (clock, hand) = off_by(SignedDuration::ZERO);
            for second in 0..60 {
                let time = noon() + SignedDuration::from_secs(second);
                let is_odd = second % 3 == first;
                let dated = if is_odd { time - MINUTES } else { time };
                let compared = clock.compare(clock.instant(), dated);
                assert_eq!(compared.ahead.is_zero(), !is_odd);
                // The first answer of all is believed, for want of others.
                let off = clock.now().duration_since(time);
                assert_eq!(off.is_zero(), !is_odd || second > 0, "{second}: {off}");
                hand.advance(Duration::from_secs(1));
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_is_corrected_once_answers_have_said_so_for_ten_seconds() {
        let (clock, hand) = off_by(SignedDuration::ZERO);
        let mut time = noon();
        clock.compare(clock.instant(), time);
        hand.set(noon() - MINUTES);
        for second in 0..=10 {
            let compared = clock.compare(clock.instant(), time);
            assert_eq!(compared.corrected.is_some(), second == 10, "{second}");
            hand.advance(Duration::from_secs(1));
            time += SignedDuration::from_secs(1);
        }
        let off = clock.now().duration_since(time).abs();
        assert!(off <= SignedDuration::from_secs(1), "{}", clock.now());
    }

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = Clock::system();
        let first = clock.instant();
        assert!(clock.instant() >= first);
    }
}
