//! The part of a pod's spec that tells what an update restarts.

use std::collections::BTreeMap;

use serde::Deserialize;

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
    /// The resources that all containers share.
    #[serde(default)]
    pub resources: Resources,
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
    /// The requested resources and their limits.
    #[serde(default)]
    pub resources: Resources,
    /// The consequences of a change of resources.
    #[serde(default)]
    pub resize_policy: Vec<ResizePolicy>,
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
