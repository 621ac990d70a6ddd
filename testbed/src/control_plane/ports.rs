//! The ports of one control plane. They are chosen once and then kept, so that kubeconfigs stay
//! valid over restarts.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::free_ports::free_ports;

/// The ports of all listeners of the control plane, on 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The client port of etcd.
    pub etcd_client: u16,
    /// The peer port of etcd.
    pub etcd_peer: u16,
    /// The port of the Kubernetes API.
    pub api_server: u16,
    /// The port for health and metrics of kube-controller-manager.
    pub controller_manager: u16,
    /// The port for health and metrics of kube-scheduler.
    pub scheduler: u16,
}

impl Ports {
    /// The ports recorded in `file`. If there are none, free ports, which are then recorded.
    pub fn load_or_choose(file: &Path) -> Result<Self> {
        if let Some(ports) = Self::load(file) {
            return Ok(ports);
        }
        let ports = Self::choose()?;
        fs::write(file, serde_json::to_string_pretty(&ports)?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        Ok(ports)
    }

    /// The ports recorded in `file`, if there are any.
    pub fn load(file: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
    }

    fn choose() -> Result<Self> {
        let [
            etcd_client,
            etcd_peer,
            api_server,
            controller_manager,
            scheduler,
        ] = free_ports()?;
        Ok(Self {
            etcd_client: etcd_client.port(),
            etcd_peer: etcd_peer.port(),
            api_server: api_server.port(),
            controller_manager: controller_manager.port(),
            scheduler: scheduler.port(),
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
        assert_ne!(chosen.etcd_client, chosen.etcd_peer);
    }
}
