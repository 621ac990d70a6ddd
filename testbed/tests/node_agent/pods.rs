//! Shared parts of the tests: a sandbox with nodes, pods made of shell scripts, and checks of them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use quorumgate_testbed::agent::control::NodePods;
use quorumgate_testbed::{Bed, Sandbox, eventually};
use serde_json::{Value, json};

/// A time limit that is far more than an idle machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A sandbox with this many nodes.
pub(crate) async fn sandbox(name: &str, nodes: usize) -> Result<Sandbox> {
    let mut sandbox = Bed::up().await?.sandbox(name).await?;
    sandbox.add_nodes(nodes).await?;
    Ok(sandbox)
}

/// A container that runs a shell script.
pub(crate) fn shell(script: &str) -> Value {
    json!({"name": "main", "image": "busybox", "command": ["sh", "-c", script]})
}

/// A script that runs until it is asked to end, and then ends at once.
pub(crate) const SERVE: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// The pods of a sandbox.
pub(crate) struct Pods<'a> {
    pub(crate) sandbox: &'a Sandbox,
    pub(crate) api: Api<Pod>,
}

impl<'a> Pods<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox) -> Self {
        Self {
            sandbox,
            api: sandbox.api(),
        }
    }

    /// Creates a pod. `spec` needs containers only.
    pub(crate) async fn create(&self, name: &str, mut spec: Value) -> Result<Pod> {
        let fields = spec.as_object_mut().context("a spec is an object")?;
        let defaults = [
            ("nodeSelector", json!(self.sandbox.node_selector())),
            ("terminationGracePeriodSeconds", json!(5)),
        ];
        for (key, value) in defaults {
            fields.entry(key).or_insert(value);
        }
        let pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": spec,
        }))?;
        Ok(self.api.create(&PostParams::default(), &pod).await?)
    }

    /// Creates a pod and waits until it is ready.
    pub(crate) async fn ready(&self, name: &str, spec: Value) -> Result<Pod> {
        self.create(name, spec).await?;
        self.wait(name, "is ready", |pod| condition(pod, "Ready") == "True")
            .await
    }

    pub(crate) async fn delete(&self, name: &str, params: &DeleteParams) -> Result<()> {
        self.api.delete(name, params).await?;
        Ok(())
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Pod> {
        Ok(self.api.get(name).await?)
    }

    /// Waits until `look` holds for the pod.
    pub(crate) async fn wait(
        &self,
        name: &str,
        what: &str,
        look: impl Fn(&Pod) -> bool,
    ) -> Result<Pod> {
        eventually(PATIENCE, format!("pod {name} {what}"), async || {
            let pod = self.api.get(name).await?;
            ensure!(
                look(&pod),
                "its status is {}",
                serde_json::to_string(&pod.status)?
            );
            anyhow::Ok(pod)
        })
        .await
    }

    /// Waits until the pod object with this UID is gone.
    pub(crate) async fn gone(&self, pod: &Pod) -> Result<()> {
        let (name, uid) = (pod.name_any(), pod.uid());
        eventually(PATIENCE, format!("pod {name} is gone"), async || {
            let found = self.api.get_opt(&name).await?;
            ensure!(found.is_none_or(|p| p.uid() != uid), "it is there");
            anyhow::Ok(())
        })
        .await
    }

    /// The pods of this pod's node, seen from outside the agent.
    pub(crate) fn on_node_of(&self, pod: &Pod) -> Result<NodePods> {
        let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
        Ok(NodePods::new(
            self.sandbox.bed().state(),
            node.context("not bound")?,
        ))
    }

    /// The pid of the process of the pod's container `main`.
    pub(crate) fn pid(&self, pod: &Pod) -> Result<i32> {
        let running = self
            .on_node_of(pod)?
            .running(self.sandbox.namespace(), &pod.name_any())?;
        let found = running.into_iter().find(|(name, _)| name == "main");
        Ok(found.context("its container does not run")?.1.process.pid())
    }

    /// The output of the pod's containers.
    pub(crate) fn log(&self, pod: &Pod) -> Result<String> {
        let logs = self
            .on_node_of(pod)?
            .logs(self.sandbox.namespace(), &pod.name_any())?;
        let texts: std::io::Result<Vec<_>> = logs.iter().map(std::fs::read_to_string).collect();
        Ok(texts?.concat())
    }

    /// A file of the pod's directory on its node.
    pub(crate) fn file(&self, pod: &Pod, path: &str) -> Result<PathBuf> {
        let dir = self.on_node_of(pod)?.dir().pod(
            self.sandbox.namespace(),
            &pod.name_any(),
            &pod.uid().unwrap_or_default(),
        );
        Ok(dir.path().join(path))
    }
}

/// The status of a condition. Empty if the condition is missing.
pub(crate) fn condition(pod: &Pod, kind: &str) -> String {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    let found = conditions.into_iter().find(|c| c.type_ == kind);
    found.map(|c| c.status.clone()).unwrap_or_default()
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .unwrap_or_default()
}

pub(crate) fn ip(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}

/// The status of the container `main`.
pub(crate) fn main_status(pod: &Pod) -> ContainerStatus {
    let statuses = pod
        .status
        .iter()
        .flat_map(|s| s.container_statuses.iter().flatten());
    statuses
        .into_iter()
        .find(|s| s.name == "main")
        .cloned()
        .unwrap_or_default()
}

pub(crate) fn waiting_reason(pod: &Pod) -> String {
    let state = main_status(pod).state.and_then(|s| s.waiting);
    state.and_then(|w| w.reason).unwrap_or_default()
}

pub(crate) fn is_running(pid: i32) -> bool {
    u32::try_from(pid)
        .ok()
        .and_then(quorumgate_testbed::process::Identity::read)
        .is_some()
}
