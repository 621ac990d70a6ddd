//! How long a round of probes may take: short while the cluster answers quickly, longer by itself while it is slow.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The timeout of a healthy cluster, unless its owner chose another.
const BASE: Duration = Duration::from_millis(400);

/// However slow a cluster is, a round ends: whoever waits for a verdict has a deadline of seconds.
const CEILING: Duration = Duration::from_millis(1500);

/// A read within a quarter of the timeout is ordinary; slower ones raise it to four times what they took.
const ROOM: u32 = 4;

/// The probe timeout of one cluster, with what it remembers of its latency. Keep one per cluster.
#[derive(Debug)]
pub struct Pace {
    base: Duration,
    lately: Mutex<Duration>,
}

/// What one endpoint says about the latency of its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// Its read passed, so long after the round began.
    Passed(Duration),
    /// It was still silent when the round ended, so long after it began.
    TimedOut(Duration),
    /// It answered that it cannot, or nobody could ask: more time would have changed nothing.
    Hopeless,
    /// A learner: nothing waits for it.
    Learner,
}

impl Default for Pace {
    fn default() -> Self {
        Self::new(BASE)
    }
}

impl Pace {
    /// `base`: the timeout while reads are quick (400 ms by default). It is never undercut, even where it exceeds the 1.5 s
    /// that a slow cluster gets otherwise.
    pub fn new(base: Duration) -> Self {
        Self {
            base,
            lately: Mutex::new(Duration::ZERO),
        }
    }

    /// How long the next round may take.
    pub fn timeout(&self) -> Duration {
        let lately = *self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        timeout(self.base, lately)
    }

    pub(super) fn learn(&self, efforts: &[Effort]) {
        let mut lately = self.lately.lock().unwrap_or_else(PoisonError::into_inner);
        *lately = remember(*lately, majority_latency(efforts));
    }
}

fn timeout(base: Duration, lately: Duration) -> Duration {
    (lately * ROOM).min(CEILING).max(base)
}

/// Slowness is believed at once and forgotten slowly.
fn remember(lately: Duration, sample: Option<Duration>) -> Duration {
    sample.unwrap_or_default().max(lately * 3 / 4)
}

/// After what time a majority had passed its reads. A hung or a dead minority does not slow down a cluster, so it must not
/// slow down its rounds either. `None` where no amount of waiting would have brought a majority.
fn majority_latency(efforts: &[Effort]) -> Option<Duration> {
    let voters = efforts
        .iter()
        .filter(|effort| **effort != Effort::Learner)
        .count();
    let mut times: Vec<Duration> = efforts
        .iter()
        .filter_map(|effort| match effort {
            Effort::Passed(time) | Effort::TimedOut(time) => Some(*time),
            Effort::Hopeless | Effort::Learner => None,
        })
        .collect();
    times.sort_unstable();
    times.get(voters / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::Effort::{Hopeless, Learner, Passed, TimedOut};
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn after(rounds: &[&[Effort]]) -> Duration {
        let pace = Pace::default();
        for efforts in rounds {
            pace.learn(efforts);
        }
        pace.timeout()
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
        assert_eq!(after(&[&[Hopeless, Hopeless, TimedOut(ms(400))]]), ms(400));
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
        let quick: &[Effort] = &[Passed(ms(2))];
        let slow: &[Effort] = &[TimedOut(ms(400))];
        assert_eq!(after(&[slow, quick]), ms(1200));
        assert_eq!(after(&[slow, quick, quick, quick, quick, quick]), ms(400));
    }

    #[test]
    fn a_base_above_the_ceiling_is_kept() {
        let pace = Pace::new(ms(2000));
        pace.learn(&[TimedOut(ms(2000))]);
        assert_eq!(pace.timeout(), ms(2000));
    }
}
