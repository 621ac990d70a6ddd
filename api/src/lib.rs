//! The Kubernetes API of quorumgate: the `QuorumDisruptionBudget`, and the labels and annotations
//! on other objects.
//!
//! The doc comments of the types are also the descriptions of the custom resource definition, which
//! `kubectl explain` shows. Values that the schema refuses are refused here as well, since an
//! object may be older than its schema.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod amount;
mod auth;
mod backups;
#[expect(
    unreachable_pub,
    reason = "`KubeSchema` derives a copy of the type that nobody else sees"
)]
mod budget;
pub mod call_path;
mod container;
mod crds;
mod data_protection;
mod defragmentation;
pub mod dns;
mod duration;
mod enforcement;
#[expect(
    clippy::duplicated_attributes,
    reason = "each column has a name, a type and a path"
)]
pub mod etcd_member;
mod grant;
mod member;
pub mod names;
mod override_until;
mod policy;
mod progress;
mod recorded;
mod rollout;
mod status;
#[expect(
    unreachable_pub,
    reason = "`KubeSchema` derives a copy of the type that nobody else sees"
)]
mod tls;
mod volume;
mod way;
mod window;

pub use amount::Amount;
pub use auth::{AuthSpec, UserSecret};
pub use backups::BackupsSpec;
pub use budget::{MembersSpec, QuorumDisruptionBudget, QuorumDisruptionBudgetSpec};
pub use container::{ON_THE_WAY, container_trouble, idle_containers, last_end};
pub use crds::{crds_yaml, etcd_members_crd_yaml};
pub use data_protection::{
    DataProtectionSpec, EphemeralData, Membership, RecoveryPhase, RecoveryStatus, ReplaceMode,
    ReplacementStatus,
};
pub use defragmentation::{
    Defragmentation, DefragmentationMode, DefragmentationSpec, DefragmentationStatus,
};
pub use enforcement::Enforcement;
pub use grant::{CauseStatus, GrantStatus, cause_kind};
pub use member::{AppliedStatus, DataPlace, HeldStatus, MemberRole, MemberStatus};
pub use override_until::{OverrideState, standing};
pub use policy::{EvidenceSource, PolicySpec, SnapshotSource, WhoMay};
pub use progress::{RolloutStatus, StepStatus, WaitingStatus};
pub use recorded::{
    AnnouncementStatus, EtcdDirectories, LeaderMoveStatus, OrdinalRange, OwnerStatus,
    RecordedDelete, RecordedDeletes, RecordedEtcd, RecordedScaleIn, ScaleOutStatus,
    StatefulSetStatus,
};
pub use rollout::{NonServing, Removal, Rollout, RolloutSpec, Sidecars};
pub use status::{
    DataLossStatus, LedgerStatus, LogEndStatus, QuorumDisruptionBudgetStatus, RefillStatus,
    StrategyChoice, UpdateStrategyStatus, Updater, condition,
};
pub use tls::{CaConfigMap, CaSecret, ClientSecret, TlsSpec};
pub use volume::VolumeStatus;
pub use way::{AuthoritySource, IdentitySource, PortSource, Scheme, SourceKind, Way};
pub use window::{Day, Window, WindowSpec};

/// An invalid value in the `spec` of a budget. The schema refuses such values too, unless the
/// object is older than the schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct BadField {
    /// The path of the field, for example `spec.members.probeTimeout`.
    pub field: &'static str,
    /// The problem with the value.
    pub problem: String,
}

/// Whether a part of a spec equals its default and is not written out.
fn is_default<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

#[cfg(test)]
mod tests;
