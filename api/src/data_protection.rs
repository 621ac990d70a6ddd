//! How members whose data is lost are replaced, and the record of the latest replacements.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Bounds;
use super::{BadField, QuorumDisruptionBudgetSpec};

/// How the data of the members is protected: who changes etcd's member list, and whether the gate
/// replaces a member whose data is lost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataProtectionSpec {
    /// Whether the gate replaces a member, which gives up its volume and joins again with an empty
    /// one: `Off`; `Manual`, the member that the annotation `quorumgate.io/replace` names by its
    /// id; or `Auto`, also a member whose data is proven to be lost. Default: `Manual`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ReplaceMode")]
    #[schemars(extend("default" = "Manual"))]
    pub replace: Option<ReplaceMode>,
    /// How long etcd must have ended over and over by itself, on one member alone, before
    /// `replace: Auto` replaces that member, from 10s to 24h. Default: 15m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "replace_after_schema")]
    #[schemars(extend("default" = "15m"))]
    pub replace_after: Option<String>,
    /// The one who changes etcd's member list: the gate (`Gate`), which also keeps a member with an
    /// empty volume from starting under its old identity; the member's own pod (`Pod`), as a
    /// sidecar of etcd-druid does; or the owner of the StatefulSet (`Owner`), as etcd-operator
    /// does. Default: `Pod` for etcd-druid, `Owner` for etcd-operator, `Gate` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Membership")]
    pub membership: Option<Membership>,
    /// Treatment of a member that is to go and whose data goes with its pod (an `emptyDir`, or a
    /// directory of a node to which the pod is not bound): `Replace`, it goes only while all others
    /// serve, and the gate replaces it before another one goes; `Refuse`, it stays; `Allow`, it
    /// goes as any other. Default: `Replace` where the membership is `Gate`, `Allow` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "EphemeralData")]
    pub ephemeral: Option<EphemeralData>,
}

const REPLACE_AFTER: Bounds = Bounds {
    field: "spec.dataProtection.replaceAfter",
    least: "10s",
    most: "24h",
};

/// Long enough for a person who corrects a file on the volume or a Secret.
const DEFAULT_REPLACE_AFTER: Duration = Duration::from_mins(15);

fn replace_after_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    REPLACE_AFTER.schema(generator)
}

/// Whether the gate replaces members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum ReplaceMode {
    /// Never.
    Off,
    /// When a person asks for it.
    #[default]
    Manual,
    /// Also when a member's data is proven to be lost.
    Auto,
}

/// The treatment of members whose data goes with their pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum EphemeralData {
    /// A member goes only while all others serve, and is replaced.
    Replace,
    /// The members stay.
    Refuse,
    /// A member goes as any other.
    Allow,
}

/// The one who changes etcd's member list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Membership {
    /// The gate.
    Gate,
    /// The member's own pod.
    Pod,
    /// The owner of the StatefulSet.
    Owner,
}

/// The recovery from a permanent loss of quorum: the one under way, which has no end yet, or the
/// latest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryStatus {
    /// Name of the pod of the member that starts alone.
    pub member: String,
    /// Member id in etcd, hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// UID of the pod that is to go.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Value of the annotation that asked for it.
    pub request: String,
    /// How far it is.
    pub phase: RecoveryPhase,
    /// Member ids, hexadecimal, whose data is given up. No pod starts with it.
    #[serde(default, rename = "givenUpIDs", skip_serializing_if = "Vec::is_empty")]
    pub given_up_ids: Vec<String>,
    /// When the permission was given.
    pub start_time: Time,
    /// When all members were back. Absent while the recovery is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RecoveryPhase {
    /// The member is to start alone, with `--force-new-cluster`. The pods of all others wait.
    Alone,
    /// The member has started alone, and is to start once more, without the setting.
    Again,
    /// The member serves, and the others join it.
    Rejoining,
}

/// The replacement of a member: the one under way, which has no end yet, or the latest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplacementStatus {
    /// Name of the member's pod.
    pub member: String,
    /// The reason: the proof that its data is lost, or `Requested`.
    pub reason: String,
    /// When the permission was given.
    pub start_time: Time,
    /// When the new voter served. Absent while the replacement is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// Member id that is removed from etcd, hexadecimal. Absent if etcd did not list the member.
    #[serde(
        default,
        rename = "oldMemberID",
        skip_serializing_if = "Option::is_none"
    )]
    pub old_member_id: Option<String>,
    /// UID of the claim that is given up.
    #[serde(
        default,
        rename = "oldClaimUID",
        skip_serializing_if = "Option::is_none"
    )]
    pub old_claim_uid: Option<String>,
    /// UID of the pod that goes with it.
    #[serde(default, rename = "oldPodUID", skip_serializing_if = "Option::is_none")]
    pub old_pod_uid: Option<String>,
    /// Peer URLs with which the member is added again.
    #[serde(default, rename = "peerURLs", skip_serializing_if = "Vec::is_empty")]
    pub peer_urls: Vec<String>,
}

impl QuorumDisruptionBudgetSpec {
    /// How long etcd has to end over and over before its member is replaced unasked.
    pub fn replace_after(&self) -> Result<Duration, BadField> {
        let written = self.data_protection.replace_after.as_ref();
        REPLACE_AFTER.read(written, DEFAULT_REPLACE_AFTER)
    }

    /// Whether the gate replaces members.
    pub fn replace(&self) -> ReplaceMode {
        self.data_protection.replace.unwrap_or_default()
    }
}
