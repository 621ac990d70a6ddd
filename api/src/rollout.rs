//! How a rollout replaces members.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Bounds;
use super::{Amount, BadField, QuorumDisruptionBudgetSpec, WindowSpec};
use quorumgate_core::quorum::Policy;

/// How a rollout replaces members, and how long it waits.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSpec {
    /// How the rollout removes an outdated pod. Default: `Delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Removal")]
    #[schemars(extend("default" = "Delete"))]
    pub removal: Option<Removal>,
    /// Whether outdated members that do not serve are replaced one by one or all at once (DEP-06).
    /// Default: `OneAtATime`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "NonServing")]
    #[schemars(extend("default" = "OneAtATime"))]
    pub non_serving: Option<NonServing>,
    /// If true, serving members with an unhealthy container beside etcd (such as
    /// etcd-backup-restore) are replaced before the other serving members. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub sidecar_first: Option<bool>,
    /// Whether an updated member that serves holds the rollout (`Hold`) where a container beside
    /// etcd alone keeps its pod from being Ready. Default: `Ignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Sidecars")]
    #[schemars(extend("default" = "Ignore"))]
    pub sidecars: Option<Sidecars>,
    /// How long an updated member may take until it serves, and a learner until it catches up
    /// further, from 10s to 24h. After that the rollout stops and the condition Progressing is
    /// False. Default: 10m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "progress_deadline_schema")]
    #[schemars(extend("default" = "10m"))]
    pub progress_deadline: Option<String>,
    /// How long an updated member must serve until the next serving member is replaced, up to 24h.
    /// A restart of etcd begins anew. The StatefulSet's minReadySeconds counts if it is longer.
    /// Default: 0s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "soak_schema")]
    #[schemars(extend("default" = "0s"))]
    pub soak: Option<String>,
    /// The hours of the day in which serving members are replaced. Outside of them a rollout waits,
    /// also one that has begun. Members that do not serve are replaced at any time. Default: the
    /// whole day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WindowSpec")]
    pub window: Option<WindowSpec>,
    /// If true, a rollout takes its first serving member only while the latest snapshot is younger
    /// than spec.backups.maxAge, as the Leases of etcd-backup-restore tell. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub require_recent_backup: Option<bool>,
    /// How long the quorum must have been lost without interruption before the rollout may replace
    /// a member that is alive (DEP-06), from 7s to 24h. Default: 5m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "quorum_loss_grace_period_schema")]
    #[schemars(extend("default" = "5m"))]
    pub quorum_loss_grace_period: Option<String>,
}

/// Ways to remove an outdated pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Removal {
    /// Deletes the pod.
    #[default]
    Delete,
    /// Evicts the pods of serving members, so that PodDisruptionBudgets apply to them, and deletes
    /// the others.
    EvictHealthy,
}

/// Order in which outdated members that do not serve are replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum NonServing {
    /// Replaces one after another.
    #[default]
    OneAtATime,
    /// Replaces all at once whose deletion is no risk to the quorum.
    AllAtOnce,
}

/// Whether a rollout waits for containers beside etcd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Sidecars {
    /// Goes on when etcd's container is ready.
    #[default]
    Ignore,
    /// Waits until the whole pod is Ready.
    Hold,
}

/// The budget's choices about rollouts, with the default of every field that is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Most members that the rollout may have out at once.
    pub max_unavailable: Amount,
    /// The lowest ordinal that is updated.
    pub partition: u32,
    /// Whether the rollout begins no new step.
    pub paused: bool,
    /// See [`RolloutSpec::removal`].
    pub removal: Removal,
    /// See [`RolloutSpec::non_serving`].
    pub non_serving: NonServing,
    /// See [`RolloutSpec::sidecar_first`].
    pub sidecar_first: bool,
    /// See [`RolloutSpec::sidecars`].
    pub sidecars: Sidecars,
    /// See [`RolloutSpec::progress_deadline`].
    pub progress_deadline: Duration,
    /// See [`RolloutSpec::soak`].
    pub soak: Duration,
}

const PROGRESS_DEADLINE: Bounds = Bounds {
    field: "spec.rollout.progressDeadline",
    least: "10s",
    most: "24h",
};

const SOAK: Bounds = Bounds {
    field: "spec.rollout.soak",
    least: "0s",
    most: "24h",
};

/// A lost quorum is confirmed over at least 7 s, so a shorter period would mean nothing.
const QUORUM_LOSS_GRACE_PERIOD: Bounds = Bounds {
    field: "spec.rollout.quorumLossGracePeriod",
    least: "7s",
    most: "24h",
};

fn progress_deadline_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    PROGRESS_DEADLINE.schema(generator)
}

fn soak_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    SOAK.schema(generator)
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
    /// The budget's choices about rollouts.
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
            sidecars: self.rollout.sidecars.unwrap_or_default(),
            progress_deadline: self
                .rollout
                .progress_deadline(Policy::default().progress_deadline)?,
            soak: SOAK.read(self.rollout.soak.as_ref(), Duration::ZERO)?,
        })
    }
}
