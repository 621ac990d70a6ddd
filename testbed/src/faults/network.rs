//! Faults of a member's network.
//!
//! Pods have addresses of their own, but no network namespace: what arrives at a pod is told by its address, what
//! it sends by the group of its processes.

use anyhow::Result;

use super::PodFaults;
use super::firewall::{Cut, lose, part, refuse};

/// Nothing that is sent to this TCP port of the machine arrives, nor what is sent from there: the end of a process is no end of its connections
/// then, as where the machine went with it.
pub(crate) fn silence(port: u16) -> Result<Cut> {
    Cut::with_rules(&["dport", "sport"].map(|end| lose(&format!("tcp {end} {port}"))))
}

/// Ports of a member.
const CLIENTS: u16 = 2379;
const PEERS: u16 = 2380;

impl PodFaults {
    /// Cuts the member from its peers, both ways. Clients reach it as before, and so do probes.
    pub fn partition(&self) -> Result<Cut> {
        let (group, address) = (self.group, self.address);
        let from_it = part(&format!("meta skgid {group} tcp dport {PEERS}"));
        let to_it = part(&format!("ip daddr {address} tcp dport {PEERS}"));
        let answers = refuse(&format!("ip saddr {address} tcp sport {PEERS}"));
        Cut::with_rules(&[from_it.as_slice(), to_it.as_slice(), &[answers]].concat())
    }

    /// Refuses all clients, as if nobody listened. Peers reach it as before.
    pub fn refuse_clients(&self) -> Result<Cut> {
        let address = self.address;
        Cut::with_rules(&[refuse(&format!("ip daddr {address} tcp dport {CLIENTS}"))])
    }

    /// Loses whatever clients send, so that each of them waits for its timeout. Peers reach it as before.
    pub fn ignore_clients(&self) -> Result<Cut> {
        let address = self.address;
        Cut::with_rules(&[lose(&format!("ip daddr {address} tcp dport {CLIENTS}"))])
    }
}
