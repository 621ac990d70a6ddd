//! The time limit of a round of probes: short while the cluster answers quickly, longer while it is
//! slow.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The time limit for a cluster that answers quickly, unless the budget sets another.
const BASE: Duration = Duration::from_millis(400);

/// The time limit for the slowest cluster. An admission request has to be answered within seconds.
const CEILING: Duration = Duration::from_millis(1500);

/// The time limit is this many times the recent latency of reads.
const ROOM: u32 = 4;

/// The time limit of one cluster's rounds, with the recent latency. There is one of it per cluster.
#[derive(Debug)]
pub struct TimeLimit {
    base: Duration,
    lately: Mutex<Duration>,
}

/// The evidence in a member's probe about the latency of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LatencySample {
    /// The read passed, this long after the round began.
    Passed(Duration),
    /// There was no answer when the round ended, this long after it began.
    TimedOut(Duration),
    /// The member failed or could not be asked; more time would have changed nothing.
    Failed,
    /// The member is a learner, whose latency does not matter.
    Learner,
}

impl Default for TimeLimit {
    fn default() -> Self {
        Self::new(BASE)
    }
}

impl TimeLimit {
    /// A time limit of `base` (400 ms by default) while reads are quick. The limit is never shorter
    /// than `base`, also where that exceeds the 1.5 s that a slow cluster gets otherwise.
    pub fn new(base: Duration) -> Self {
        Self {
            base,
            lately: Mutex::new(Duration::ZERO),
        }
    }

    /// The time limit of the next round.
    pub fn timeout(&self) -> Duration {
        let lately = *self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        timeout(self.base, lately)
    }

    pub(super) fn learn(&self, samples: &[LatencySample]) {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        *lately = remember(*lately, majority_latency(samples));
    }
}

fn timeout(base: Duration, lately: Duration) -> Duration {
    (lately * ROOM).min(CEILING).max(base)
}

/// The new recent latency: a slower sample counts at once, and quicker ones lower it by a quarter
/// each.
fn remember(lately: Duration, sample: Option<Duration>) -> Duration {
    sample.unwrap_or_default().max(lately * 3 / 4)
}

/// The time after which a majority had passed its reads. A minority that hangs or is dead does not
/// slow the cluster down, and does not prolong its rounds. `None` where no time would have been
/// enough for a majority.
fn majority_latency(samples: &[LatencySample]) -> Option<Duration> {
    let voters = samples
        .iter()
        .filter(|sample| **sample != LatencySample::Learner)
        .count();
    let mut times: Vec<Duration> = samples
        .iter()
        .filter_map(|sample| match sample {
            LatencySample::Passed(time) | LatencySample::TimedOut(time) => Some(*time),
            LatencySample::Failed | LatencySample::Learner => None,
        })
        .collect();
    times.sort_unstable();
    times.get(voters / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::LatencySample::{Failed, Learner, Passed, TimedOut};
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn after(rounds: &[&[LatencySample]]) -> Duration {
        let limit = TimeLimit::default();
        for samples in rounds {
            limit.learn(samples);
        }
        limit.timeout()
    }

    #[test]
    fn quick_reads_leave_the_timeout_at_its_base() {
        assert_eq!(after(&[]), ms(400));
        assert_eq!(
            after(&[&[Passed(ms(3)), Passed(ms(4)), Passed(ms(99))]]),
            ms(400)
        );
    }

    #[test]
    fn slow_reads_raise_it_up_to_the_ceiling() {
        assert_eq!(
            after(&[&[Passed(ms(200)), Passed(ms(210)), Passed(ms(220))]]),
            ms(840)
        );
        assert_eq!(
            after(&[&[Passed(ms(390)), Passed(ms(395)), Passed(ms(399))]]),
            ms(1500)
        );
    }

    #[test]
    fn a_majority_that_times_out_raises_it() {
        assert_eq!(
            after(&[&[Passed(ms(5)), TimedOut(ms(400)), TimedOut(ms(400))]]),
            ms(1500)
        );
    }

    #[test]
    fn a_hung_minority_does_not_raise_it() {
        assert_eq!(
            after(&[&[Passed(ms(5)), Passed(ms(6)), TimedOut(ms(400))]]),
            ms(400)
        );
    }

    #[test]
    fn where_waiting_would_not_have_helped_it_stays() {
        assert_eq!(after(&[&[Failed, Failed, TimedOut(ms(400))]]), ms(400));
        assert_eq!(after(&[&[]]), ms(400));
    }

    #[test]
    fn learners_do_not_count() {
        assert_eq!(
            after(&[&[Passed(ms(5)), Learner, Learner, Learner]]),
            ms(400)
        );
    }

    #[test]
    fn slowness_is_forgotten_over_several_rounds() {
        let quick: &[LatencySample] = &[Passed(ms(2))];
        let slow: &[LatencySample] = &[TimedOut(ms(400))];
        assert_eq!(after(&[slow, quick]), ms(1200));
        assert_eq!(after(&[slow, quick, quick, quick, quick, quick]), ms(400));
    }

    #[test]
    fn a_base_above_the_ceiling_is_kept() {
        let limit = TimeLimit::new(ms(2000));
        limit.learn(&[TimedOut(ms(2000))]);
        assert_eq!(limit.timeout(), ms(2000));
    }
}
