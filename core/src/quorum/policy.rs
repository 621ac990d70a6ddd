//! The owner's choices: the part of a budget's `spec` that decisions read.

use std::time::Duration;

/// The owner's choices that a decision depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The source of evidence.
    pub evidence: EvidenceMode,
    /// The rule for a cluster of one (rule 14).
    pub single_member: SmallCluster,
    /// The rule for a cluster of two (rule 14).
    pub two_members: SmallCluster,
    /// The time after a scale-out during which the majority of one voter more is kept (rule 15).
    pub scale_out_grace: Duration,
    /// The time for which quorum must have been lost without a gap before a rollout step may take
    /// an alive member (rule 13).
    pub quorum_loss_grace: Duration,
    /// The time that a learner may make no progress before a rollout step may replace it (rule 11).
    /// A rollout also holds when an updated member does not serve for so long.
    pub progress_deadline: Duration,
    /// The number of raft entries that a serving voter may be behind its leader.
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

/// The source of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EvidenceMode {
    /// Answers of etcd.
    #[default]
    Live,
    /// Readiness of pods and member Leases. This evidence is weaker and up to 30 s behind, and is
    /// reported as such.
    Readiness,
}

/// The askers that may take a member of a cluster which is too small to spare one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SmallCluster {
    /// Every asker.
    Allow,
    /// Only a step of a rollout.
    AllowRollout,
    /// No asker without an override.
    Never,
}
