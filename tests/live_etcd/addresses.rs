//! Loopback addresses for members. Each member has its own, so that all use etcd's usual ports.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

pub(crate) const CLIENT_PORT: u16 = 2379;
pub(crate) const PEER_PORT: u16 = 2380;

/// The first address. The range is 127.64.0.0 to 127.127.255.255.
const FIRST: u32 = 0x7f40_0000;
const COUNT: u32 = 0x0040_0000;

static TAKEN: AtomicU32 = AtomicU32::new(0);

/// An address at which neither port has a listener.
pub(crate) fn unused() -> Result<Ipv4Addr> {
    // Test binaries that run concurrently start at different addresses.
    let start = process::id().wrapping_mul(0x9e37);
    for _ in 0..1000 {
        let next = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let address = Ipv4Addr::from(FIRST + next % COUNT);
        let free = |port| TcpListener::bind((address, port)).is_ok();
        if address.octets()[3] != 0 && free(CLIENT_PORT) && free(PEER_PORT) {
            return Ok(address);
        }
    }
    bail!("no unused address below 127.0.0.0/8")
}
