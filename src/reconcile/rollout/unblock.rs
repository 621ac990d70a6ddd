//! The help for the StatefulSet controller under `RollingUpdate`, where that controller updates: a
//! broken member that keeps it from continuing is replaced.
//!
//! If the strategy states only its type, the StatefulSet controller creates pods of low ordinals
//! with their old revision. Then a replacement would help nothing, and by its own rules that
//! controller would delete and create the pod for ever. So the gate writes the partition 0 into the
//! spec, which changes nothing else, and the pod is created with the new revision.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::desired::live_partition;
use crate::quorum::{ClusterRef, PodName};

/// The field manager of the partition.
const FIELD_MANAGER: &str = "quorumgate-unblocks";
/// The pause before a member is replaced again: one that is broken with this revision too, or that
/// comes back with the old one because another client keeps writing the strategy.
const AGAIN: Duration = Duration::from_secs(60);

/// The replaced members, each with its revision and the time, and the time at which the partition
/// was written.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    members: HashMap<PodName, (Option<String>, Instant)>,
    partition: Option<Instant>,
}

impl Replaced {
    /// Whether the pod may be replaced for this revision.
    pub(super) fn may_go(&self, pod: &PodName, target: Option<&str>, now: Instant) -> bool {
        self.members.get(pod).is_none_or(|(revision, since)| {
            revision.as_deref() != target || now.saturating_duration_since(*since) >= AGAIN
        })
    }

    /// Records that the pod was replaced, or that this was tried.
    pub(super) fn note(&mut self, pod: &PodName, target: Option<&str>, now: Instant) {
        let noted = (target.map(str::to_owned), now);
        self.members.insert(pod.clone(), noted);
    }

    /// Whether the partition may be written now. It is not written again and again while another
    /// client keeps removing it.
    pub(super) fn may_write_partition(&self, now: Instant) -> bool {
        self.partition
            .is_none_or(|written| now.saturating_duration_since(written) >= AGAIN)
    }

    /// Records that the partition was written, or that this was tried.
    pub(super) fn note_partition(&mut self, now: Instant) {
        self.partition = Some(now);
    }
}

/// Writes the partition into the spec.
pub(super) async fn write_partition(
    client: &Client,
    cluster: &ClusterRef,
    patch: &Value,
) -> Result<(), Error> {
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), &cluster.namespace);
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.into()),
        ..PatchParams::default()
    };
    let patched = sets
        .patch(&cluster.name, &params, &Patch::Merge(patch))
        .await;
    match patched {
        Ok(_) => Ok(()),
        // The StatefulSet has changed, and will be read again.
        Err(Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// The patch that writes the partition, for exactly the version that was seen. `None` if the spec
/// has a partition.
pub(super) fn partition(set: &StatefulSet) -> Option<Value> {
    live_partition(set).is_none().then(|| {
        json!({
            "metadata": {"uid": set.uid(), "resourceVersion": set.resource_version()},
            "spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}},
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_strategy_that_says_no_more_than_its_type_gets_a_partition() {
        let with = |strategy: Value| -> StatefulSet {
            serde_json::from_value(json!({
                "metadata": {"uid": "u", "resourceVersion": "7"},
                "spec": {
                    "serviceName": "etcd", "selector": {}, "template": {},
                    "updateStrategy": strategy,
                },
            }))
            .unwrap()
        };
        let bare = with(json!({"type": "RollingUpdate"}));
        assert_eq!(
            partition(&bare),
            Some(json!({
                "metadata": {"uid": "u", "resourceVersion": "7"},
                "spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}},
            }))
        );
        for said in [0, 2] {
            let rolling = json!({"partition": said, "maxUnavailable": 1});
            let set = with(json!({"type": "RollingUpdate", "rollingUpdate": rolling}));
            assert_eq!(partition(&set), None);
        }
    }

    #[tokio::test]
    async fn a_member_that_comes_back_broken_is_not_replaced_again_and_again() {
        let (mut replaced, now) = (Replaced::default(), Instant::now());
        let (a, b) = ("etcd-0".into(), "etcd-1".into());
        replaced.note(&a, Some("new"), now);
        let soon = now + AGAIN / 2;
        assert!(!replaced.may_go(&a, Some("new"), soon));
        assert!(replaced.may_go(&b, Some("new"), soon));
        assert!(replaced.may_go(&a, Some("newer"), soon));
        assert!(replaced.may_go(&a, Some("new"), now + AGAIN));
    }
}
