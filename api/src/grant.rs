//! Open grants in the status of a budget. The ledger reads and writes them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The open grants of one member. The member counts as not serving until every cause has settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantStatus {
    /// Name of the member's pod.
    pub member: String,
    /// Why the member may be disrupted: at most one entry per kind.
    pub causes: Vec<CauseStatus>,
    /// Fields of a newer version. A ledger with any is neither used nor written, so they are never
    /// lost.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// A reason for which the member may be disrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CauseStatus {
    /// The kind of disruption: Delete (also by eviction), Defragment or Replace (of its volume).
    #[schemars(extend("enum" = ["Delete", "Defragment", "Replace"]))]
    pub kind: String,
    /// Delete: UID of the pod that may be deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Delete: whether a rollout of the gate asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<bool>,
    /// Defragment: the replica of the gate that runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Defragment: the longest time it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    /// Sequence number of the latest permission. Every permission gets a higher one, also a
    /// repeated one.
    pub seq: i64,
    /// User that was last given the permission.
    pub by: String,
    /// Time of that permission by the clock of the replica that gave it, for information only.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
    /// See [`GrantStatus::unknown`].
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// The values of [`CauseStatus::kind`].
pub mod cause_kind {
    /// The pod with the recorded UID may be deleted or evicted.
    pub const DELETE: &str = "Delete";
    /// The member may be defragmented.
    pub const DEFRAGMENT: &str = "Defragment";
    /// The volume of the member may be replaced.
    pub const REPLACE: &str = "Replace";
}
