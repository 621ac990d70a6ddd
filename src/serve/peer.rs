//! The address of a caller.

use std::net::IpAddr;

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
