//! A member as the budget shows it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quorum::PodName;

/// A member as it was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberStatus {
    /// Its name in etcd, or that of its pod.
    pub name: String,
    /// The name of its pod, also while there is no such pod; absent where it belongs in none of this StatefulSet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The incarnation of the pod that was seen.
    #[serde(default, rename = "podUID", skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// Its id in etcd, hexadecimal.
    #[serde(default, rename = "memberID", skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
    /// Voter or learner.
    pub role: MemberRole,
    /// Whether it proved that it takes part in the quorum.
    pub serving: bool,
    /// Where it does not serve: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The revision of its pod's template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Raft entries it is behind the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<i64>,
    /// Size of its database, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size: Option<i64>,
    /// Bytes of it in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_in_use: Option<i64>,
    /// Its space quota in bytes, where its version reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub db_size_quota: Option<i64>,
    /// Where it serves clients, for an external member.
    #[serde(default, rename = "clientURLs", skip_serializing_if = "Vec::is_empty")]
    pub client_urls: Vec<String>,
}

impl MemberStatus {
    /// Whether it is none of this StatefulSet's: it was last seen without a pod, and its name cannot be that of one.
    pub fn is_external_to(&self, set: &str) -> bool {
        self.pod.is_none() && PodName::of_member(set, &self.name).is_none()
    }
}

/// Voter or learner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MemberRole {
    /// Counts for the quorum.
    Voter,
    /// Does not, yet.
    Learner,
}
