//! Open permissions as they are written down. [`crate::ledger`] reads and writes them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Why one member may be on its way out. It does not count as serving until every cause has settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantStatus {
    /// The member, by the name of its pod.
    pub member: String,
    /// Why, one entry per kind.
    pub causes: Vec<CauseStatus>,
    /// What another version of the gate wrote and this one does not know. Never dropped: a ledger with any is not used.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// One reason for which a member was permitted to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CauseStatus {
    /// What was permitted: Delete, Defragment or Replace.
    #[schemars(extend("enum" = ["Delete", "Defragment", "Replace"]))]
    pub kind: String,
    /// Delete: the incarnation that may go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Delete: whether a rollout asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<bool>,
    /// Defragment: the replica of the gate that does it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Defragment: the longest it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<i64>,
    /// The sequence number of the latest yes; it rises with every one.
    pub seq: i64,
    /// Who was told yes last.
    pub by: String,
    /// When, by the clock of the replica that said it. Nothing is decided by it.
    pub at: String,
    /// See [`GrantStatus::unknown`].
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// The values of [`CauseStatus::kind`].
pub mod cause_kind {
    /// This incarnation may be deleted or evicted.
    pub const DELETE: &str = "Delete";
    /// The member may be defragmented.
    pub const DEFRAGMENT: &str = "Defragment";
    /// The member's volume may be replaced.
    pub const REPLACE: &str = "Replace";
}
