//! Operations on processes beyond [`Identity`]: signals to process groups, waiting without polling,
//! and the removal of leftovers.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::process::Identity;

/// Signals the process group of `leader`. A group that is gone is no error.
///
/// A group may outlive its leader. Then its other processes get the signal, unless another process
/// has the pid by now.
pub(super) fn signal_group(leader: Identity, signal: Signal) -> io::Result<()> {
    let pid = leader.pid();
    let reused = u32::try_from(pid)
        .ok()
        .and_then(Identity::read)
        .is_some_and(|now| now != leader);
    if reused {
        return Ok(());
    }
    match killpg(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until a process has ended, without polling. The process need not be a child.
pub(super) async fn ended(process: Identity) -> io::Result<()> {
    let Some(pid) = rustix::process::Pid::from_raw(process.pid()) else {
        return Ok(());
    };
    let handle = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        handle => watched(handle?)?,
    };
    // The pid may have been reused before the handle was opened.
    if process.is_running() {
        let _ended = handle.readable().await?;
    }
    Ok(())
}

#[expect(
    deprecated,
    reason = "deprecated for types that do not own their descriptor; this one does"
)]
fn watched(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(handle, Interest::READABLE)
}

/// Kills every process with this group id, which a pod's containers may have left outside their
/// process groups. Returns their number.
pub(super) fn kill_all_of_group_id(gid: u32) -> io::Result<usize> {
    let mut killed = 0;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else {
            continue;
        };
        let runs_with = status
            .lines()
            .find_map(|line| line.strip_prefix("Gid:"))
            .and_then(|ids| ids.split_whitespace().next()?.parse::<u32>().ok());
        if runs_with == Some(gid) && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
            killed += 1;
        }
    }
    Ok(killed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn the_end_of_a_process_is_noticed() {
        let mut child = std::process::Command::new("sleep")
            .arg("0.05")
            .spawn()
            .unwrap();
        let process = Identity::read(child.id()).unwrap();
        tokio::time::timeout(Duration::from_secs(5), ended(process))
            .await
            .unwrap()
            .unwrap();
        assert!(!process.is_running());
        // The check above may have reaped the process already.
        let _ = child.wait();
    }
}
