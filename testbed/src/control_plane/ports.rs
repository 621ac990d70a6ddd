//! The ports of one control plane, chosen once and then kept, so that kubeconfigs stay valid over restarts.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

/// Below the range from which the kernel takes the ports of outgoing connections (32768 and up), so that none of those
/// sits on a port while its process is restarted.
const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;

/// A port for each listener of the control plane, all on 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// etcd's client port.
    pub etcd_client: u16,
    /// etcd's peer port.
    pub etcd_peer: u16,
    /// The Kubernetes API.
    pub api_server: u16,
    /// kube-controller-manager's health and metrics.
    pub controller_manager: u16,
    /// kube-scheduler's health and metrics.
    pub scheduler: u16,
}

impl Ports {
    /// The ports recorded in `file`, or free ones, then recorded there.
    pub fn load_or_choose(file: &Path) -> Result<Self> {
        if let Some(ports) = Self::load(file) {
            return Ok(ports);
        }
        let ports = Self::choose()?;
        fs::write(file, serde_json::to_string_pretty(&ports)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(ports)
    }

    /// The ports recorded in `file`, if they are.
    pub fn load(file: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
    }

    fn choose() -> Result<Self> {
        // The listeners are held until all ports are chosen: none is chosen twice.
        let mut held = Vec::new();
        // Between the choice and the components' listening others choose too: they should begin to look elsewhere.
        let anywhere = RandomState::new().build_hasher().finish() % u64::from(LAST - FIRST);
        let start = FIRST + u16::try_from(anywhere)?;
        let mut candidates = (start..=LAST).chain(FIRST..start);
        let mut next = || -> Result<u16> {
            for port in candidates.by_ref() {
                if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                    held.push(listener);
                    return Ok(port);
                }
            }
            bail!("no free port between {FIRST} and {LAST}")
        };
        Ok(Self {
            etcd_client: next()?,
            etcd_peer: next()?,
            api_server: next()?,
            controller_manager: next()?,
            scheduler: next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_kept_once_chosen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ports.json");
        let chosen = Ports::load_or_choose(&file).unwrap();
        assert_eq!(Ports::load_or_choose(&file).unwrap(), chosen);
        assert!((FIRST..=LAST).contains(&chosen.api_server));
        assert_ne!(chosen.etcd_client, chosen.etcd_peer);
    }
}
