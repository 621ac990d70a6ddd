//! A small part of a StatefulSet: whether it is enrolled, its update strategy, and its revisions.
//! Its templates, which are most of it, are not even read.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetOrdinals, StatefulSetSpec, StatefulSetStatus, StatefulSetUpdateStrategy,
};
use kube::Resource;
use kube::api::ObjectMeta;
use serde::Deserialize;

use super::slim;
use crate::api::names::PREVIOUS_UPDATE_STRATEGY;
use crate::observe::{labels_enrol, labels_opt_out};
use crate::quorum::ClusterRef;

/// A StatefulSet without its templates, as a watch reads it.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = StatefulSet)]
pub(in crate::reconcile) struct SlimStatefulSet {
    #[serde(deserialize_with = "slim::metadata")]
    metadata: ObjectMeta,
    spec: Option<SlimSpec>,
    status: Option<StatefulSetStatus>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    replicas: Option<i32>,
    ordinals: Option<StatefulSetOrdinals>,
    update_strategy: Option<StatefulSetUpdateStrategy>,
}

/// The properties of a StatefulSet that matter for enrolment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) struct StatefulSetState {
    /// Whether its labels enrol it.
    pub(in crate::reconcile) is_enrolled: bool,
    /// Whether its labels keep it from being enrolled.
    pub(in crate::reconcile) opts_out: bool,
    /// Whether it is being deleted.
    pub(in crate::reconcile) terminates: bool,
}

/// A StatefulSet, as a cache keeps it.
#[derive(Debug)]
pub(in crate::reconcile) struct CachedSet {
    /// The properties that matter for enrolment.
    pub(in crate::reconcile) sight: StatefulSetState,
    generation: Option<i64>,
    /// The annotation that remembers the strategy that its owner chose.
    previous_strategy: Option<Box<str>>,
    replicas: Option<i32>,
    first_ordinal: Option<i32>,
    update_strategy: Option<StatefulSetUpdateStrategy>,
    status: Option<Box<StatefulSetStatus>>,
}

/// The remembered strategy, or one that cannot be read in place of one that the gate never wrote.
/// Anybody who may change a StatefulSet may write a long one.
fn bounded(previous: &str) -> &str {
    const LONGEST: usize = 4096;
    if previous.len() > LONGEST {
        ""
    } else {
        previous
    }
}

impl From<SlimStatefulSet> for CachedSet {
    fn from(set: SlimStatefulSet) -> Self {
        let SlimStatefulSet {
            metadata,
            spec,
            status,
        } = set;
        let labels = metadata.labels.as_ref();
        let annotations = metadata.annotations.as_ref();
        let previous = annotations.and_then(|a| a.get(PREVIOUS_UPDATE_STRATEGY));
        let spec = spec.as_ref();
        Self {
            sight: StatefulSetState {
                is_enrolled: labels.is_some_and(labels_enrol),
                opts_out: labels.is_some_and(labels_opt_out),
                terminates: metadata.deletion_timestamp.is_some(),
            },
            generation: metadata.generation,
            previous_strategy: previous.map(|previous| bounded(previous).into()),
            replicas: spec.and_then(|spec| spec.replicas),
            first_ordinal: spec.and_then(|spec| spec.ordinals.as_ref()?.start),
            update_strategy: spec.and_then(|spec| spec.update_strategy.clone()),
            status: status.map(|status| {
                Box::new(StatefulSetStatus {
                    conditions: None,
                    ..status
                })
            }),
        }
    }
}

impl CachedSet {
    /// A StatefulSet that has what is kept of it: its name, its generation, the remembered
    /// strategy, its replicas, its first ordinal, its update strategy and its status. It has no
    /// labels, see [`Self::sight`], and no templates.
    pub(in crate::reconcile) fn stateful_set(&self, cluster: &ClusterRef) -> StatefulSet {
        let previous = self.previous_strategy.as_deref();
        let previous = previous.map(|p| (PREVIOUS_UPDATE_STRATEGY.to_owned(), p.to_owned()));
        StatefulSet {
            metadata: ObjectMeta {
                namespace: Some(cluster.namespace.clone()),
                name: Some(cluster.name.clone()),
                generation: self.generation,
                annotations: previous.map(|previous| BTreeMap::from([previous])),
                ..ObjectMeta::default()
            },
            spec: Some(StatefulSetSpec {
                replicas: self.replicas,
                ordinals: self
                    .first_ordinal
                    .map(|start| StatefulSetOrdinals { start: Some(start) }),
                update_strategy: self.update_strategy.clone(),
                ..StatefulSetSpec::default()
            }),
            status: self.status.as_deref().cloned(),
        }
    }
}

#[cfg(test)]
pub(in crate::reconcile) fn cached(set: serde_json::Value) -> CachedSet {
    serde_json::from_value::<SlimStatefulSet>(set)
        .unwrap()
        .into()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodTemplateSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use kube::ResourceExt as _;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names;

    fn shown() -> Value {
        json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": "etcd", "namespace": "db", "resourceVersion": "41", "generation": 2,
                "labels": {"app": "etcd", names::ENROLL: names::TRUE},
                "annotations": {PREVIOUS_UPDATE_STRATEGY: "{}", "more": "of it"},
            },
            "spec": {
                "replicas": 3,
                "serviceName": "etcd",
                "ordinals": {"start": 1},
                "selector": {"matchLabels": {"app": "etcd"}},
                "updateStrategy": {"type": "OnDelete"},
                "template": {"spec": {"containers": [{"name": "etcd", "image": "etcd"}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
            },
            "status": {
                "replicas": 3, "observedGeneration": 2, "currentRevision": "etcd-0",
                "updateRevision": "etcd-1", "updatedReplicas": 1, "readyReplicas": 3,
            },
        })
    }

    #[test]
    fn a_cached_stateful_set_has_what_rollouts_and_strategies_ask_for() {
        let set: SlimStatefulSet = serde_json::from_value(shown()).unwrap();
        assert_eq!(set.resource_version().as_deref(), Some("41"));
        let set = CachedSet::from(set).stateful_set(&ClusterRef::new("db", "etcd"));
        let mut expected: StatefulSet = serde_json::from_value(shown()).unwrap();
        expected.metadata.resource_version = None;
        expected.metadata.labels = None;
        let annotations = expected.metadata.annotations.as_mut().unwrap();
        annotations.remove("more");
        let spec = expected.spec.as_mut().unwrap();
        spec.service_name = None;
        spec.selector = LabelSelector::default();
        spec.template = PodTemplateSpec::default();
        spec.volume_claim_templates = None;
        assert_eq!(set, expected);
    }

    #[test]
    fn the_labels_of_a_cached_stateful_set_are_what_they_say() {
        let sight = |labels: Value, deleted: Value| {
            let mut set = shown();
            set["metadata"]["labels"] = labels;
            set["metadata"]["deletionTimestamp"] = deleted;
            cached(set).sight
        };
        let enrolled = sight(json!({names::ENROLL: names::TRUE}), json!(null));
        assert!(enrolled.is_enrolled && !enrolled.opts_out && !enrolled.terminates);
        let out = sight(json!({names::ENROLL: names::FALSE}), json!(null));
        assert!(!out.is_enrolled && out.opts_out);
        let going = sight(json!(null), json!("2026-01-01T00:00:00Z"));
        assert!(!going.is_enrolled && !going.opts_out && going.terminates);
    }

    #[test]
    fn a_status_of_a_stateful_set_asks_for_no_enrolment() {
        let mut set = shown();
        let before = cached(set.clone()).sight;
        set["status"]["readyReplicas"] = json!(2);
        set["metadata"]["resourceVersion"] = json!("42");
        assert_eq!(cached(set.clone()).sight, before);
        set["metadata"]["labels"] = json!({});
        assert_ne!(cached(set).sight, before);
    }
}
