//! What a budget remembers of its StatefulSet, because it outlives it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A StatefulSet as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetStatus {
    /// Its UID.
    pub uid: String,
    /// The object that controls it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "OwnerStatus")]
    pub owner: Option<OwnerStatus>,
}

/// An owner, as a reference names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnerStatus {
    /// Group and version.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A growing StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleOutStatus {
    /// The replicas it grew to.
    pub to: i32,
    /// Whether its grace has passed, as watched by one replica's own clock.
    #[serde(default)]
    pub settled: bool,
}

/// The latest move of leadership that the gate began, as the cluster knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaderMoveStatus {
    /// The member that led, hexadecimal.
    pub from: String,
    /// The member that was to lead instead, hexadecimal.
    pub to: String,
    /// The raft term in which the first one led; 0 where it is not known.
    pub term: i64,
}

/// Deletions and scale-ins that were admitted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDeletes {
    /// StatefulSets whose deletion was admitted; the latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stateful_sets: Vec<RecordedDelete>,
    /// The last scale-in that was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RecordedScaleIn")]
    pub scale_in: Option<RecordedScaleIn>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// A StatefulSet whose deletion was admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDelete {
    /// Its UID.
    pub uid: String,
    /// Who deleted it.
    pub by: String,
    /// When, by the clock of the replica that admitted it.
    pub at: String,
}

/// A scale-in that was admitted: the pods with index `to` and above, below `from`, may go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedScaleIn {
    /// UID of the StatefulSet.
    #[serde(rename = "statefulSetUID")]
    pub stateful_set_uid: String,
    /// The replicas it had.
    pub from: i32,
    /// The replicas it was given.
    pub to: i32,
    /// Who asked.
    pub by: String,
    /// When, by the clock of the replica that admitted it.
    pub at: String,
}

impl RecordedScaleIn {
    /// Whether a pod may go by it: the pod of the StatefulSet with this UID that so many come before, while the StatefulSet asks for so
    /// many replicas.
    pub fn lets_go(&self, stateful_set_uid: &str, index: u32, replicas: u32) -> bool {
        let is_in_range = u32::try_from(self.to).is_ok_and(|to| index >= to)
            && u32::try_from(self.from).is_ok_and(|from| index < from);
        self.stateful_set_uid == stateful_set_uid && is_in_range && index >= replicas
    }
}
