//! Facts about the StatefulSet that a budget remembers, because the budget outlives it.

use std::collections::BTreeMap;
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use quorumgate_core::quorum::Ordinal;
use quorumgate_core::quorum::stateful_set::{Ordinals, scale_in_lets_go};

/// The StatefulSet, as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatefulSetStatus {
    /// UID of the StatefulSet.
    pub uid: String,
    /// The owners that the StatefulSet names and that were seen alive since it does. An owner that
    /// the gate may not read is here if the StatefulSet named it when it was first seen. The delete
    /// of any other owner takes nothing: `metadata.ownerReferences` may name what never was.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<OwnerStatus>,
    /// Whether it is gone and left its pods (`--cascade=orphan`). A pod that names it later was
    /// given that owner by somebody, and goes with no teardown unless the delete is on record.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub orphaned: bool,
    /// The announcement on it (`quorumgate.io/intent`), since it was first seen. Any write of its
    /// field manager renews the time that the API server has for it, and this one not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AnnouncementStatus")]
    pub announcement: Option<Box<AnnouncementStatus>>,
}

/// An announcement as it was first seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AnnouncementStatus {
    /// Value of the annotation.
    pub value: String,
    /// Time at which it was written, by the API server's clock.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
}

impl StatefulSetStatus {
    /// Whether an owner is on record.
    pub fn knows(&self, owner: &OwnerStatus) -> bool {
        self.owners.iter().any(|known| known.is_same(owner))
    }
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

impl OwnerStatus {
    /// Whether both are one object. The version of its API makes no difference.
    pub fn is_same(&self, other: &Self) -> bool {
        let group = |of: &Self| {
            of.api_version
                .rsplit_once('/')
                .map(|(group, _)| group.to_owned())
        };
        let rest = |of: &Self| (of.kind.clone(), of.name.clone(), of.uid.clone());
        group(self) == group(other) && rest(self) == rest(other)
    }
}

/// The directories of etcd, where not etcd's container but another object names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdDirectories {
    /// The data directory (`--data-dir`).
    pub data: String,
    /// The directory of the write-ahead log (`--wal-dir`). Absent where it is in the data
    /// directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal: Option<String>,
    /// The values that other objects give to variables in the `subPathExpr` of the directories'
    /// mounts, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
}

/// The record of etcd in the pods of a cluster.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecordedEtcd<'a> {
    /// The container, where the budget names it.
    pub container: Option<&'a str>,
    /// The directories, where the container itself does not state them.
    pub directories: Option<&'a EtcdDirectories>,
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
    /// The StatefulSet that was allowed to be scaled to 0. Absent once it has replicas again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RecordedDelete")]
    pub hibernation: Option<RecordedDelete>,
    /// Fields of a newer version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// A StatefulSet whose delete or hibernation was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDelete {
    /// UID of the StatefulSet.
    pub uid: String,
    /// User that asked for the delete.
    pub by: String,
    /// Whether the delete was allowed because no member served, and nobody announced it. It says
    /// nothing about the claims then.
    #[serde(default, skip_serializing_if = "super::is_default")]
    pub keeps_claims: bool,
    /// Time of the permission, by the clock of the replica that gave it.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
}

impl RecordedDeletes {
    /// Whether the delete of the StatefulSet with this UID says nothing about its claims.
    pub fn keep_claims(&self, stateful_set_uid: &str) -> bool {
        let mut deletes = self.stateful_sets.iter();
        deletes.any(|delete| delete.keeps_claims && delete.uid == stateful_set_uid)
    }
}

/// A scale-in that was allowed, or a move of the ordinals. The pods of the ordinals that left may
/// go. The record ends with these pods.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedScaleIn {
    /// UID of the StatefulSet.
    #[serde(rename = "statefulSetUID")]
    pub stateful_set_uid: String,
    /// Ordinals that left.
    pub ordinals: Vec<OrdinalRange>,
    /// User that asked for the scale-in.
    pub by: String,
    /// Time of the permission, by the clock of the replica that gave it.
    #[schemars(extend("format" = "date-time"))]
    pub time: String,
}

/// Consecutive ordinals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OrdinalRange {
    /// The first ordinal.
    pub first: i64,
    /// The last ordinal.
    pub last: i64,
}

impl RecordedScaleIn {
    /// Whether a pod may be deleted because of this scale-in: the pod of an ordinal of the
    /// StatefulSet with this UID, which now keeps pods for the ordinals `kept`.
    pub fn lets_go(&self, stateful_set_uid: &str, ordinal: Ordinal, kept: Ordinals) -> bool {
        self.stateful_set_uid == stateful_set_uid && scale_in_lets_go(&self.taken(), ordinal, kept)
    }

    /// Whether an ordinal is among those that left.
    pub fn took(&self, Ordinal(ordinal): Ordinal) -> bool {
        self.taken().iter().any(|range| range.contains(&ordinal))
    }

    /// The ordinals that left.
    pub fn taken(&self) -> Vec<Range<u32>> {
        let ranges = self.ordinals.iter().filter_map(|range| {
            let (first, last) = (
                range.first.try_into().ok()?,
                u32::try_from(range.last).ok()?,
            );
            Some(first..last.checked_add(1)?)
        });
        ranges.collect()
    }
}

impl OrdinalRange {
    /// The fewest ranges that have all these ordinals.
    pub fn covering(mut ordinals: Vec<Range<u32>>) -> Vec<Self> {
        ordinals.retain(|range| !range.is_empty());
        ordinals.sort_unstable_by_key(|range| range.start);
        let mut joined: Vec<Range<u32>> = Vec::new();
        for next in ordinals {
            match joined.last_mut() {
                Some(before) if next.start <= before.end => before.end = before.end.max(next.end),
                _ => joined.push(next),
            }
        }
        let ranges = joined.into_iter().map(|range| Self {
            first: range.start.into(),
            last: i64::from(range.end) - 1,
        });
        ranges.collect()
    }
}
