//! Pauses between attempts while the API server is away or refuses.
//!
//! Node authorization learns of a pod a moment after the agent does, and tests restart the API
//! server. So pauses begin with milliseconds and stay below a few seconds.

use std::time::Duration;

use kube::runtime::utils::Backoff;

const FIRST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);
/// The longest pause for things that a pod needs to start.
const LONGEST_FOR_START: Duration = Duration::from_millis(160);

/// Doubling pauses from 20 ms to 2 s.
#[derive(Clone, Debug)]
pub(super) struct Retry {
    next: Duration,
    longest: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            next: FIRST,
            longest: LONGEST,
        }
    }
}

impl Retry {
    /// Pauses that stay short, for things that a pod needs to start.
    pub(super) fn for_start() -> Self {
        Self {
            longest: LONGEST_FOR_START,
            ..Self::default()
        }
    }

    /// Waits for the next pause.
    pub(super) async fn wait(&mut self) {
        let delay = self.next().unwrap_or(LONGEST);
        tokio::time::sleep(delay).await;
    }
}

impl Iterator for Retry {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let delay = self.next;
        self.next = (delay * 2).min(self.longest);
        Some(delay)
    }
}

impl Backoff for Retry {
    fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_two_seconds_and_begin_anew() {
        let mut retry = Retry::default();
        let delays: Vec<_> = retry.by_ref().take(9).map(|d| d.as_millis()).collect();
        assert_eq!(delays, [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]);
        retry.reset();
        assert_eq!(retry.next(), Some(FIRST));
    }
}
