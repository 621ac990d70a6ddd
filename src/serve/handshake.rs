//! The time of the TLS handshake, which the caller of the first request has already waited for.

use std::time::Duration;

use tokio::time::Instant;

/// The longest pause between the handshake and the first request for which the handshake counts as
/// part of the request. After a longer pause the caller opened the connection for another request:
/// an HTTP client that finds an idle connection meanwhile keeps the new one for later use.
const AT_ONCE: Duration = Duration::from_millis(250);

/// When the TLS handshake of a connection took place. It is an extension of the connection's first
/// request.
#[derive(Debug, Clone, Copy)]
pub struct Handshake {
    /// When the connection was accepted.
    pub arrived: Instant,
    /// When the handshake was done.
    pub done: Instant,
}

impl Handshake {
    /// The time since which the caller of the first request has waited. `start` is when the
    /// handling of that request began.
    pub fn asked(self, start: Instant) -> Instant {
        if start.saturating_duration_since(self.done) <= AT_ONCE {
            self.arrived
        } else {
            start
        }
    }
}
