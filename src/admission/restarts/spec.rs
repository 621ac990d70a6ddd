//! The part of a pod's spec that tells what an update restarts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    self as core, ContainerPort, EnvFromSource, EnvVar, PodSchedulingGate, PodSpec,
};
use serde::Deserialize;

use crate::admission::checked::null_is_default;

/// The spec of a pod.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    /// The main containers. A pod has at least one.
    pub containers: Vec<Container>,
    /// The containers that run before the main ones, or beside them (sidecars).
    #[serde(default)]
    pub init_containers: Vec<Container>,
    /// The seconds after which the pod ends.
    pub active_deadline_seconds: Option<i64>,
    /// The reasons why the pod is not scheduled yet.
    #[serde(default, deserialize_with = "null_is_default")]
    pub scheduling_gates: Vec<PodSchedulingGate>,
    /// The resources that all containers share.
    #[serde(default)]
    pub resources: Resources,
}

impl Spec {
    /// The containers with what tells which of them is etcd's.
    pub(super) fn outline(&self) -> PodSpec {
        let init = self.init_containers.iter().map(Container::outline);
        PodSpec {
            containers: self.containers.iter().map(Container::outline).collect(),
            init_containers: Some(init.collect()),
            ..PodSpec::default()
        }
    }
}

/// A container.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    /// The name.
    pub name: String,
    /// The image.
    pub image: String,
    /// `Always` makes a sidecar of an init container.
    pub restart_policy: Option<String>,
    /// The consequences of its end.
    #[serde(default)]
    pub restart_policy_rules: Vec<RestartRule>,
    /// The command.
    #[serde(default, deserialize_with = "null_is_default")]
    command: Vec<String>,
    /// The arguments of the command.
    #[serde(default, deserialize_with = "null_is_default")]
    args: Vec<String>,
    /// The environment variables.
    #[serde(default, deserialize_with = "null_is_default")]
    env: Vec<Variable>,
    /// The objects with more environment variables.
    #[serde(default, deserialize_with = "null_is_default")]
    env_from: Vec<EnvFromSource>,
    /// The ports.
    #[serde(default, deserialize_with = "null_is_default")]
    ports: Vec<Port>,
    /// The requested resources and their limits.
    #[serde(default)]
    pub resources: Resources,
    /// The consequences of a change of resources.
    #[serde(default)]
    pub resize_policy: Vec<ResizePolicy>,
}

impl Container {
    fn outline(&self) -> core::Container {
        let env = self.env.iter().map(|variable| EnvVar {
            name: variable.name.clone(),
            ..EnvVar::default()
        });
        let ports = self.ports.iter().map(|port| ContainerPort {
            name: port.name.clone(),
            container_port: port.container_port,
            ..ContainerPort::default()
        });
        core::Container {
            name: self.name.clone(),
            command: Some(self.command.clone()),
            args: Some(self.args.clone()),
            env: Some(env.collect()),
            env_from: Some(self.env_from.clone()),
            ports: Some(ports.collect()),
            restart_policy: self.restart_policy.clone(),
            ..core::Container::default()
        }
    }
}

/// An environment variable. Its value does not matter.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
}

/// A port of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    name: Option<String>,
    container_port: i32,
}

/// A consequence of the end of a container.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RestartRule {
    /// `Restart`, or `RestartAllContainers`.
    pub action: String,
}

/// The consequence of a change of one resource.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ResizePolicy {
    /// `cpu` or `memory`.
    pub resource_name: String,
    /// `NotRequired` or `RestartContainer`.
    pub restart_policy: String,
}

/// Amounts by resource.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources {
    /// The requests.
    pub requests: BTreeMap<String, String>,
    /// The limits.
    pub limits: BTreeMap<String, String>,
}
