//! The roles of members, from their Leases.

use k8s_openapi::api::coordination::v1::Lease;

use crate::quorum::PodName;
use crate::quorum::pod::LeaseRole;

/// The role in a Lease's holder: `member:role`, or `member:cluster:role`.
pub(super) fn role(lease: &Lease) -> Option<LeaseRole> {
    let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
    let mut fields = holder.split(':');
    match (fields.next(), fields.next(), fields.next(), fields.next()) {
        (Some(_), Some(role), None, None) | (Some(_), Some(_), Some(role), None) => {
            Some(match role {
                "Leader" => LeaseRole::Leader,
                _ => LeaseRole::Follower,
            })
        }
        _ => None,
    }
}

/// The role of a pod's member, among the Leases of the namespace. A member has the name of its pod,
/// sometimes with a prefix.
pub(super) fn role_of(pod: &PodName, leases: &[Lease]) -> Option<LeaseRole> {
    let named = |matches: &dyn Fn(&str) -> bool| {
        leases
            .iter()
            .find(|lease| lease.metadata.name.as_deref().is_some_and(matches))
    };
    let lease = named(&|name| name == pod.as_str()).or_else(|| named(&|name| pod.names(name)));
    role(lease?)
}
