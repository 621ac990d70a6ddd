//! Whether connections are worth keeping.
//!
//! A caller that keeps an idle connection to a replica sends its next call there, whatever became of the replica: if it hangs or lost its node, that call
//! fails, however long ago everybody else learnt of it. And a replica that ends an idle connection itself may do so at the moment in which
//! a call arrives, which fails then. So each answer closes its connection, and the next call goes to whoever is in the Service. Only
//! when so many calls arrive that handshakes would cost more than calls, connections are kept. Each address is counted by itself: what a stranger
//! sends decides nothing about an API server's connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::peer::Peer;

/// How long calls are counted together.
const SLOT: Duration = Duration::from_secs(1);

/// Addresses that are counted at one time. More are not, and their connections are closed.
const MOST: usize = 1024;

/// Counts calls.
#[derive(Debug)]
pub(super) struct Traffic {
    keep_above: u32,
    of: Mutex<HashMap<Peer, Slots>>,
}

/// Where the calls of one connection are counted.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) traffic: Arc<Traffic>,
    /// Whom they come from.
    pub(super) peer: Peer,
}

impl Calls {
    /// Counts a call. Whether its connection is worth keeping.
    pub(super) fn keeps(&self) -> bool {
        self.traffic.keeps(self.peer)
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
            since: Instant::now(),
            now: 0,
            before: 0,
        }
    }

    /// Whether none of its calls counts any more.
    fn are_over(&self) -> bool {
        self.since.elapsed() >= 2 * SLOT
    }

    /// Counts a call. How many there were in this second, or in the one before.
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
    /// Connections of an address are kept while there are more calls from it than this in a second.
    pub(super) fn new(keep_above: u32) -> Self {
        Self {
            keep_above,
            of: Mutex::default(),
        }
    }

    fn keeps(&self, peer: Peer) -> bool {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if of.len() >= MOST && !of.contains_key(&peer) {
            of.retain(|_, slots| !slots.are_over());
            if of.len() >= MOST {
                return false;
            }
        }
        of.entry(peer).or_insert_with(Slots::new).count() > self.keep_above
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
        let keeps = || traffic.keeps(peer(1));
        for _ in 0..3 {
            assert!(!keeps(), "few call");
        }
        assert!(keeps());
        tokio::time::advance(SLOT).await;
        assert!(keeps(), "many called a moment ago");
        tokio::time::advance(SLOT).await;
        assert!(!keeps(), "it is quiet again");
        tokio::time::advance(10 * SLOT).await;
        assert!(!keeps());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_long_ago_keeps_nothing() {
        let traffic = Traffic::new(0);
        assert!(traffic.keeps(peer(1)));
        let traffic = Traffic::new(3);
        for _ in 0..9 {
            traffic.keeps(peer(1));
        }
        tokio::time::advance(2 * SLOT).await;
        assert!(!traffic.keeps(peer(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_addresses_are_counted_and_those_that_went_make_room() {
        let traffic = Traffic::new(1);
        let many = u32::try_from(MOST).unwrap();
        for _ in 0..2 {
            for last in 0..2 * many {
                traffic.keeps(peer(last));
            }
        }
        assert_eq!(traffic.of.lock().unwrap().len(), MOST);
        assert!(traffic.keeps(peer(1)));
        assert!(!traffic.keeps(peer(many)), "there was no room to count it");
        tokio::time::advance(2 * SLOT).await;
        assert!(!traffic.keeps(peer(many)));
        assert!(traffic.keeps(peer(many)));
        assert_eq!(traffic.of.lock().unwrap().len(), 1);
    }
}
