//! Facts about the StatefulSet that a budget remembers, because the budget outlives it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::quorum::stateful_set::scale_in_lets_go;

/// The StatefulSet, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetStatus {
    /// UID of the StatefulSet.
    pub uid: String,
    /// The object that controls the StatefulSet. Absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OwnerStatus")]
    pub owner: Option<OwnerStatus>,
}

/// The owner of the StatefulSet, as in its owner reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerStatus {
    /// API group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A scale-out of the StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleOutStatus {
    /// Replicas after the scale-out.
    pub to: i32,
    /// Whether spec.policy.scaleOutGrace has passed since the scale-out, by the clock of one
    /// replica.
    #[serde(default)]
    pub settled: bool,
}

/// The latest move of leadership that the gate made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderMoveStatus {
    /// Member id of the old leader, hexadecimal.
    pub from: String,
    /// Member id of the intended new leader, hexadecimal.
    pub to: String,
    /// Raft term in which the old leader led; 0 where it is not known.
    pub term: i64,
}

/// Deletes and scale-ins of the StatefulSet that the gate has allowed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDeletes {
    /// StatefulSets whose delete was allowed, the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stateful_sets: Vec<RecordedDelete>,
    /// The last scale-in that was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RecordedScaleIn")]
    pub scale_in: Option<RecordedScaleIn>,
    /// Fields of a newer version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// A StatefulSet whose delete was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDelete {
    /// UID of the StatefulSet.
    pub uid: String,
    /// User that asked for the delete.
    pub by: String,
    /// Time of the permission, by the clock of the replica that gave it.
    pub at: String,
}

/// A scale-in that was allowed. Its pods may go: those with an index of at least `to` and below
/// `from`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedScaleIn {
    /// UID of the StatefulSet.
    #[serde(rename = "statefulSetUID")]
    pub stateful_set_uid: String,
    /// Replicas before the scale-in.
    pub from: i32,
    /// Replicas after the scale-in.
    pub to: i32,
    /// User that asked for the scale-in.
    pub by: String,
    /// Time of the permission, by the clock of the replica that gave it.
    pub at: String,
}

impl RecordedScaleIn {
    /// Whether a pod may go because of this scale-in: the pod at `index` (counted from the
    /// StatefulSet's first ordinal) of the StatefulSet with this UID, whose `spec.replicas` is now
    /// `replicas`.
    pub fn lets_go(&self, stateful_set_uid: &str, index: u32, replicas: u32) -> bool {
        let (Ok(to), Ok(from)) = (u32::try_from(self.to), u32::try_from(self.from)) else {
            return false;
        };
        self.stateful_set_uid == stateful_set_uid && scale_in_lets_go(&(to..from), index, replicas)
    }
}
