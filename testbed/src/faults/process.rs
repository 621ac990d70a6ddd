//! Faults of a member's process.

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;

use super::PodFaults;
use crate::process::Identity;

/// A member whose processes hang, until the value is dropped.
#[derive(Debug)]
#[must_use = "the member goes on when this is dropped"]
pub struct Frozen {
    processes: Vec<Identity>,
}

impl Frozen {
    /// Continues the member.
    pub fn thaw(self) {
        drop(self);
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        for process in &self.processes {
            // A process that was killed meanwhile cannot be continued.
            let _ = process.signal(Signal::SIGCONT);
        }
    }
}

impl PodFaults {
    /// The pod's running etcd processes.
    pub fn etcd(&self) -> Result<Vec<Identity>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").context("cannot list processes")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            if self.owns_etcd(pid) {
                found.extend(Identity::read(pid));
            }
        }
        Ok(found)
    }

    /// Sends SIGSTOP: etcd hangs with its connections open, and the node reports it as running.
    pub fn freeze(&self) -> Result<Frozen> {
        let processes = self.running_etcd()?;
        let frozen = Frozen { processes };
        for process in &frozen.processes {
            process.signal(Signal::SIGSTOP)?;
        }
        Ok(frozen)
    }

    /// Sends SIGKILL once. The node starts etcd again.
    pub fn kill(&self) -> Result<()> {
        for process in self.running_etcd()? {
            process.signal(Signal::SIGKILL)?;
        }
        Ok(())
    }

    /// The pod's running etcd processes.
    ///
    /// # Errors
    ///
    /// Fails if there are none, since a fault without a target proves nothing.
    pub(super) fn running_etcd(&self) -> Result<Vec<Identity>> {
        let processes = self.etcd()?;
        ensure!(
            !processes.is_empty(),
            "no etcd runs in pod {} (group {})",
            self.name,
            self.group
        );
        Ok(processes)
    }

    fn owns_etcd(&self, pid: u32) -> bool {
        // A process that has just ended does not belong to the pod any more.
        let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else {
            return false;
        };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let is_etcd = field("Name:").is_some_and(|name| name.trim() == "etcd");
        let mut groups = field("Gid:").unwrap_or_default().split_whitespace();
        is_etcd && groups.next().and_then(|group| group.parse().ok()) == Some(self.group)
    }
}
