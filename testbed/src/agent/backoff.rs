//! The pause before a container is restarted.
//!
//! The kubelet's rule: the first restart comes at once. The next one comes `base` after the
//! container ended, and each later pause is twice as long, up to `max`. A container that has run
//! for ten minutes since its last restart starts without history.

use std::time::{Duration, Instant};

/// The time of running after which the history is forgotten (the kubelet's 10 minutes).
const RESET_AFTER: Duration = Duration::from_secs(600);

/// The shortest and the longest pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// The pause before the second restart.
    pub base: Duration,
    /// The longest pause.
    pub max: Duration,
}

impl std::str::FromStr for Limits {
    type Err = String;

    /// Parses `BASE..MAX` in seconds, with fractions allowed: `1..300`.
    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = |part: &str| {
            part.trim_end_matches('s')
                .parse::<f64>()
                .ok()
                .and_then(|n| Duration::try_from_secs_f64(n).ok())
                .ok_or_else(|| format!("{part:?} is not a number of seconds"))
        };
        let (base, max) = text
            .split_once("..")
            .ok_or("expected BASE..MAX in seconds, as 1..300")?;
        let (base, max) = (seconds(base)?, seconds(max)?);
        if base.is_zero() || base > max {
            return Err("the base must be above 0 and not above the maximum".to_owned());
        }
        Ok(Self { base, max })
    }
}

/// The back-off of one container.
#[derive(Clone, Debug)]
pub(super) struct BackOff {
    limits: Limits,
    current: Option<Duration>,
    last_restart: Option<Instant>,
}

impl BackOff {
    /// A back-off without history.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            current: None,
            last_restart: None,
        }
    }

    /// The time at which a container that ended at `ended` may restart. `None` means at once.
    pub(super) fn until(&self, ended: Instant) -> Option<Instant> {
        if self.forgiven(ended) {
            None
        } else {
            self.current.map(|delay| ended + delay)
        }
    }

    /// The present pause.
    pub(super) fn delay(&self) -> Duration {
        self.current.unwrap_or_default()
    }

    /// Records that the container is restarted at `now` after it ended at `ended`.
    pub(super) fn restarted(&mut self, ended: Instant, now: Instant) {
        self.current = Some(match self.current {
            Some(delay) if !self.forgiven(ended) => (delay * 2).min(self.limits.max),
            _ => self.limits.base,
        });
        self.last_restart = Some(now);
    }

    fn forgiven(&self, ended: Instant) -> bool {
        self.last_restart
            .is_some_and(|at| ended.saturating_duration_since(at) > RESET_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        base: Duration::from_secs(1),
        max: Duration::from_secs(5),
    };

    #[test]
    fn the_first_restart_comes_at_once_then_delays_double_up_to_the_maximum() {
        let mut back_off = BackOff::new(LIMITS);
        let mut now = Instant::now();
        let mut delays = Vec::new();
        for _ in 0..6 {
            let wait = back_off
                .until(now)
                .map_or(Duration::ZERO, |until| until - now);
            delays.push(wait.as_secs());
            back_off.restarted(now, now + wait);
            now += wait;
        }
        assert_eq!(delays, [0, 1, 2, 4, 5, 5]);
    }

    #[test]
    fn ten_minutes_of_running_are_forgiven() {
        let mut back_off = BackOff::new(LIMITS);
        let start = Instant::now();
        back_off.restarted(start, start);
        back_off.restarted(start, start);
        let ended = start + RESET_AFTER + Duration::from_secs(1);
        assert_eq!(back_off.until(ended), None);
        back_off.restarted(ended, ended);
        assert_eq!(back_off.until(ended), Some(ended + LIMITS.base));
    }

    #[test]
    fn limits_are_read_from_the_command_line() {
        assert_eq!(
            "0.5..300".parse::<Limits>().unwrap().base,
            Duration::from_millis(500)
        );
        assert!("5..1".parse::<Limits>().is_err());
        assert!("0..1".parse::<Limits>().is_err());
        assert!("1".parse::<Limits>().is_err());
    }
}
