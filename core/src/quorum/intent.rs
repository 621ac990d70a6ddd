//! A person's announcement of what becomes of a cluster.

/// A person's announcement (annotation `quorumgate.io/intent`).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr, strum::VariantNames,
)]
#[strum(serialize_all = "kebab-case")]
pub enum Intent {
    /// The cluster is to be deleted.
    Delete,
    /// All members are to be stopped by `spec.replicas: 0`.
    Hibernate,
    /// Members are to be removed by a lower `spec.replicas`.
    ScaleIn,
    /// The members are to start a new cluster with empty volumes. No change of the StatefulSet is
    /// permitted by that.
    Bootstrap,
}
