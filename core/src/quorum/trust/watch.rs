//! The events that one replica has seen of a ledger, by its own clock.

use std::time::Duration;

/// The times of the events that one replica has seen of one ledger.
///
/// Moments are times on the replica's monotonic clock, since any fixed moment. They are never
/// compared with those of another replica. A replica that has just started has seen nothing, so it
/// waits longer, and never shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrustWatch {
    epoch: i64,
    since: Duration,
    /// The last moment at which a disruption may have passed without a grant.
    ungranted: Option<Duration>,
    /// Whether the namespace is not under the gate.
    outside: bool,
}

impl TrustWatch {
    /// The watch of a replica that sees a ledger in its epoch `epoch` for the first time.
    pub fn new(epoch: i64, now: Duration) -> Self {
        Self {
            epoch,
            since: now,
            ungranted: None,
            outside: false,
        }
    }

    /// Notes the epoch of the ledger, as it was just read. A new epoch is watched from its start.
    pub fn note_epoch(&mut self, epoch: i64, now: Duration) {
        if epoch != self.epoch {
            (self.epoch, self.since) = (epoch, now);
        }
    }

    /// Notes that a disruption may pass without a grant at this moment.
    pub fn note_ungranted(&mut self, now: Duration) {
        self.ungranted = Some(now);
    }

    /// Notes whether the namespace is under the gate. An outage that ends counts until this moment.
    pub fn note_namespace(&mut self, gated: bool, now: Duration) {
        if !gated || self.outside {
            self.ungranted = Some(now);
        }
        self.outside = !gated;
    }

    /// Whether the namespace is not under the gate.
    pub(super) fn is_outside(&self) -> bool {
        self.outside
    }

    /// The time that is left of `settle_time`, which has to pass in this epoch since the replica
    /// began to watch, unless the epoch is `watched` already, and since the last disruption
    /// without a grant.
    pub(super) fn remaining(
        &self,
        epoch: i64,
        watched: bool,
        settle_time: Duration,
        now: Duration,
    ) -> Duration {
        let since = if epoch == self.epoch { self.since } else { now };
        let since = if watched { None } else { Some(since) };
        let last = since.max(self.ungranted);
        last.map_or(Duration::ZERO, |at| {
            settle_time.saturating_sub(now.saturating_sub(at))
        })
    }
}
