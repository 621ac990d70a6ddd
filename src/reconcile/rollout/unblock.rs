//! Under `RollingUpdate` the StatefulSet controller updates. Where a broken member keeps it from going on, that one is replaced for it.
//!
//! Where the strategy says no more than its type, the StatefulSet controller creates a pod of a low ordinal with the revision that it
//! had: nothing would be won, and by its own rules it would delete and create it for ever. With the partition of 0 written out, which
//! means the same in every other respect, the pod comes back updated.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, Error, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::desired::live_partition;
use crate::quorum::{ClusterRef, PodName};

/// The name under which the partition is written.
const FIELD_MANAGER: &str = "quorumgate-unblocks";
/// A member that is broken with this revision too, or comes back with the old one because somebody else keeps writing the strategy, is not
/// replaced again before.
const AGAIN: Duration = Duration::from_secs(60);

/// The members that were replaced, each for which revision and when, and when the partition was written out.
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

    /// It was, or was tried to be.
    pub(super) fn note(&mut self, pod: &PodName, target: Option<&str>, now: Instant) {
        let noted = (target.map(str::to_owned), now);
        self.members.insert(pod.clone(), noted);
    }

    /// Whether the partition may be written out now. Not again and again, where somebody else keeps taking it away.
    pub(super) fn may_write_partition(&mut self, now: Instant) -> bool {
        let may = self
            .partition
            .is_none_or(|written| now.saturating_duration_since(written) >= AGAIN);
        if may {
            self.partition = Some(now);
        }
        may
    }
}

/// Writes the partition out.
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
        // It has changed: it is looked at anew.
        Err(Error::Api(status)) if status.is_conflict() || status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// What there is to write so that the partition stands there, to the version that was seen only; `None` where it does.
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
