//! A member in the status of a budget.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use quorumgate_core::quorum::PodName;

/// A member of the etcd cluster, as the gate last saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Name of the member in etcd, or of its pod where etcd names none.
    pub name: String,
    /// Name of the member's pod, whether or not the pod exists. Absent for an external member,
    /// which has no pod of this StatefulSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// UID of the pod that was seen.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Member id in etcd, hexadecimal.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// Whether the member is a voter or a learner.
    pub role: MemberRole,
    /// Whether the member proved, when it was last asked, that it takes part in the quorum.
    pub serving: bool,
    /// Why the member does not serve. Absent where it serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Revision of the pod's template (its label controller-revision-hash).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Raft entries that the member is behind the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// Size of the member's database in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_bytes: Option<i64>,
    /// Bytes of the database that are in use. A defragmentation frees the rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_in_use_bytes: Option<i64>,
    /// Space quota of the database in bytes. Absent where this version of etcd does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_quota_bytes: Option<i64>,
    /// Where the member has its data: on a claim of its own (`Claim`), on one that others have
    /// their data on, too (`SharedClaim`), in a directory of its node (`Node`), in its pod (`Pod`),
    /// or nobody can tell (`Unknown`). Absent for an external member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "DataPlace")]
    pub data: Option<DataPlace>,
    /// The end of the log as the member had applied it when it last served. A process that begins
    /// with less lacks data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "AppliedStatus")]
    pub applied: Option<AppliedStatus>,
    /// The data that the member holds, while quorum is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "HeldStatus")]
    pub holds: Option<HeldStatus>,
    /// Alarms of etcd against the member: `NOSPACE`, `CORRUPT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
    /// Client URLs of an external member.
    #[serde(default, rename = "clientURLs", skip_serializing_if = "Vec::is_empty")]
    pub client_urls: Vec<String>,
}

/// The end of the log as a process of a member had applied it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedStatus {
    /// Last raft index that it had applied a few seconds before it was last seen.
    pub raft_index: i64,
    /// UID of its pod.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// Restarts of etcd's container.
    pub restarts: i32,
    /// When it was seen with that index.
    pub time: Time,
}

/// The data of a member while quorum is lost, by its own word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldStatus {
    /// Cluster id, hexadecimal.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Last raft index that it has applied.
    pub raft_index: i64,
    /// Revision of its data.
    pub revision: i64,
}

/// The place of a member's data.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, derive_more::Display,
)]
pub enum DataPlace {
    /// A claim of its own.
    #[display("on a claim of its own")]
    Claim,
    /// A claim on which others have their data, too.
    #[display("on a claim that members share")]
    SharedClaim,
    /// A directory of the node, to which the next pod is bound.
    #[display("in a directory of its node")]
    Node,
    /// The pod, with which the data goes.
    #[display("in its pod")]
    Pod,
    /// An unknown place.
    #[display("in a place that is not known")]
    Unknown,
}

impl MemberStatus {
    /// Whether the member is external: it was last seen without a pod, and no pod of the
    /// StatefulSet `set` can have its name.
    pub fn is_external_to(&self, set: &str) -> bool {
        self.pod.is_none() && PodName::of_member(set, &self.name).is_none()
    }
}

/// The role of a member in the quorum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberRole {
    /// A voter counts towards the quorum.
    Voter,
    /// A learner does not count towards the quorum until it is promoted.
    Learner,
}
