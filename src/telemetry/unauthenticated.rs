//! A limit for log lines that any caller can cause without authentication, such as failed
//! handshakes and rejected requests.
//!
//! The queue of the log is bounded, and lines that do not fit are lost, whatever they say. The
//! limit (a token bucket) leaves room for verdicts and overrides. Lines over the limit are counted,
//! and the next line that is written is preceded by that number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::monotonic_now;

/// The size of the bucket: lines that may be written at once.
const AT_ONCE: u32 = 32;

/// The time after which one more line may be written.
const ONE_MORE: Duration = Duration::from_secs(1);

/// The limit of this process, which has one log.
pub static UNAUTHENTICATED: LineLimit = LineLimit::new();

/// A token bucket for log lines.
#[derive(Debug)]
pub struct LineLimit {
    share: Mutex<Share>,
    left_out: AtomicU64,
}

#[derive(Debug)]
struct Share {
    lines: u32,
    /// When the bucket last got a token, or was last full.
    since: Option<Instant>,
    /// Lines left out since the last one that was written.
    left_out: u64,
}

impl LineLimit {
    /// A full bucket.
    const fn new() -> Self {
        let share = Share {
            lines: AT_ONCE,
            since: None,
            left_out: 0,
        };
        Self {
            share: Mutex::new(share),
            left_out: AtomicU64::new(0),
        }
    }

    /// Writes the line if the limit allows it, after a line with the number of those left out since
    /// the last.
    pub fn log(&self, line: impl FnOnce()) {
        let Some(left_out) = self.take(monotonic_now()) else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if left_out > 0 {
            tracing::warn!(
                lines = left_out,
                "log of failed handshakes and rejected requests is incomplete: too many came"
            );
        }
        line();
    }

    /// The number of lines left out since the process began.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Takes a token. Returns the number of lines left out since the last one, or `None` without a
    /// token.
    fn take(&self, now: Instant) -> Option<u64> {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        share.grow(now);
        if let Some(lines) = share.lines.checked_sub(1) {
            share.lines = lines;
            Some(std::mem::take(&mut share.left_out))
        } else {
            share.left_out = share.left_out.saturating_add(1);
            None
        }
    }
}

impl Share {
    fn grow(&mut self, now: Instant) {
        let since = *self.since.get_or_insert(now);
        let passed = now.saturating_duration_since(since);
        let more = u32::try_from(passed.as_secs() / ONE_MORE.as_secs()).unwrap_or(u32::MAX);
        self.lines = self.lines.saturating_add(more).min(AT_ONCE);
        self.since = if self.lines == AT_ONCE {
            Some(now)
        } else {
            since.checked_add(ONE_MORE.saturating_mul(more))
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(limit: &LineLimit, now: Instant, times: u32) -> Vec<u64> {
        let lines = (0..times).filter_map(|_| limit.take(now));
        lines.collect()
    }

    #[tokio::test]
    async fn a_crowd_of_strangers_writes_so_many_lines_and_one_more_each_second() {
        let (limit, start) = (LineLimit::new(), Instant::now());
        let all = usize::try_from(AT_ONCE).unwrap();
        assert_eq!(taken(&limit, start, 10_000), vec![0; all]);
        let later = start + Duration::from_millis(1_900);
        let left_out = 10_000 - u64::from(AT_ONCE);
        assert_eq!(taken(&limit, later, 5), [left_out], "and says so");
        let later = start + Duration::from_millis(2_100);
        assert_eq!(taken(&limit, later, 5), [4]);
        let much_later = start + Duration::from_secs(3600);
        assert_eq!(taken(&limit, much_later, 10_000).len(), all);
    }

    #[test]
    fn what_is_left_out_is_counted_and_its_number_told_with_the_next_line() {
        let (limit, mut written) = (LineLimit::new(), 0);
        for _ in 0..AT_ONCE + 7 {
            limit.log(|| written += 1);
        }
        assert!(written >= AT_ONCE);
        assert_eq!(limit.left_out(), u64::from(AT_ONCE + 7 - written));
    }
}
