//! The TLS handshake of a connection, which is part of what the caller of its first request waits for.

use std::time::Duration;

use tokio::time::Instant;

/// A request that comes later is not the one that its connection was opened for: a caller may have found another one idle meanwhile, and keep this
/// one for whatever comes.
const AT_ONCE: Duration = Duration::from_millis(250);

/// The TLS handshake of a connection: an extension of its first request.
#[derive(Debug, Clone, Copy)]
pub struct Handshake {
    /// When the connection came out of the kernel's queue.
    pub arrived: Instant,
    /// When the handshake was done.
    pub done: Instant,
}

impl Handshake {
    /// Since when the caller of the first request waits, which began to be handled at `start`.
    pub fn asked(self, start: Instant) -> Instant {
        if start.saturating_duration_since(self.done) <= AT_ONCE {
            self.arrived
        } else {
            start
        }
    }
}
