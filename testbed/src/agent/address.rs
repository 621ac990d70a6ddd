//! Addresses of pods and nodes, each of which is used once.
//!
//! Pods have no network namespace. The whole of 127.0.0.0/8 is local, so every incarnation of a pod
//! can listen at an address of its own. Addresses come from 127.64.0.0/10 in sequence. The counter
//! is a file with a lock, which all agents of this machine share, whatever control plane they
//! belong to. After four million addresses it starts again. The counter also gives the group id of
//! the pod's processes.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::Ipv4Addr;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;

/// The first address of the range, 127.64.0.0.
const BASE: u32 = 0x7f40_0000;
/// The number of addresses in a /10.
const SIZE: u32 = 1 << 22;
/// The first group id. Group ids stay below 65536, because a nested user namespace usually maps no
/// more.
const FIRST_GID: u32 = 20_000;
const GIDS: u32 = 40_000;

/// The address and the group id of one incarnation of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The address in 127.64.0.0/10.
    pub ip: Ipv4Addr,
    /// The group id of its processes, if the agent is root.
    pub gid: u32,
}

/// Takes the next address.
pub(super) fn allocate() -> io::Result<Address> {
    // Each user has a counter, since no user may write into another's files.
    let shared = std::env::temp_dir().join(format!("quorumgate-testbed-{}", Uid::effective()));
    fs::create_dir_all(&shared)?;
    allocate_from(&shared.join("pod-addresses"))
}

/// Takes the next address from this counter.
fn allocate_from(counter: &Path) -> io::Result<Address> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(counter)?;
    let mut file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let next = after(text.trim().parse().unwrap_or(0));
    file.rewind()?;
    file.set_len(0)?;
    write!(file, "{next}")?;
    Ok(address(next))
}

/// The next value whose address is neither the first nor the last of a /24, which people read as
/// network and broadcast addresses.
fn after(count: u32) -> u32 {
    let mut next = (count + 1) % SIZE;
    while matches!(next & 0xff, 0 | 0xff) {
        next = (next + 1) % SIZE;
    }
    next
}

fn address(count: u32) -> Address {
    Address {
        ip: Ipv4Addr::from(BASE + count),
        gid: FIRST_GID + count % GIDS,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_allocation_is_new_and_in_range() {
        let dir = tempfile::tempdir().unwrap();
        let counter = dir.path().join("counter");
        let ips: HashSet<_> = (0..600)
            .map(|_| allocate_from(&counter).unwrap().ip)
            .collect();
        assert_eq!(ips.len(), 600);
        assert!(
            ips.iter()
                .all(|ip| ip.octets()[0] == 127 && (64..128).contains(&ip.octets()[1]))
        );
        assert!(ips.iter().all(|ip| !matches!(ip.octets()[3], 0 | 255)));
    }

    #[test]
    fn agents_that_allocate_at_once_never_share_an_address() {
        let dir = tempfile::tempdir().unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let counter = dir.path().join("counter");
                std::thread::spawn(move || {
                    (0..50)
                        .map(|_| allocate_from(&counter).unwrap().ip)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let ips: Vec<_> = threads
            .into_iter()
            .flat_map(|t| t.join().unwrap())
            .collect();
        assert_eq!(ips.iter().collect::<HashSet<_>>().len(), ips.len());
    }

    #[test]
    fn the_range_wraps_around() {
        assert_eq!(after(SIZE - 2), 1);
    }
}
