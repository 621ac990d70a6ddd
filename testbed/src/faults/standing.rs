//! Faults that the node agents carry out, on every incarnation of a pod until they are mended.

use anyhow::Result;

use crate::Sandbox;
use crate::agent::control::NodePods;
use crate::agent::faults::PodFaults;
use crate::etcd_cluster::INITIALISER;

/// A fault in force; it is mended when this is dropped.
#[derive(Debug)]
#[must_use = "the fault is mended when this is dropped"]
pub struct Standing {
    nodes: Vec<NodePods>,
    namespace: String,
    pod: String,
    mend: fn(&mut PodFaults),
}

impl Standing {
    /// Mends it.
    pub fn mend(self) {
        drop(self);
    }

    /// Puts a fault into force on every node of the sandbox: a pod may come back on any of them.
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

/// The pod's containers are killed, and end as soon as they start again: it goes into `CrashLoopBackOff`.
pub fn crash_loop(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.crash = true,
        |faults| faults.crash = false,
    )
}

/// The pod's containers are not started when it is next created: it stays in `ContainerCreating`.
pub fn hold_in_container_creating(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.hold = true,
        |faults| faults.hold = false,
    )
}

/// The pod is rejected when it is next created, or when its node comes back after a loss of power, as by a kubelet whose CPUs are taken.
pub fn reject(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.reject = true,
        |faults| faults.reject = false,
    )
}

/// A member whose etcd waits for its data to be initialised stops, and is not initialised again: its container runs, and nothing listens.
pub fn fail_initialisation(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.crash_container = Some(INITIALISER.to_owned()),
        |faults| faults.crash_container = None,
    )
}

/// The pod's readiness probes fail, while its member goes on to serve.
pub fn fail_readiness(sandbox: &Sandbox, pod: &str) -> Result<Standing> {
    Standing::new(
        sandbox,
        pod,
        |faults| faults.unready = true,
        |faults| faults.unready = false,
    )
}
