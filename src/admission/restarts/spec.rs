//! As much of a pod's spec as tells what an update of it restarts.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The spec of a pod.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Spec {
    /// The containers that run as long as the pod. There is always one.
    pub containers: Vec<Container>,
    /// Those that run before them, and the sidecars among them beside them.
    #[serde(default)]
    pub init_containers: Vec<Container>,
    /// After how many seconds the pod ends.
    pub active_deadline_seconds: Option<i64>,
    /// What all containers share.
    #[serde(default)]
    pub resources: Resources,
}

/// A container.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    /// Its name.
    pub name: String,
    /// Its image.
    pub image: String,
    /// `Always` makes a sidecar of an init container.
    pub restart_policy: Option<String>,
    /// What its end leads to.
    #[serde(default)]
    pub restart_policy_rules: Vec<RestartRule>,
    /// What it asks for and may have.
    #[serde(default)]
    pub resources: Resources,
    /// What a change of that leads to, by resource.
    #[serde(default)]
    pub resize_policy: Vec<ResizePolicy>,
}

/// What the end of a container leads to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct RestartRule {
    /// `Restart`, or `RestartAllContainers`.
    pub action: String,
}

/// What a change of a resource leads to.
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
    /// What is asked for.
    pub requests: BTreeMap<String, String>,
    /// What may be had at most.
    pub limits: BTreeMap<String, String>,
}
