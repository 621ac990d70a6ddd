//! The data that goes with a change of a StatefulSet, by its retention policy and by where it is.

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy};

use super::data_on::keeps_data_in_pods;
use crate::api::RecordedEtcd;
use crate::quorum::DataTaken;
use crate::quorum::stateful_set::Change;

/// The data that the change takes: claims, by the retention policy of the StatefulSet, or what is
/// in the pods.
pub fn takes_data(set: &StatefulSet, etcd: RecordedEtcd<'_>, change: &Change) -> Option<DataTaken> {
    match change {
        Change::Delete => taken(
            set,
            etcd,
            deletes_claims(set, |policy| &policy.when_deleted),
        ),
        Change::Resize { .. } => goes_with_pods(set, etcd),
    }
}

/// The data that goes with pods that the StatefulSet does not keep.
pub(super) fn goes_with_pods(set: &StatefulSet, etcd: RecordedEtcd<'_>) -> Option<DataTaken> {
    taken(set, etcd, ends_claims_with_pods(set))
}

/// Whether the claims of pods that are scaled in are deleted with them.
pub fn ends_claims_with_pods(set: &StatefulSet) -> bool {
    deletes_claims(set, |policy| &policy.when_scaled)
}

fn taken(set: &StatefulSet, etcd: RecordedEtcd<'_>, deletes_claims: bool) -> Option<DataTaken> {
    if deletes_claims {
        Some(DataTaken::Claims)
    } else {
        keeps_data_in_pods(set, etcd).then_some(DataTaken::InPods)
    }
}

fn deletes_claims(
    set: &StatefulSet,
    when: fn(&StatefulSetPersistentVolumeClaimRetentionPolicy) -> &Option<String>,
) -> bool {
    let spec = set.spec.as_ref();
    let policy = spec.and_then(|s| s.persistent_volume_claim_retention_policy.as_ref());
    policy.is_some_and(|policy| when(policy).as_deref() == Some("Delete"))
}
