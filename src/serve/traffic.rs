//! Whether connections are worth keeping.
//!
//! A caller that keeps an idle connection to a replica sends its next call there, whatever became of the replica: if it hangs or lost its node, that call
//! fails, however long ago everybody else learnt of it. And a replica that ends an idle connection itself may do so at the moment in which
//! a call arrives, which fails then. So each answer closes its connection, and the next call goes to whoever is in the Service. Only
//! when so many calls arrive that handshakes would cost more than calls, connections are kept.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long calls are counted together.
const SLOT: Duration = Duration::from_secs(1);

/// Counts calls.
#[derive(Debug)]
pub(super) struct Traffic {
    keep_above: u32,
    slots: Mutex<Slots>,
}

#[derive(Debug)]
struct Slots {
    since: Instant,
    now: u32,
    before: u32,
}

impl Traffic {
    /// Connections are kept while there are more calls than this in a second.
    pub(super) fn new(keep_above: u32) -> Self {
        Self {
            keep_above,
            slots: Mutex::new(Slots {
                since: Instant::now(),
                now: 0,
                before: 0,
            }),
        }
    }

    /// Counts a call. Whether its connection is worth keeping.
    pub(super) fn keeps(&self) -> bool {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let age = slots.since.elapsed();
        if age >= SLOT {
            let before = if age < 2 * SLOT { slots.now } else { 0 };
            *slots = Slots {
                since: Instant::now(),
                now: 0,
                before,
            };
        }
        slots.now = slots.now.saturating_add(1);
        slots.now.max(slots.before) > self.keep_above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_are_kept_while_many_call_and_a_second_longer() {
        let traffic = Traffic::new(3);
        for _ in 0..3 {
            assert!(!traffic.keeps(), "few call");
        }
        assert!(traffic.keeps());
        tokio::time::advance(SLOT).await;
        assert!(traffic.keeps(), "many called a moment ago");
        tokio::time::advance(SLOT).await;
        assert!(!traffic.keeps(), "it is quiet again");
        tokio::time::advance(10 * SLOT).await;
        assert!(!traffic.keeps());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_long_ago_keeps_nothing() {
        let traffic = Traffic::new(0);
        assert!(traffic.keeps());
        let traffic = Traffic::new(3);
        for _ in 0..9 {
            traffic.keeps();
        }
        tokio::time::advance(2 * SLOT).await;
        assert!(!traffic.keeps());
    }
}
