//! The choices of a cluster's owner about what may be disrupted.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Bounds;
use quorumgate_core::quorum::stateful_set::TeardownPolicy;
use quorumgate_core::quorum::{EvidenceMode, SmallCluster};

/// Choices of the cluster's owner about what may be disrupted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySpec {
    /// Disruptions that are allowed where the StatefulSet has one replica. Default: `Allow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WhoMay")]
    #[schemars(extend("default" = "Allow"))]
    pub single_member: Option<WhoMay>,
    /// Disruptions that are allowed where the StatefulSet has two replicas. Default:
    /// `AllowRollout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WhoMay")]
    #[schemars(extend("default" = "AllowRollout"))]
    pub two_members: Option<WhoMay>,
    /// How long after a scale-out the majority is computed with one more voter, so that the new
    /// members can join; at most 24h. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "scale_out_grace_schema")]
    #[schemars(extend("default" = "10m"))]
    pub scale_out_grace: Option<String>,
    /// Most raft entries that a voter may be behind the leader and still count as serving. Default:
    /// 5000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    #[schemars(extend("default" = 5000))]
    pub max_lag: Option<i64>,
    /// Whether deleting the StatefulSet or scaling it to 0 has to be announced while a member
    /// serves (annotation `quorumgate.io/intent`). Default: `Announce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Teardowns")]
    #[schemars(extend("default" = "Announce"))]
    pub teardown: Option<Teardowns>,
}

/// Whether a cluster may be torn down without an announcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Teardowns {
    /// A teardown is announced by the annotation `quorumgate.io/intent`.
    Announce,
    /// A teardown needs no announcement: users who may delete or scale the StatefulSet may tear the
    /// cluster down.
    Allow,
}

/// Disruptions that are allowed in a cluster that is too small to spare a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum WhoMay {
    /// Every disruption.
    Allow,
    /// Steps of a rollout. All other disruptions wait.
    AllowRollout,
    /// No disruption without an override.
    Never,
}

/// Source of the evidence about which members serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum EvidenceSource {
    /// From etcd itself, which is asked for every decision.
    #[default]
    Live,
    /// From the readiness of pods and the Leases of members alone (DEP-07). It is weaker evidence
    /// than etcd's own, and up to 30 s old.
    Readiness,
}

/// Source of the snapshots in the `EtcdMember` of the leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum SnapshotSource {
    /// The snapshot Leases, which tell the revisions.
    #[default]
    Leases,
    /// The etcd-backup-restore beside the leader, which is asked for its latest snapshots once for
    /// each change of the snapshot Leases, and lists its backup store then.
    Metadata,
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

impl From<Teardowns> for TeardownPolicy {
    fn from(teardowns: Teardowns) -> Self {
        match teardowns {
            Teardowns::Announce => Self::Announce,
            Teardowns::Allow => Self::Allow,
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
    /// Whether a teardown has to be announced.
    pub fn teardown(&self) -> TeardownPolicy {
        self.teardown.map(Into::into).unwrap_or_default()
    }

    pub(super) fn scale_out_grace(&self, default: Duration) -> Result<Duration, super::BadField> {
        SCALE_OUT_GRACE.read(self.scale_out_grace.as_ref(), default)
    }
}
