//! The Kubernetes API of quorumgate: the `QuorumDisruptionBudget` and the names that people write on other objects.
//!
//! Types, their schema and typed access to what they say. Whatever the schema refuses is refused here too, in words, because
//! an object may be older than its schema.

mod amount;
mod auth;
#[expect(
    unreachable_pub,
    reason = "`KubeSchema` derives a copy of the type that nobody else sees"
)]
mod budget;
mod crds;
pub mod dns;
mod duration;
mod enforcement;
mod grant;
mod member;
pub mod names;
mod policy;
mod progress;
mod recorded;
mod rollout;
mod status;
mod tls;

pub use amount::Amount;
pub use auth::{AuthSpec, UserSecret};
pub use budget::{MembersSpec, QuorumDisruptionBudget, QuorumDisruptionBudgetSpec};
pub use crds::crds_yaml;
pub use enforcement::Enforcement;
pub use grant::{CauseStatus, GrantStatus, cause_kind};
pub use member::{MemberRole, MemberStatus};
pub use policy::{EvidenceSource, PolicySpec, WhoMay};
pub use progress::{RolloutStatus, StepStatus, WaitingStatus};
pub use recorded::{
    LeaderMoveStatus, OwnerStatus, RecordedDelete, RecordedDeletes, RecordedScaleIn,
    ScaleOutStatus, StatefulSetStatus,
};
pub use rollout::{NonServing, Removal, Rollout, RolloutSpec};
pub use status::{
    LedgerStatus, QuorumDisruptionBudgetStatus, StrategyChoice, UpdateStrategyStatus, Updater,
    condition,
};
pub use tls::{CaSecret, ClientSecret, TlsSpec};

/// A field of a budget's `spec` that says something its schema would not have let in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct BadField {
    /// Its path, for example `spec.members.probeTimeout`.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

/// Whether a part of a spec says nothing, and so need not be written out.
fn is_default<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

#[cfg(test)]
mod tests;
