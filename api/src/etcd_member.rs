//! The `EtcdMember` of DEP-04 of etcd-druid: the life of one member, for people, alerts and other
//! controllers. Sizes are bytes, and ids are hexadecimal, as in the status of a budget.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The proposal has no fields here.
#[derive(CustomResource, Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "quorumgate.io",
    version = "v1alpha1",
    kind = "EtcdMember",
    plural = "etcdmembers",
    singular = "etcdmember",
    category = "etcd",
    namespaced,
    no_spec,
    status = "EtcdMemberStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The life of one member of an etcd cluster. Nothing decides about disruptions by it.",
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".status.transitions[-1:].state",
        description = "State of the member"
    ),
    printcolumn(
        name = "Substate",
        type_ = "string",
        json_path = ".status.transitions[-1:].subState",
        description = "Stage within the state"
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.transitions[-1:].transitionTime",
        description = "Time of the last transition"
    ),
    printcolumn(
        name = "DB size",
        type_ = "integer",
        json_path = ".status.dbSize",
        description = "Size of the database in bytes"
    ),
    printcolumn(
        name = "In use",
        type_ = "integer",
        json_path = ".status.dbSizeInUse",
        description = "Bytes of the database that are in use"
    ),
    printcolumn(
        name = "ID",
        type_ = "string",
        json_path = ".status.id",
        description = "Member id in etcd, hexadecimal",
        priority = 1
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.transitions[-1:].reason",
        description = "Reason for the last transition",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberSpec {}

/// The state of the member. A field that is not known is absent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMemberStatus {
    /// Member id in etcd, hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Id of the cluster that the member answers for, hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Whether the member's peer URLs use TLS.
    #[serde(
        default,
        rename = "peerTLSEnabled",
        skip_serializing_if = "Option::is_none"
    )]
    pub peer_tls_enabled: Option<bool>,
    /// Size of the database in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size: Option<i64>,
    /// Bytes of the database that are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_in_use: Option<i64>,
    /// Backups that the sidecar of the leader has uploaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<SnapshotsStatus>,
    /// Latest restoration of the member's data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_restoration: Option<RestorationState>,
    /// Latest defragmentation of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_defragmentation: Option<DefragmentationState>,
    /// Wrong volumes that the member had, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mismatches: Vec<VolumeMismatch>,
    /// Transitions of the member's state, the oldest first. At most 50 are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub transitions: Vec<MemberTransition>,
}

/// Backups in the backup store.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotsStatus {
    /// Latest full snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_full: Option<SnapshotState>,
    /// Latest delta snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_delta: Option<SnapshotState>,
    /// Bytes of all delta snapshots since the latest full one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accumulated_delta_size: Option<i64>,
}

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SnapshotState {
    /// Time of the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Time>,
    /// Name of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Size in bytes, not compressed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// First revision in the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_revision: Option<i64>,
    /// Last revision in the snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_revision: Option<i64>,
}

/// A restoration of a member's data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestorationState {
    /// Source of the data: `FromSnapshot` or `FromLeader`.
    #[serde(rename = "type")]
    pub from: String,
    /// `Failed`, `Success` or `In-Progress`.
    pub status: String,
    /// Reason code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Start of the restoration.
    pub start_time: Time,
    /// End of the restoration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
}

/// A defragmentation of a member's database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DefragmentationState {
    /// Start of the defragmentation.
    pub start_time: Time,
    /// End of the defragmentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// `Succeeded` or `Failed`; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// Reason for the defragmentation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Size of the database in bytes before.
    #[serde(
        default,
        rename = "initialDBSize",
        skip_serializing_if = "Option::is_none"
    )]
    pub initial_db_size: Option<i64>,
    /// Size of the database in bytes after.
    #[serde(
        default,
        rename = "finalDBSize",
        skip_serializing_if = "Option::is_none"
    )]
    pub final_db_size: Option<i64>,
}

/// A wrong volume of a member.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeMismatch {
    /// Time at which the wrong volume was seen.
    pub identified_at: Time,
    /// Time at which the right volume was seen again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_at: Option<Time>,
    /// Id of the wrong volume.
    #[serde(rename = "volumeID")]
    pub volume_id: String,
    /// Restarts of etcd's container with this volume.
    pub num_restarts: i32,
}

/// A transition of a member's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberTransition {
    /// State after the transition: `New`, `Initializing`, `Starting` or `Started`.
    pub state: String,
    /// Stage within the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_state: Option<String>,
    /// Reason code of the transition.
    pub reason: String,
    /// Time of the transition.
    pub transition_time: Time,
    /// Details in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
