//! The condition of the members when a rollout begins.

use anyhow::Result;
use quorumgate_testbed::Sandbox;
use quorumgate_testbed::etcd_cluster::{EtcdCluster, Readiness};

use crate::broken::{self, Broken};

/// A condition of the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// All members serve.
    Healthy,
    /// A member crashes at every start until it is replaced: the new template is the repair.
    Crashing,
    /// A member has lost contact with its peers until it is replaced, and its pod is Ready
    /// nevertheless. This is the example at the beginning of DEP-07.
    CutOff,
}

impl Condition {
    pub(crate) const ALL: [Self; 3] = [Self::Healthy, Self::Crashing, Self::CutOff];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Healthy => "all healthy",
            Self::Crashing => "one crashes",
            Self::CutOff => "one cut off, its pod Ready",
        }
    }

    /// The readiness probe of the pods.
    pub(crate) fn readiness(self) -> Readiness {
        match self {
            Self::Healthy | Self::Crashing => Readiness::Quorum,
            Self::CutOff => Readiness::Process,
        }
    }

    /// The leader at the start: another one in every round, and never the broken one.
    pub(crate) fn leader(self, round: usize) -> String {
        let ordinal = match self {
            Self::Healthy => round % 3,
            Self::Crashing | Self::CutOff => 1 + round % 2,
        };
        format!("etcd-{ordinal}")
    }

    /// Brings the members into this condition.
    pub(crate) async fn bring_about(
        self,
        sandbox: &Sandbox,
        etcd: &EtcdCluster,
    ) -> Result<Option<Broken>> {
        Ok(match self {
            Self::Healthy => None,
            Self::Crashing => Some(broken::crash(sandbox, etcd).await?),
            Self::CutOff => Some(broken::cut_off(sandbox, etcd).await?),
        })
    }
}
