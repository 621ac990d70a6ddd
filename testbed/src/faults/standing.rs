//! Faults that the node agents make, in every incarnation of a pod until they are mended.

use anyhow::Result;

use crate::Sandbox;
use crate::agent::control::NodePods;
use crate::agent::faults::PodFaults;
use crate::etcd_cluster::INITIALISER;

/// A fault in force, which is mended when the value is dropped.
#[derive(Debug)]
#[must_use = "the fault is mended when this is dropped"]
pub struct Standing {
    nodes: Vec<NodePods>,
    namespace: String,
    pod: String,
    mend: fn(&mut PodFaults),
}

impl Standing {
    /// Mends the fault.
    pub fn mend(self) {
        drop(self);
    }

    /// Makes a fault on every node of the sandbox, since the pod may come back on any of them.
    fn new(
        sandbox: &Sandbox,
        pod: &str,
        make: fn(&mut PodFaults),
        mend: fn(&mut PodFaults),
    ) -> Result<Self> {
        let state = sandbox.bed().state();
        let nodes = sandbox
            .nodes()
            .iter()
            .map(|node| NodePods::new(state, node.name()));
        let namespace = sandbox.namespace().to_owned();
        let fault = Self {
            nodes: nodes.collect(),
            namespace,
            pod: pod.to_owned(),
            mend,
        };
        for node in &fault.nodes {
            node.change_faults(&fault.namespace, &fault.pod, make)?;
        }
        Ok(fault)
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        for node in &self.nodes {
            if let Err(error) = node.change_faults(&self.namespace, &self.pod, self.mend) {
                tracing::warn!("a fault of {} stays: {error}", self.pod);
            }
        }
    }
}

/// Kills the pod's containers, and ends them at every start, so that the pod goes into
/// `CrashLoopBackOff`.
pub fn crash_loop(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.crash = true,
        |faults| faults.crash = false,
    )
}

/// Keeps the containers of the pod's next incarnation from starting, so that it stays in
/// `ContainerCreating`.
pub fn hold_in_container_creating(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.hold = true,
        |faults| faults.hold = false,
    )
}

/// Rejects the pod when it is created next or when its node is back from a power loss, as a kubelet
/// without free CPUs does.
pub fn reject(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.reject = true,
        |faults| faults.reject = false,
    )
}

/// Stops a member that depends on initialisation, and makes its initialisation fail: its container
/// runs, and nothing listens.
pub fn fail_initialisation(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.crash_container = Some(INITIALISER.to_owned()),
        |faults| faults.crash_container = None,
    )
}

/// Makes the pod's readiness probes fail, while its member still serves.
pub fn fail_readiness(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.unready = true,
        |faults| faults.unready = false,
    )
}
