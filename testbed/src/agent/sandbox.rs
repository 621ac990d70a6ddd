//! The sandbox of a pod, which exists before any container: a directory, an address and a group.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
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
    /// The pod's first address.
    pub ip: IpAddr,
    /// The group of the pod's processes. `None` if the agent is not root.
    pub gid: Option<u32>,
    /// Whether the sandbox is the pod's first or still the same. False if an earlier one went down
    /// with the node: then all containers start anew, with a new address.
    pub continued: bool,
}

/// Finds the sandbox that an earlier agent left, or makes one. `is_six`: whether the first address
/// is one of IPv6.
pub(super) fn prepare(dir: PodDir, is_six: bool) -> io::Result<PodSandbox> {
    let found: Option<IpAddr> = parsed(&dir.ip());
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
    let ip = if is_six {
        address::six(fresh.ip).into()
    } else {
        fresh.ip.into()
    };
    address::assign(ip)?;
    if let Some(found) = found {
        give_back(found);
    }
    replace(&dir.ip(), ip.to_string().as_bytes())?;
    Ok(PodSandbox {
        dir,
        ip,
        gid,
        continued: !lost,
    })
}

/// Ends the use of the address of a pod that is about to go.
pub(super) fn release(dir: &PodDir) {
    if let Some(found) = parsed(&dir.ip()) {
        give_back(found);
    }
}

fn give_back(address: IpAddr) {
    if let Err(error) = address::release(address) {
        tracing::warn!(%address, %error, "address");
    }
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
