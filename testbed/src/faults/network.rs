//! Faults of a member's network.
//!
//! Pods have addresses of their own, but no network namespace. Packets to a pod are known by its
//! address, packets from it by the group of its processes.

use anyhow::Result;

use super::PodFaults;
use super::firewall::{Cut, lose, part, refuse};

/// Drops all packets to and from this TCP port of the machine. So the end of the process does not
/// close its connections, as if the whole machine had gone.
pub(crate) fn silence(port: u16) -> Result<Cut> {
    Cut::with_rules(&["dport", "sport"].map(|end| lose(&format!("tcp {end} {port}"))))
}

/// The members' ports for clients and for peers.
const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;

impl PodFaults {
    /// Cuts the member off from its peers in both directions. Clients and probes still reach it.
    pub fn partition(&self) -> Result<Cut> {
        let (group, address) = (self.group, self.address);
        let from_it = part(&format!("meta skgid {group} tcp dport {PEERS}"));
        let to_it = part(&format!("ip daddr {address} tcp dport {PEERS}"));
        let answers = refuse(&format!("ip saddr {address} tcp sport {PEERS}"));
        Cut::with_rules(&[from_it.as_slice(), to_it.as_slice(), &[answers]].concat())
    }

    /// Refuses all clients, as if the member did not listen. Peers still reach it.
    pub fn refuse_clients(&self) -> Result<Cut> {
        let address = self.address;
        Cut::with_rules(&[refuse(&format!("ip daddr {address} tcp dport {CLIENTS}"))])
    }

    /// Drops all packets from clients, so that each waits for its timeout. Peers still reach the
    /// member.
    pub fn ignore_clients(&self) -> Result<Cut> {
        let address = self.address;
        Cut::with_rules(&[lose(&format!("ip daddr {address} tcp dport {CLIENTS}"))])
    }
}
