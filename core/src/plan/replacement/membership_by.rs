//! The one who changes etcd's member list.

/// `spec.dataProtection.membership` of the budget: who changes etcd's member list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MembershipBy {
    /// The gate.
    Gate,
    /// The member's own pod: its script removes and adds the member before etcd starts.
    Pod,
    /// A sidecar in the member's pod, such as etcd-druid's. It starts a new cluster where nothing
    /// tells it that it was a member: [`super::input::ReplacementInput::leases_held`],
    /// [`super::input::ReplacementInput::has_backup`].
    Sidecar,
    /// The owner of the StatefulSet: etcd-operator.
    Owner,
}
