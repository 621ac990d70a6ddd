//! The choices that decisions read.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Bounds;
use crate::quorum::{EvidenceMode, SmallCluster};

/// What the owner of a cluster chose where several answers make sense.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    /// Who may take the member of a cluster of one. Default: `Allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WhoMay")]
    pub single_member: Option<WhoMay>,
    /// Who may take a member of a cluster of two. Default: `AllowRollout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WhoMay")]
    pub two_members: Option<WhoMay>,
    /// How long after a scale-out room for one voter more is kept free, until the new members have joined. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "scale_out_grace_schema")]
    pub scale_out_grace: Option<String>,
    /// How many raft entries a voter may lag behind the leader and still count as serving. Default: 5000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_lag: Option<i64>,
}

/// Who may take a member of a cluster that is too small to spare one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhoMay {
    /// Anyone.
    Allow,
    /// A rollout; everyone else waits.
    AllowRollout,
    /// Nobody without an override.
    Never,
}

/// Where evidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum EvidenceSource {
    /// From etcd itself, asked for every decision.
    #[default]
    Live,
    /// From readiness and member Leases alone: weaker, and up to 30 s behind.
    Readiness,
}

impl From<WhoMay> for SmallCluster {
    fn from(who: WhoMay) -> Self {
        match who {
            WhoMay::Allow => Self::Allow,
            WhoMay::AllowRollout => Self::AllowRollout,
            WhoMay::Never => Self::Never,
        }
    }
}

impl From<EvidenceSource> for EvidenceMode {
    fn from(source: EvidenceSource) -> Self {
        match source {
            EvidenceSource::Live => Self::Live,
            EvidenceSource::Readiness => Self::Readiness,
        }
    }
}

const SCALE_OUT_GRACE: Bounds = Bounds {
    field: "spec.policy.scaleOutGrace",
    least: "0s",
    most: "24h",
};

fn scale_out_grace_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    SCALE_OUT_GRACE.schema(generator)
}

impl PolicySpec {
    pub(super) fn scale_out_grace(&self, default: Duration) -> Result<Duration, super::BadField> {
        SCALE_OUT_GRACE.read(self.scale_out_grace.as_ref(), default)
    }
}
