//! Ports of 127.0.0.1 for processes that keep their ports over restarts. Ports from the kernel come
//! from the range of outgoing connections, and such a connection may take a port before its use or
//! during a restart.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};

/// The first port, below the range of outgoing connections (by default 32768 and up).
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// The number of ports that this process has tried, with a random start, since other processes
/// choose concurrently.
static TRIED: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(RandomState::new().build_hasher().finish()));

/// `N` different addresses without a listener, which this process has not given out recently.
pub(crate) fn free_ports<const N: usize>() -> Result<[SocketAddr; N]> {
    let found = (0..COUNT).filter_map(|_| next_if_free().transpose());
    let found: Vec<_> = found.take(N).collect::<Result<_>>()?;
    found.try_into().ok().with_context(|| {
        let last = FIRST + COUNT - 1;
        format!("fewer than {N} free ports between {FIRST} and {last}")
    })
}

fn next_if_free() -> Result<Option<SocketAddr>> {
    let offset = TRIED.fetch_add(1, Ordering::Relaxed) % u64::from(COUNT);
    let port = FIRST + u16::try_from(offset)?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpListener::bind(address) {
        Ok(_) => Ok(Some(address)),
        Err(error) if error.kind() == ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot listen on {address}")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn a_port_is_not_given_out_twice_before_it_is_used() {
        let choosers: Vec<_> = (0..8)
            .map(|_| thread::spawn(|| [(); 25].map(|()| free_ports::<25>().unwrap())))
            .collect();
        let given: HashSet<_> = choosers
            .into_iter()
            .flat_map(|chooser| chooser.join().unwrap().concat())
            .collect();
        assert_eq!(given.len(), 8 * 25 * 25);
    }

    #[test]
    fn no_outgoing_connection_can_take_one() {
        let ephemeral = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap();
        let lowest: u16 = ephemeral
            .split_whitespace()
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(
            FIRST + COUNT <= lowest,
            "net.ipv4.ip_local_port_range begins at {lowest}, among these ports"
        );
    }
}
