//! A node: a Node object, and the agent process that stands for its kubelet.
//!
//! The contract between the agent (`testbed agent --node NAME --state DIR`) and this module:
//!
//! - The agent's directory is `<state>/nodes/NAME`. This module writes `kubelet.pid` and
//!   `kubelet.log` there, the agent writes everything else.
//! - The agent signs in with [`State::node_kubeconfig`].
//! - The Node object with its labels exists before the agent starts. The agent keeps its status and
//!   its Lease.
//! - SIGTERM ends the agent only. The pods go on, as with a kubelet, and a new agent finds them
//!   again.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Client;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::json;

use crate::bed::Bed;
use crate::eventually::eventually;
use crate::paths::State;
use crate::process::{self, Background};

/// The label with the namespace of a node's sandbox. The `nodeSelector` of the sandbox's pods asks
/// for it too.
pub const NAMESPACE_LABEL: &str = "testbed.quorumgate.io/namespace";

/// The time limit until a node is Ready. It is far more than an idle machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

/// A handle for one node.
#[derive(Clone)]
pub struct Node {
    name: String,
    bed: Bed,
    images: Vec<Image>,
}

/// The name of an image, and the directory of binaries that stands for it.
pub(crate) type Image = (String, PathBuf);

impl Node {
    /// Creates the Node object for a sandbox and starts the agent. Does not wait until the node is
    /// Ready.
    pub(crate) async fn create(
        bed: &Bed,
        namespace: &str,
        name: &str,
        images: &[Image],
    ) -> Result<Self> {
        let object: NodeObject = serde_json::from_value(json!({
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    NAMESPACE_LABEL: namespace,
                    // Each sandbox has a zone of its own, so that the loss of its nodes is no zone
                    // outage for other tests.
                    "topology.kubernetes.io/zone": namespace,
                    "topology.kubernetes.io/region": "testbed",
                },
            },
        }))?;
        let node = Self {
            name: name.to_owned(),
            bed: bed.clone(),
            images: images.to_vec(),
        };
        node.api()
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("cannot create node {name}"))?;
        bed.kubeconfig_as(&format!("system:node:{name}"), &["system:nodes"])?;
        node.start().await?;
        Ok(node)
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The node's agent.
    pub fn agent(&self) -> Background {
        agent(self.bed.state(), &self.name)
    }

    /// The Node object.
    pub async fn object(&self) -> Result<NodeObject> {
        Ok(self.api().get(&self.name).await?)
    }

    /// Starts the agent, unless it runs.
    pub async fn start(&self) -> Result<()> {
        let agent = self.agent();
        if agent.running().is_none() {
            let executable = self.bed.executable().await?;
            let mut command = agent_command(executable, self.bed.state(), &self.name);
            for (name, directory) in &self.images {
                command.arg(format!("--image={name}={}", directory.display()));
            }
            agent.spawn(command)?;
        }
        Ok(())
    }

    /// Ends the agent only, as if the kubelet had died: the Lease expires, and the pods' processes
    /// go on.
    pub async fn stop_agent(&self) -> Result<()> {
        self.agent().stop(Duration::from_secs(5)).await
    }

    /// Kills the agent and all processes of the node at once, as in a power loss.
    pub async fn power_off(&self) -> Result<()> {
        process::kill_all_below(&self.bed.state().node(&self.name))
            .await
            .map(drop)
    }

    /// Freezes the agent: the Lease expires, and the pods' processes go on. [`thaw`](Self::thaw)
    /// continues the agent.
    pub fn freeze(&self) -> Result<()> {
        self.agent().freeze()
    }

    /// Undoes [`freeze`](Self::freeze).
    pub fn thaw(&self) -> Result<()> {
        self.agent().thaw()
    }

    /// Waits until the Ready condition is `status` (`True`, `False` or `Unknown`).
    pub async fn wait_ready(&self, status: &str) -> Result<()> {
        self.wait_ready_within(PATIENCE, status).await
    }

    /// Waits until the Ready condition is `status`, for at most `within`.
    pub async fn wait_ready_within(&self, within: Duration, status: &str) -> Result<()> {
        let what = format!("node {} has Ready={status}", self.name);
        eventually(within, what, async || {
            let found = ready_condition(&self.object().await?);
            anyhow::ensure!(found.as_deref() == Some(status), "it has {found:?}");
            anyhow::Ok(())
        })
        .await
        .with_context(|| format!("agent of {}{}", self.name, self.agent().last_words()))
    }

    /// Deletes the Node object. The processes on the node go on.
    pub async fn delete_object(&self) -> Result<()> {
        delete_object(&self.bed.client(), &self.name).await
    }

    fn api(&self) -> Api<NodeObject> {
        Api::all(self.bed.client())
    }
}

/// The agent of a node.
pub(crate) fn agent(state: &State, name: &str) -> Background {
    let directory = state.node(name);
    Background::new("kubelet", &directory, &directory)
}

/// The command that runs a node's agent.
fn agent_command(executable: &std::path::Path, state: &State, name: &str) -> Command {
    let mut agent = Command::new(executable);
    agent
        .args(["agent", "--node", name, "--state"])
        .arg(state.root());
    agent
}

/// The status of the Ready condition.
pub fn ready_condition(node: &NodeObject) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .map(|condition| condition.status.clone())
}

pub(crate) async fn delete_object(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    match nodes.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => other
            .map(drop)
            .with_context(|| format!("cannot delete node {name}")),
    }
}
