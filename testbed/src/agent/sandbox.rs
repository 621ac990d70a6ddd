//! The sandbox of a pod, which exists before any container: a directory, an address and a group.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use nix::unistd::Uid;

use super::address;
use super::container::{self, Exit, Run};
use super::layout::{NodeDir, PodDir, replace};

/// The sandbox of one incarnation.
#[derive(Clone, Debug)]
pub(super) struct PodSandbox {
    /// The pod's directory.
    pub dir: PodDir,
    /// The pod's address.
    pub ip: Ipv4Addr,
    /// The group of the pod's processes. `None` if the agent is not root.
    pub gid: Option<u32>,
    /// Whether the sandbox is the pod's first or still the same. False if an earlier one went down
    /// with the node: then all containers start anew, with a new address.
    pub continued: bool,
}

/// Finds the sandbox that an earlier agent left, or makes one.
pub(super) fn prepare(dir: PodDir) -> io::Result<PodSandbox> {
    let found: Option<Ipv4Addr> = parsed(&dir.ip());
    let lost = went_down(&dir)?;
    if let Some(ip) = found
        && !lost
    {
        return Ok(PodSandbox {
            gid: parsed(&dir.gid()),
            dir,
            ip,
            continued: true,
        });
    }
    fs::create_dir_all(dir.path())?;
    let fresh = address::allocate()?;
    let gid = Uid::effective().is_root().then_some(fresh.gid);
    if let Some(gid) = gid {
        replace(&dir.gid(), gid.to_string().as_bytes())?;
    }
    replace(&dir.ip(), fresh.ip.to_string().as_bytes())?;
    Ok(PodSandbox {
        dir,
        ip: fresh.ip,
        gid,
        continued: !lost,
    })
}

/// The address of a node, kept over restarts of its agent.
pub(super) fn node_ip(node: &NodeDir) -> io::Result<Ipv4Addr> {
    if let Some(ip) = parsed(&node.ip()) {
        return Ok(ip);
    }
    let ip = address::allocate()?.ip;
    replace(&node.ip(), ip.to_string().as_bytes())?;
    Ok(ip)
}

/// Whether a container was running when its node lost power. Both the container and the process
/// that would have recorded its end are gone then.
fn went_down(dir: &PodDir) -> io::Result<bool> {
    for container in dir.containers()? {
        let Some(run) = container::read::<Run>(&container.run())? else {
            continue;
        };
        let ended = container::read::<Exit>(&container.exit())?.is_some_and(|e| e.id == run.id);
        if !ended && !run.init.is_running() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn parsed<T: std::str::FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}
