//! What a budget shows, and what it remembers.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::grant::GrantStatus;
use super::is_default;
use super::member::MemberStatus;
use super::progress::RolloutStatus;
use super::recorded::{LeaderMoveStatus, RecordedDeletes, ScaleOutStatus, StatefulSetStatus};

/// The state of the cluster as it was last seen, and the ledger: the permissions that are open.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuorumDisruptionBudgetStatus {
    /// The generation of the spec that the observations below belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Voters that count: those in etcd's member list and learners on their way out, or the expected members where these are more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voters: Option<i32>,
    /// Voters that serve and have no open permission to go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_healthy: Option<i32>,
    /// The majority: voters that must serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_healthy: Option<i32>,
    /// Members that may go now. It is a snapshot; every request is judged anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<i32>,
    /// The most voters seen since the StatefulSet was last made smaller, never more than its replicas: the majority does not
    /// shrink while members are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_members: Option<i32>,
    /// The StatefulSet's replicas under which they were seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_replicas: Option<i32>,
    /// The last scale-out, while room is kept for the voters that it brings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ScaleOutStatus")]
    pub scale_out: Option<ScaleOutStatus>,
    /// The member that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The latest move of leadership that the gate began. The next one begins when the new leader has led for 5 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LeaderMoveStatus")]
    pub leader_move: Option<Box<LeaderMoveStatus>>,
    /// The etcd cluster id, hexadecimal, as the members last agreed on it.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Whether there is word that the cluster ever worked: its members agreed on a cluster id, or a kubelet called one of them ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub formed: bool,
    /// Pods of the StatefulSet's update revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_members: Option<i32>,
    /// How the StatefulSet comes to a new revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "UpdateStrategyStatus")]
    pub update_strategy: Option<UpdateStrategyStatus>,
    /// The rollout that is under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RolloutStatus")]
    pub rollout: Option<Box<RolloutStatus>>,
    /// The label selector of the members' pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The StatefulSet as it was last seen: which one, and whose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StatefulSetStatus")]
    pub stateful_set: Option<StatefulSetStatus>,
    /// The state of the ledger.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ledger: LedgerStatus,
    /// The permissions that are open, one entry per member. Do not edit: a permission that is missing here may break the quorum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["member"]))]
    pub grants: Vec<GrantStatus>,
    /// Deletions and scale-ins that were admitted, so that what they entail passes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recorded_deletes: RecordedDeletes,
    /// The members as they were last seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberStatus>,
    /// What is to be known at a glance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Fields that this version does not know. Who has them must not write the status, which would drop them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// How a StatefulSet comes to a new revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategyStatus {
    /// The type of its update strategy: `OnDelete` or `RollingUpdate`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whose choice that is.
    pub set_by: StrategyChoice,
    /// Who replaces outdated pods.
    pub updated_by: Updater,
}

/// Whose choice an update strategy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrategyChoice {
    /// Its owner's.
    Owner,
    /// The gate keeps `OnDelete`, and gives back what the owner asked for when the feature `QuorumAwareUpdatesWithOnDelete` is switched off.
    Gate,
}

/// Who replaces outdated pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Updater {
    /// The gate, in the order that costs the quorum nothing.
    Gate,
    /// The StatefulSet controller, by ordinal.
    StatefulSetController,
    /// Nobody: they are replaced when somebody deletes them.
    Nobody,
}

/// Whether the ledger is known to hold every open permission.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerStatus {
    /// Whether it is known to hold every open permission; true only for the budget of this UID.
    #[serde(default)]
    pub warm: bool,
    /// The budget that this belongs to: a copy of this status in another one means nothing.
    #[serde(default, rename = "budgetUID", skip_serializing_if = "Option::is_none")]
    pub budget_uid: Option<String>,
    /// How often it turned cold. Watching begins anew each time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub epoch: i64,
    /// Whether the API server does not ask the gate at present. It stays cold for as long, and for a settle time after.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended: bool,
    /// The webhook configurations by which the gate was last in force: their UIDs and generations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_by: Option<String>,
    /// Why it turned cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_because: Option<String>,
    /// The highest sequence number given so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_seq: i64,
    /// The version of what the ledger consists of: a replica that knows a lower one only does not write it. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<i64>,
    /// Fields that this version does not know.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// The types of a budget's conditions.
pub mod condition {
    /// The voters that serve make a majority.
    pub const QUORUM_HEALTHY: &str = "QuorumHealthy";
    /// Every pod has the StatefulSet's update revision.
    pub const ALL_MEMBERS_UPDATED: &str = "AllMembersUpdated";
    /// A rollout makes progress, or there is none.
    pub const PROGRESSING: &str = "Progressing";
    /// All members report one cluster id, and no other budget does.
    pub const CLUSTER_ID_CONSISTENT: &str = "ClusterIDConsistent";
    /// The members are asked by TLS; it says what was found for that, and where.
    pub const MEMBERS_ASKED_BY_TLS: &str = "MembersAskedByTLS";
    /// Evidence comes from etcd itself.
    pub const EVIDENCE_LIVE: &str = "EvidenceLive";
    /// The ledger is known to hold every open permission.
    pub const LEDGER_WARM: &str = "LedgerWarm";
    /// The API server asks the gate about this cluster's pods.
    pub const GATE_ACTIVE: &str = "GateActive";
}
