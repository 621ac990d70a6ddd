//! Faults of one member, each of which ends when its guard is dropped.
//!
//! [`PodFaults`] act on the processes and the network of the pod that exists when
//! [`PodFaults::find`] is called. The next incarnation is unaffected. A [`Standing`] fault is made
//! by the node agents, and affects every incarnation. Faults of whole nodes are made with
//! [`Node`](crate::Node).

mod data;
mod firewall;
mod held;
mod network;
mod process;
mod standing;

use std::net::IpAddr;
use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};

use crate::Sandbox;
use crate::paths::State;

pub use data::{Altered, copy_data, lose_data, swap_data};
pub use firewall::Cut;
pub use held::Held;
pub(crate) use network::silence;
pub use process::Frozen;
pub use standing::{
    Standing, crash_loop, fail_initialisation, fail_readiness, hold_in_container_creating, reject,
};

/// The faults of one incarnation of a member's pod.
#[derive(Clone, Debug)]
pub struct PodFaults {
    name: String,
    address: IpAddr,
    group: u32,
}

impl PodFaults {
    /// The present incarnation of the pod, on whatever node it runs.
    ///
    /// # Errors
    ///
    /// Fails if the pod has no node or address yet, or if its node agent does not know it.
    pub async fn find(sandbox: &Sandbox, pod: &str) -> Result<Self> {
        let found: Pod = Api::namespaced(sandbox.client(), sandbox.namespace())
            .get(pod)
            .await?;
        Self::of_pod(sandbox.bed().state(), &found)
    }

    /// The incarnation that was read before. Errors are those of [`PodFaults::find`].
    pub fn of_pod(state: &State, pod: &Pod) -> Result<Self> {
        let name = pod.name_any();
        let namespace = pod.namespace().unwrap_or_default();
        let uid = pod.uid().context("a pod without UID")?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        let node = node.with_context(|| format!("pod {name} has no node"))?;
        let address = pod
            .status
            .as_ref()
            .and_then(|status| status.pod_ip.as_ref());
        let address = address
            .with_context(|| format!("pod {name} has no address"))?
            .parse()?;
        let directory = state
            .node(&node)
            .join("pods")
            .join(format!("{namespace}_{name}_{uid}"));
        let group = group(&directory.join("gid"))?;
        Ok(Self {
            name,
            address,
            group,
        })
    }
}

/// The group of all processes of the pod, which no other process has.
fn group(file: &Path) -> Result<u32> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("the node agent knows no group: {}", file.display()))?;
    text.trim()
        .parse()
        .with_context(|| format!("{} holds no number", file.display()))
}
