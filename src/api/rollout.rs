//! How a rollout goes about it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Bounds;
use super::{Amount, BadField, QuorumDisruptionBudgetSpec};
use crate::quorum::Policy;

/// How a rollout takes members and when it gives up waiting.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// How an outdated pod goes. Default: `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Removal")]
    pub removal: Option<Removal>,
    /// How outdated members that do not serve are replaced. Default: `OneAtATime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NonServing")]
    pub non_serving: Option<NonServing>,
    /// Whether a serving member with an unhealthy backup-restore sidecar goes before the other serving ones. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sidecar_first: Option<bool>,
    /// How long an updated member may take until it serves, and a learner until it makes progress. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "progress_deadline_schema")]
    pub progress_deadline: Option<String>,
    /// How long quorum must have been lost, without a gap, before a rollout may replace a member that is alive. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quorum_loss_grace_period_schema")]
    pub quorum_loss_grace_period: Option<String>,
}

/// How an outdated pod goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Removal {
    /// By a delete with preconditions.
    #[default]
    Delete,
    /// Members that serve by an eviction, so that PodDisruptionBudgets have their say; the others by a delete.
    EvictHealthy,
}

/// How outdated members that do not serve are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum NonServing {
    /// One after another.
    #[default]
    OneAtATime,
    /// All that cost nothing, at once.
    AllAtOnce,
}

/// What a budget says about rollouts, with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// How many members may be out at once on its account.
    pub max_unavailable: Amount,
    /// Ordinals below it keep their revision.
    pub partition: u32,
    /// Whether no new step may begin.
    pub paused: bool,
    /// See [`RolloutSpec::removal`].
    pub removal: Removal,
    /// See [`RolloutSpec::non_serving`].
    pub non_serving: NonServing,
    /// See [`RolloutSpec::sidecar_first`].
    pub sidecar_first: bool,
    /// See [`RolloutSpec::progress_deadline`].
    pub progress_deadline: Duration,
}

const PROGRESS_DEADLINE: Bounds = Bounds {
    field: "spec.rollout.progressDeadline",
    least: "10s",
    most: "24h",
};

/// A lost quorum is confirmed over at least 7 s, so nothing shorter has a meaning.
const QUORUM_LOSS_GRACE_PERIOD: Bounds = Bounds {
    field: "spec.rollout.quorumLossGracePeriod",
    least: "7s",
    most: "24h",
};

fn progress_deadline_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    PROGRESS_DEADLINE.schema(generator)
}

fn quorum_loss_grace_period_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    QUORUM_LOSS_GRACE_PERIOD.schema(generator)
}

impl RolloutSpec {
    pub(super) fn progress_deadline(&self, default: Duration) -> Result<Duration, BadField> {
        PROGRESS_DEADLINE.read(self.progress_deadline.as_ref(), default)
    }

    pub(super) fn quorum_loss_grace_period(&self, default: Duration) -> Result<Duration, BadField> {
        QUORUM_LOSS_GRACE_PERIOD.read(self.quorum_loss_grace_period.as_ref(), default)
    }
}

impl QuorumDisruptionBudgetSpec {
    /// What the budget says about rollouts.
    pub fn rollout(&self) -> Result<Rollout, BadField> {
        let max_unavailable = Amount::read("spec.maxUnavailable", self.max_unavailable.as_ref())?;
        let partition =
            u32::try_from(self.partition.unwrap_or_default()).map_err(|_| BadField {
                field: "spec.partition",
                problem: "must not be negative".into(),
            })?;
        Ok(Rollout {
            max_unavailable: max_unavailable.unwrap_or(Amount::Members(1)),
            partition,
            paused: self.paused.unwrap_or_default(),
            removal: self.rollout.removal.unwrap_or_default(),
            non_serving: self.rollout.non_serving.unwrap_or_default(),
            sidecar_first: self.rollout.sidecar_first.unwrap_or_default(),
            progress_deadline: self
                .rollout
                .progress_deadline(Policy::default().progress_deadline)?,
        })
    }
}
