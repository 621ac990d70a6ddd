//! How far a rollout is, as a budget shows it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rollout that is under way, or the last one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// The revision that pods are moved to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Pods of that revision, of those that are to have it.
    #[serde(default)]
    pub updated: i32,
    /// Pods that are to have it.
    #[serde(default)]
    pub targets: i32,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started: Option<Time>,
    /// When it ended; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub finished: Option<Time>,
    /// What it waits for; absent while it acts and when it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WaitingStatus")]
    pub waiting_on: Option<WaitingStatus>,
    /// Its latest step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StepStatus")]
    pub last_step: Option<StepStatus>,
}

/// What a rollout waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingStatus {
    /// A word for machines.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub since: Option<Time>,
}

/// A step of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// The pod that it took.
    pub pod: String,
    /// How.
    pub action: String,
    /// Why it was this one's turn.
    pub because: String,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub at: Option<Time>,
}
