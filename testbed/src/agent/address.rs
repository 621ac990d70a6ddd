//! Addresses of pods and nodes, each of which is used once.
//!
//! Pods have no network namespace. The whole of 127.0.0.0/8 is local, so every incarnation of a pod
//! can listen at an address of its own. Addresses come from 127.64.0.0/10 in sequence. The counter
//! is a file with a lock, which all agents of this machine share, whatever control plane they
//! belong to. After four million addresses it starts again. The counter also gives the group id of
//! the pod's processes.
//!
//! A pod of IPv6 has an address whose last bits are those of its IPv4 address. Of IPv6 no prefix is
//! local, so the loopback device gets the address while the pod is there.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::Uid;

/// The first address of the range, 127.64.0.0.
const BASE: u32 = 0x7f40_0000;
/// The number of addresses in a /10.
const SIZE: u32 = 1 << 22;
/// The prefix of addresses of IPv6.
const SIX: Ipv6Addr = Ipv6Addr::new(0xfd7f, 0x7e57, 0, 0, 0, 0, 0, 0);
/// The life of an address of IPv6 in seconds, after which the kernel takes it away: an agent that
/// is killed releases none. No test takes so long.
const LONGEST: &str = "7200";
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

/// The address of IPv6 that belongs to one of IPv4.
pub(super) fn six(four: Ipv4Addr) -> Ipv6Addr {
    Ipv6Addr::from_bits(SIX.to_bits() | u128::from(four.to_bits()))
}

/// All addresses of a pod, the first one given.
pub(super) fn all(first: IpAddr) -> Vec<IpAddr> {
    let last = match first {
        IpAddr::V4(_) => return vec![first],
        IpAddr::V6(six) => six.to_bits() & u128::from(u32::MAX),
    };
    let four = u32::try_from(last).map(Ipv4Addr::from);
    std::iter::once(first)
        .chain(four.ok().map(IpAddr::from))
        .collect()
}

/// Gives an address of IPv6 to the loopback device, which takes root. Any other is local anyway.
pub(super) fn assign(address: IpAddr) -> io::Result<()> {
    let lives = ["valid_lft", LONGEST, "preferred_lft", LONGEST];
    on_loopback("replace", address, &lives)
}

/// Takes away what [`assign`] gave.
pub(super) fn release(address: IpAddr) -> io::Result<()> {
    on_loopback("delete", address, &[])
}

fn on_loopback(verb: &str, address: IpAddr, more: &[&str]) -> io::Result<()> {
    if address.is_ipv4() {
        return Ok(());
    }
    // PATH may lack sbin.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let one = format!("{address}/128");
    let ran = Command::new("ip")
        .args(["-6", "address", verb, &one, "dev", "lo"])
        .args(more)
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()?;
    let why = || io::Error::other(String::from_utf8_lossy(&ran.stderr).into_owned());
    ran.status.success().then_some(()).ok_or_else(why)
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
    fn a_pod_of_both_families_has_one_address_of_each() {
        let four = Ipv4Addr::new(127, 64, 0, 9);
        let six = IpAddr::from(six(four));
        assert_eq!(six.to_string(), "fd7f:7e57::7f40:9");
        assert_eq!(all(six), [six, four.into()]);
        assert_eq!(all(four.into()), [IpAddr::from(four)]);
    }

    #[test]
    fn the_range_wraps_around() {
        assert_eq!(after(SIZE - 2), 1);
    }
}
