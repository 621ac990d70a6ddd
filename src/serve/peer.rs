//! Whom a connection comes from.

use std::net::IpAddr;

/// The address that a connection comes from: an extension of each of its requests. An IPv4 address is the same however it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// Somebody at this address.
    pub fn at(address: IpAddr) -> Self {
        Self(address.to_canonical())
    }
}
