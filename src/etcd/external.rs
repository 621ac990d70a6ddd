//! Connections to members without a pod (external members), at the client URLs that etcd lists.
//!
//! Any process that runs as a member can put any URL into the list, and the gate would connect to
//! it from its own network. So addresses that mean something only on the gate's own host, such as
//! loopback and the metadata services of cloud machines, are never connected to, whatever name
//! resolves to them. Such a connection may also hang for a whole round. Therefore only [`AT_ONCE`]
//! are opened at one time, and they cannot use up the files and threads that other calls need.
//! Established connections do not count.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure;
use crate::quorum::evidence::Unanswered;

/// Most connections that are being opened at one time.
const AT_ONCE: usize = 32;

/// Most addresses of one name that are tried.
const ADDRESSES: usize = 4;

/// Opens connections to external members. Clones share the limit.
#[derive(Debug, Clone)]
pub(super) struct ExternalDialer {
    places: Arc<Semaphore>,
    is_off_limits: fn(IpAddr) -> bool,
}

/// A connection that is being opened.
pub(super) struct Outbound {
    pub(super) stream: TcpStream,
    /// The permit, held until the connection is established.
    pub(super) place: OwnedSemaphorePermit,
}

impl ExternalDialer {
    pub(super) fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            is_off_limits: |address| is_off_limits(address) || is_own(address),
        }
    }

    /// Connects to `host:port`. Has no time limit of its own.
    pub(super) async fn connect(&self, address: &str) -> Result<Outbound, Unanswered> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| Unanswered::NotAsked)?;
        let (found, place) = resolve(address.to_owned(), place)
            .await
            .map_err(|error| Unanswered::from(failure::from_io(&error)))?;
        let allowed = found.iter().filter(|at| !(self.is_off_limits)(at.ip()));
        let allowed: Vec<SocketAddr> = allowed.copied().take(ADDRESSES).collect();
        if allowed.is_empty() {
            let text = format!("its client URL leads to {address:?}, where no member can be");
            return Err(Unanswered::Other(text));
        }
        let stream = TcpStream::connect(&*allowed).await;
        let stream = stream.map_err(|error| Unanswered::from(failure::from_io(&error)))?;
        Ok(Outbound { stream, place })
    }
}

/// Resolves a name in a blocking thread. The thread holds the permit until it is done, also when
/// the caller has stopped waiting.
async fn resolve(
    address: String,
    place: OwnedSemaphorePermit,
) -> io::Result<(Vec<SocketAddr>, OwnedSemaphorePermit)> {
    let resolving = tokio::task::spawn_blocking(move || {
        let found = address.to_socket_addrs();
        found.map(|found| (found.collect(), place))
    });
    resolving.await.map_err(io::Error::other)?
}

/// The addresses at which clouds tell a host its secrets that are no link-local ones: Azure,
/// Alibaba Cloud, Oracle Cloud, and AWS by IPv6.
const OF_CLOUDS: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// Whether an address means a different host to each host, none at all, or a cloud's metadata. A
/// member cannot be reached by the other members at such an address.
fn is_off_limits(address: IpAddr) -> bool {
    let address = address.to_canonical();
    if OF_CLOUDS.contains(&address) {
        return true;
    }
    match address {
        IpAddr::V4(v4) => {
            let is_this_network = matches!(v4.octets(), [0, ..]);
            is_this_network
                || v4.is_loopback()
                || v4.is_link_local()
                || v4.is_multicast()
                || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
                || translated(v6).is_some_and(|v4| is_off_limits(v4.into()))
        }
    }
}

/// The IPv4 address that NAT64 (`64:ff9b::/96`) would translate this address to.
fn translated(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some((u32::from(high) << 16 | u32::from(low)).into())
        }
        _ => None,
    }
}

/// Whether an address belongs to this host or to the network of its container: the kernel would
/// send to it from the same address. Connecting a UDP socket tells, and sends nothing.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip().to_canonical() == address.to_canonical())
}

#[cfg(test)]
mod tests;
