//! The status of a budget: observations of the cluster, and the ledger.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::data_protection::Membership;
use super::data_protection::{RecoveryStatus, ReplacementStatus};
use super::defragmentation::DefragmentationStatus;
use super::grant::GrantStatus;
use super::is_default;
use super::member::MemberStatus;
use super::progress::RolloutStatus;
use super::recorded::{
    AnnouncementStatus, EtcdDirectories, LeaderMoveStatus, RecordedDeletes, ScaleOutStatus,
    StatefulSetStatus,
};
use super::volume::VolumeStatus;
use super::way::Way;

/// The cluster as the gate last saw it, and the ledger of open grants. A grant is the recorded
/// permission for one disruption.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuorumDisruptionBudgetStatus {
    /// Generation of the spec that the observations belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Voters that the majority is computed from: the voters in etcd's member list and the learners
    /// that may become voters, or expectedMembers if that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voters: Option<i32>,
    /// Voters that serve and have no open grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_healthy: Option<i32>,
    /// The majority: voters that have to serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_healthy: Option<i32>,
    /// Members that could be disrupted now. This is a snapshot; every request is judged anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruptions_allowed: Option<i32>,
    /// The most voters seen since spec.replicas of the StatefulSet last went down, at most
    /// spec.replicas. The majority is computed from at least this number, so that it does not
    /// shrink while members are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_members: Option<i32>,
    /// Value of spec.replicas of the StatefulSet when expectedMembers was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_replicas: Option<i32>,
    /// The last scale-out, while the majority is computed with one more voter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ScaleOutStatus")]
    pub scale_out: Option<ScaleOutStatus>,
    /// Name of the member that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The latest move of leadership that the gate made. The gate makes the next move only after
    /// the new leader has led for 5 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LeaderMoveStatus")]
    pub leader_move: Option<Box<LeaderMoveStatus>>,
    /// Cluster id that the members last agreed on, hexadecimal.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Whether the cluster is known to have worked at some time: its members agreed on a cluster
    /// id, or a kubelet reported one of them ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub formed: bool,
    /// End of the cluster's log, as its leader last reported it. A leader that has less has lost
    /// data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "LogEndStatus")]
    pub log_end: Option<LogEndStatus>,
    /// Loss of data that nobody has accepted yet. No member goes meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DataLossStatus")]
    pub data_loss: Option<DataLossStatus>,
    /// Members that began without their data and serve under their old ids. Only their
    /// replacements and members that are dead for good go meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["member"]))]
    pub refills: Vec<RefillStatus>,
    /// Pods that have the StatefulSet's update revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_members: Option<i32>,
    /// How the StatefulSet is updated to a new revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "UpdateStrategyStatus")]
    pub update_strategy: Option<UpdateStrategyStatus>,
    /// The rollout under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RolloutStatus")]
    pub rollout: Option<Box<RolloutStatus>>,
    /// How the members are asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Way")]
    pub way: Option<Box<Way>>,
    /// The directories of etcd, where a configuration file or variables from other objects name
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "EtcdDirectories")]
    pub directories: Option<EtcdDirectories>,
    /// The part of the members' pods that adds them to etcd, such as a script in a ConfigMap, as
    /// last read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins_by: Option<String>,
    /// The one who changes etcd's member list, by joinsBy: `Pod` or `Gate`. Once volumes are on
    /// record it stays as it is. spec.dataProtection.membership, etcd-druid and etcd-operator come
    /// first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Membership")]
    pub membership: Option<Membership>,
    /// Label selector of the members' pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The StatefulSet that was last seen, with its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "StatefulSetStatus")]
    pub stateful_set: Option<StatefulSetStatus>,
    /// The announcement on the budget (`quorumgate.io/intent: bootstrap`), since it was first seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AnnouncementStatus")]
    pub announcement: Option<Box<AnnouncementStatus>>,
    /// Whether the ledger can be trusted, and why not.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ledger: LedgerStatus,
    /// The open grants, one entry per member with one. Do not edit: a grant that is missing here
    /// may cost the quorum.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["member"]))]
    pub grants: Vec<GrantStatus>,
    /// Deletes and scale-ins of the StatefulSet that the gate has allowed. The deletes of pods that
    /// follow from them are allowed too.
    #[serde(default, skip_serializing_if = "is_default")]
    pub recorded_deletes: RecordedDeletes,
    /// The members, as the gate last saw them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberStatus>,
    /// The volume on which each member last served. Do not edit: a member with another volume than
    /// the one recorded here does not start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["member"]))]
    pub volumes: Vec<VolumeStatus>,
    /// UIDs of the pods that were kept from starting when a new cluster was announced
    /// (`quorumgate.io/intent: bootstrap`). They start as members of that cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub begins_anew: Vec<String>,
    /// The latest defragmentation of each member by the gate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["member"]))]
    pub defragmentations: Vec<DefragmentationStatus>,
    /// The replacement of each member that is under way, or the latest. Do not edit: what is under
    /// way goes on by this record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["member"]))]
    pub replacements: Vec<ReplacementStatus>,
    /// The recovery from a loss of quorum that is under way, or the latest. Do not edit: what is
    /// under way goes on by this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RecoveryStatus")]
    pub recovery: Option<Box<RecoveryStatus>>,
    /// Conditions of the cluster and of the gate. `Ready` sums up the others: `QuorumHealthy`,
    /// `DataIntact`, `AlarmsClear`, `AllMembersUpdated`, `Progressing`, `ClusterIDConsistent`,
    /// `MembersAskedByTLS`, `EvidenceLive`, `LedgerTrusted`, `GateActive`, `Enrolled`,
    /// `Defragmented`, `DataProtected`, `Scaled`, `Recovered`, `InitialStateSet`, `DataRestorable`
    /// and `BackupsRecent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Fields of a newer version. A replica that finds any does not write the status, since it
    /// would drop them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

impl QuorumDisruptionBudgetStatus {
    /// The record of `self` with the report of `shown`. Only the ledger changes the record; a look
    /// rebuilds the report. A new field belongs to one of them, or this does not compile.
    #[must_use]
    pub fn reporting(self, shown: Self) -> Self {
        let Self {
            expected_members,
            observed_replicas,
            scale_out,
            leader_move,
            cluster_id,
            formed,
            log_end,
            data_loss,
            refills,
            directories,
            membership,
            selector,
            stateful_set,
            announcement,
            ledger,
            grants,
            recorded_deletes,
            volumes,
            begins_anew,
            defragmentations,
            replacements,
            recovery,
            unknown,
            observed_generation: _,
            voters: _,
            current_healthy: _,
            desired_healthy: _,
            disruptions_allowed: _,
            leader: _,
            updated_members: _,
            update_strategy: _,
            rollout: _,
            way: _,
            joins_by: _,
            members: _,
            conditions: _,
        } = self;
        Self {
            expected_members,
            observed_replicas,
            scale_out,
            leader_move,
            cluster_id,
            formed,
            log_end,
            data_loss,
            refills,
            directories,
            membership,
            selector,
            stateful_set,
            announcement,
            ledger,
            grants,
            recorded_deletes,
            volumes,
            begins_anew,
            defragmentations,
            replacements,
            recovery,
            unknown,
            ..shown
        }
    }
}

/// The end of a cluster's log. It moves in steps: a sixteenth of itself, at least 100 and at most
/// 10,000 entries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogEndStatus {
    /// Cluster id, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Last raft index that is known to be committed.
    pub raft_index: i64,
}

/// A loss of data: the leader of the cluster has less than was committed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataLossStatus {
    /// When the gate found the loss.
    pub detection_time: Time,
    /// Cluster id that was on record, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Cluster id as which the members serve, hexadecimal, if that is another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serves_as: Option<String>,
    /// Raft index that was on record.
    pub reached: i64,
    /// Raft index that the leader reported instead.
    pub found: i64,
}

/// A member that began without its data and serves under its old id: the others gave it theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RefillStatus {
    /// Name of the member's pod.
    pub member: String,
    /// Member id in etcd, hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// When the gate found out.
    pub detection_time: Time,
}

/// How a StatefulSet is updated to a new revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategyStatus {
    /// Type of the StatefulSet's update strategy: `OnDelete` or `RollingUpdate`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether the owner or the gate chose this strategy.
    pub set_by: StrategyChoice,
    /// Controller that replaces outdated pods.
    pub updated_by: Updater,
}

/// Origin of an update strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrategyChoice {
    /// The owner of the StatefulSet.
    Owner,
    /// The gate, which keeps `OnDelete`. The owner's own strategy comes back when the feature
    /// `QuorumAwareUpdatesWithOnDelete` is switched off.
    Gate,
}

/// Controller that replaces outdated pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Updater {
    /// The gate, in an order that keeps the quorum.
    Gate,
    /// The StatefulSet controller, by ordinal.
    StatefulSetController,
    /// No controller: an outdated pod is replaced when somebody deletes it.
    Nobody,
}

/// Whether the ledger is trusted, that is, known to hold every open grant. While it is not,
/// disruptions wait, except teardowns, overrides and those of members that are dead for good.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerStatus {
    /// True if the ledger is trusted. Valid only in the budget with the UID budgetUID.
    #[serde(default)]
    pub trusted: bool,
    /// UID of the budget that this ledger belongs to. In a copy of the status in another budget the
    /// ledger is not trusted.
    #[serde(default, rename = "budgetUID", skip_serializing_if = "Option::is_none")]
    pub budget_uid: Option<String>,
    /// How often the ledger has lost its trust. The time until it is trusted again begins anew each
    /// time.
    #[serde(default, skip_serializing_if = "is_default")]
    pub epoch: i64,
    /// True while the API server does not ask the gate. The ledger is not trusted during that time
    /// and for a settle time (2 minutes by default) after it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub suspended: bool,
    /// UIDs and generations of the webhook configurations with which the API server last asked the
    /// gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force_by: Option<String>,
    /// Why the ledger last lost its trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untrusted_because: Option<String>,
    /// The highest sequence number given so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub last_seq: i64,
    /// Version of the ledger's format. A replica that knows only a lower version does not write the
    /// ledger. Absent: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema_version: Option<i64>,
    /// Fields of a newer version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub unknown: BTreeMap<String, Value>,
}

/// The types of a budget's conditions.
pub mod condition {
    /// True: members are asked, the ledger is trusted, the gate is asked, the quorum is healthy and
    /// the data is protected. The other conditions say which of these fails.
    pub const READY: &str = "Ready";
    /// True: the voters that serve make a majority.
    pub const QUORUM_HEALTHY: &str = "QuorumHealthy";
    /// True: the leader has everything that was committed under the cluster id.
    pub const DATA_INTACT: &str = "DataIntact";
    /// True: no alarm of etcd stands against a member.
    pub const ALARMS_CLEAR: &str = "AlarmsClear";
    /// True: the StatefulSet has all its pods, and each has the update revision.
    pub const ALL_MEMBERS_UPDATED: &str = "AllMembersUpdated";
    /// True: a rollout makes progress, or there is none.
    pub const PROGRESSING: &str = "Progressing";
    /// True: all members report the same cluster id, and no other budget reports it.
    pub const CLUSTER_ID_CONSISTENT: &str = "ClusterIDConsistent";
    /// True: the gate asks the members over TLS. The message names the certificates that it uses,
    /// and where it found them.
    pub const MEMBERS_ASKED_BY_TLS: &str = "MembersAskedByTLS";
    /// True: the evidence comes from etcd itself.
    pub const EVIDENCE_LIVE: &str = "EvidenceLive";
    /// True: the ledger is trusted to hold every open grant.
    pub const LEDGER_TRUSTED: &str = "LedgerTrusted";
    /// True: the API server asks the gate about this cluster's pods.
    pub const GATE_ACTIVE: &str = "GateActive";
    /// True: no member is due for a defragmentation. Absent until the first one was.
    pub const DEFRAGMENTED: &str = "Defragmented";
    /// False: the StatefulSet lacks the label that enrols it, and only this budget guards it.
    /// Absent until that was so.
    pub const ENROLLED: &str = "Enrolled";
    /// True: no member has to be replaced, and none is kept from starting. Absent until the first
    /// one was.
    pub const DATA_PROTECTED: &str = "DataProtected";
    /// True: there are as many members as `spec.members.count` asks for. Absent until that was set.
    pub const SCALED: &str = "Scaled";
    /// True: all members are back after a loss of quorum that a person ended. Absent until one was.
    pub const RECOVERED: &str = "Recovered";
    /// True: each member joins the cluster if it starts without data. Absent where the gate does
    /// not set `initial-cluster-state` in new pods.
    pub const INITIAL_STATE_SET: &str = "InitialStateSet";
    /// True: no member waits for a restoration of its data that fails. Absent until one failed.
    pub const DATA_RESTORABLE: &str = "DataRestorable";
    /// True: the latest snapshot of the cluster is not too old. Absent where no Lease of
    /// etcd-backup-restore tells of snapshots.
    pub const BACKUPS_RECENT: &str = "BackupsRecent";
}
