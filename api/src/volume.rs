//! The volume of a member in the status of a budget.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The volume on which a member last served. It changes when the member serves on another one, or
/// when the member was replaced, and outlives the pod: an emptied or swapped volume is known by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VolumeStatus {
    /// Name of the member's pod.
    pub member: String,
    /// Member id in etcd, hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
    /// UID of the pod in which the member served.
    #[serde(rename = "podUID")]
    pub pod_uid: String,
    /// UID of the claim.
    #[serde(rename = "claimUID")]
    pub claim_uid: String,
    /// The volume: the handle of its CSI driver, or else the name and the UID of the
    /// `PersistentVolume`.
    #[serde(default, rename = "volumeID", skip_serializing_if = "Option::is_none")]
    pub volume_id: Option<String>,
    /// Directory of the data on the volume, and that of the write-ahead log if it is apart. Absent
    /// where nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
}
