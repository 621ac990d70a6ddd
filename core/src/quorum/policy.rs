//! What the owner of a cluster chose: the part of a budget's `spec` that decisions read.

use std::time::Duration;

/// The choices a decision depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Where evidence comes from.
    pub evidence: EvidenceMode,
    /// Rule 14, for a cluster of one.
    pub single_member: SmallCluster,
    /// Rule 14, for a cluster of two.
    pub two_members: SmallCluster,
    /// How long after a scale-out the majority of one voter more is kept free (rule 15).
    pub scale_out_grace: Duration,
    /// How long quorum must have been lost, without a gap, before a rollout step may take an alive member (rule 13).
    pub quorum_loss_grace: Duration,
    /// How long a learner may make no progress before a rollout step may replace it (rule 11).
    pub progress_deadline: Duration,
    /// How many raft entries a voter's applied index may lag behind its leader's and still serve.
    pub lag_bound: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            evidence: EvidenceMode::Live,
            single_member: SmallCluster::Allow,
            two_members: SmallCluster::AllowRollout,
            scale_out_grace: Duration::from_secs(10 * 60),
            quorum_loss_grace: Duration::from_secs(5 * 60),
            progress_deadline: Duration::from_secs(10 * 60),
            lag_bound: 5000,
        }
    }
}

/// Where evidence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvidenceMode {
    /// From etcd itself.
    #[default]
    Live,
    /// From readiness and member Leases alone: weaker, up to 30 s behind, and reported as such everywhere.
    Readiness,
}

/// Who may take a member of a cluster too small to spare one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallCluster {
    /// Anyone.
    Allow,
    /// Only a rollout step; strangers wait.
    AllowRollout,
    /// Nobody without an override.
    Never,
}
