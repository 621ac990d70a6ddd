//! What a connection tells its requests: the address of the caller, and the time of the TLS
//! handshake, which the caller of the first request has already waited for.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// The longest pause between the handshake and the first request for which the handshake counts as
/// part of the request. After a longer pause the caller opened the connection for another request:
/// an HTTP client that finds an idle connection meanwhile keeps the new one for later use.
const AT_ONCE: Duration = Duration::from_millis(250);

/// The IP address that a connection comes from, an extension of each of its requests. An IPv4
/// address that is mapped into IPv6 equals the plain one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// The peer at `address`.
    pub fn at(address: IpAddr) -> Self {
        Self(address.to_canonical())
    }
}

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
