//! The progress of a rollout in the status of a budget.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rollout under way, or the last one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Revision that the pods are updated to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Pods that have the revision, of those that have to get it.
    #[serde(default)]
    pub updated: i32,
    /// Pods that have to get the revision: all, or those from the partition upwards.
    #[serde(default)]
    pub targets: i32,
    /// Time at which the rollout began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub start_time: Option<Time>,
    /// Time at which the rollout ended. Absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub completion_time: Option<Time>,
    /// Whether the rollout has replaced a member that served. Absent until then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub took_serving: bool,
    /// Reason why the rollout waits. Absent while it acts and when it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WaitingStatus")]
    pub waiting_on: Option<WaitingStatus>,
    /// The latest step of the rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StepStatus")]
    pub last_step: Option<StepStatus>,
}

/// Reason why a rollout waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitingStatus {
    /// Reason as one word, for programs.
    pub reason: String,
    /// Reason as a sentence, for people.
    pub message: String,
    /// Time since which the rollout has waited for this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub start_time: Option<Time>,
}

/// A step of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepStatus {
    /// Name of the pod that the step replaced.
    pub pod: String,
    /// Kind of the step: `Delete`, `Evict` or `MoveLeader`.
    pub action: String,
    /// Why it was this pod's turn.
    pub because: String,
    /// Time of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub time: Option<Time>,
}
