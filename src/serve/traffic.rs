//! Whether a connection is kept open after an answer.
//!
//! A caller that keeps an idle connection to a replica sends its next call there. If the replica
//! hangs or lost its node meanwhile, that call fails, although the Service no longer names the
//! replica. And a replica that closes an idle connection may do so just when a call arrives, which
//! fails too. So each answer closes its connection, and the next call goes to a replica that the
//! Service names. Connections are kept only when so many calls arrive that handshakes would cost
//! more than the calls themselves. Each address is counted by itself, so that calls of others do
//! not decide about the connections of an API server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::peer::Peer;

use crate::clock::monotonic_now;

/// The period over which calls are counted.
const SLOT: Duration = Duration::from_secs(1);

/// Most addresses that are counted at one time. Connections of further addresses are not kept open.
const MOST: usize = 1024;

/// The calls of each address in the last two periods.
#[derive(Debug)]
pub(super) struct Traffic {
    keep_above: u32,
    slots: Mutex<HashMap<Peer, Slots>>,
}

/// The counter of calls for one connection.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) traffic: Arc<Traffic>,
    /// The address of the caller.
    pub(super) peer: Peer,
}

impl Calls {
    /// Counts a call, and returns whether its connection is kept open.
    pub(super) fn keep_open(&self) -> bool {
        self.traffic.keep_open(self.peer)
    }
}

#[derive(Debug)]
struct Slots {
    since: Instant,
    now: u32,
    before: u32,
}

impl Slots {
    fn new() -> Self {
        Self {
            since: monotonic_now(),
            now: 0,
            before: 0,
        }
    }

    /// Whether the counted calls are too old to matter.
    fn are_stale(&self) -> bool {
        self.since.elapsed() >= 2 * SLOT
    }

    /// Counts a call. Returns the calls in this period or in the one before, whichever is more.
    fn count(&mut self) -> u32 {
        let elapsed = self.since.elapsed();
        if elapsed >= SLOT {
            let before = if elapsed < 2 * SLOT { self.now } else { 0 };
            *self = Self {
                before,
                ..Self::new()
            };
        }
        self.now = self.now.saturating_add(1);
        self.now.max(self.before)
    }
}

impl Traffic {
    /// A counter that keeps the connections of an address open while more than `keep_above` calls a
    /// second come from it.
    pub(super) fn new(keep_above: u32) -> Self {
        Self {
            keep_above,
            slots: Mutex::default(),
        }
    }

    fn keep_open(&self, peer: Peer) -> bool {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if slots.len() >= MOST && !slots.contains_key(&peer) {
            slots.retain(|_, slots| !slots.are_stale());
            if slots.len() >= MOST {
                return false;
            }
        }
        slots.entry(peer).or_insert_with(Slots::new).count() > self.keep_above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u32) -> Peer {
        Peer::at(std::net::Ipv4Addr::from(last).into())
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_kept_while_many_call_and_a_second_longer() {
        let traffic = Traffic::new(3);
        let keep_open = || traffic.keep_open(peer(1));
        for _ in 0..3 {
            assert!(!keep_open(), "few call");
        }
        assert!(keep_open());
        tokio::time::advance(SLOT).await;
        assert!(keep_open(), "many called a moment ago");
        tokio::time::advance(SLOT).await;
        assert!(!keep_open(), "it is quiet again");
        tokio::time::advance(10 * SLOT).await;
        assert!(!keep_open());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_long_ago_keeps_nothing() {
        let traffic = Traffic::new(0);
        assert!(traffic.keep_open(peer(1)));
        let traffic = Traffic::new(3);
        for _ in 0..9 {
            traffic.keep_open(peer(1));
        }
        tokio::time::advance(2 * SLOT).await;
        assert!(!traffic.keep_open(peer(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_addresses_are_counted_and_those_that_went_make_room() {
        let traffic = Traffic::new(1);
        let many = u32::try_from(MOST).unwrap();
        for _ in 0..2 {
            for last in 0..2 * many {
                traffic.keep_open(peer(last));
            }
        }
        assert_eq!(traffic.slots.lock().unwrap().len(), MOST);
        assert!(traffic.keep_open(peer(1)));
        assert!(
            !traffic.keep_open(peer(many)),
            "there was no room to count it"
        );
        tokio::time::advance(2 * SLOT).await;
        assert!(!traffic.keep_open(peer(many)));
        assert!(traffic.keep_open(peer(many)));
        assert_eq!(traffic.slots.lock().unwrap().len(), 1);
    }
}
