//! Connections to members without a pod, at the client URLs that etcd lists.
//!
//! Whoever runs as a member may list any URL, and has the gate connect to it from where the gate stands: so what is only for the gate's own host,
//! the services of a cloud's machines above all, is never connected to, whatever name leads there. And such a connection may hang for as long as
//! its round takes: only so many are made at one time, so that they cost neither the files nor the threads that others need. Those that
//! stand are kept, and take no place.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure;
use crate::quorum::evidence::Unanswered;

/// So many are connected to at one time.
const AT_ONCE: usize = 32;

/// Of the addresses of one name, so many are tried.
const ADDRESSES: usize = 4;

/// The way to members without a pod. Clones are the same way.
#[derive(Debug, Clone)]
pub(super) struct Elsewhere {
    places: Arc<Semaphore>,
    is_off_limits: fn(IpAddr) -> bool,
}

/// A connection that is being made.
pub(super) struct Outbound {
    pub(super) stream: TcpStream,
    /// Held until it stands.
    pub(super) place: OwnedSemaphorePermit,
}

impl Elsewhere {
    pub(super) fn new() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            is_off_limits: |address| is_off_limits(address) || is_own(address),
        }
    }

    /// Connects to `host:port`. The caller bounds the time.
    pub(super) async fn connect(&self, address: &str) -> Result<Outbound, Unanswered> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|_| Unanswered::NotAsked)?;
        let (found, place) = resolve(address.to_owned(), place)
            .await
            .map_err(|error| failure::of_io(&error))?;
        let allowed = found.iter().filter(|at| !(self.is_off_limits)(at.ip()));
        let allowed: Vec<SocketAddr> = allowed.copied().take(ADDRESSES).collect();
        if allowed.is_empty() {
            let text = format!("its client URL leads to {address:?}, where no member can be");
            return Err(Unanswered::Other(text));
        }
        let stream = TcpStream::connect(&*allowed).await;
        let stream = stream.map_err(|error| failure::of_io(&error))?;
        Ok(Outbound { stream, place })
    }
}

/// The addresses of a host, by a thread that holds the place for as long as it takes, also where nobody waits for it any more.
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

/// Whether an address means another host to everybody, or none: no member of a cluster can be reached there by its others.
fn is_off_limits(address: IpAddr) -> bool {
    match address.to_canonical() {
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

/// The address that a translator between the two (`64:ff9b::/96`) would send to.
fn translated(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some((u32::from(high) << 16 | u32::from(low)).into())
        }
        _ => None,
    }
}

/// Whether it is an address of this host, or of the container's network: from there the kernel sends to it. Nothing is sent to find out.
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
