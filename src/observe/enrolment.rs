//! Whether a StatefulSet without a budget is meant to have one.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;

use crate::api::names;

/// Whether the StatefulSet is enrolled by its labels: the gate's own, or etcd-druid's.
pub fn is_enrolled(set: &StatefulSet) -> bool {
    set.metadata.labels.as_ref().is_some_and(labels_enrol)
}

/// Whether a StatefulSet with these labels is enrolled by them.
pub fn labels_enrol(labels: &BTreeMap<String, String>) -> bool {
    is(labels, names::ENROLL, names::TRUE) || are_of_druid(labels)
}

/// Whether these are the labels of a StatefulSet that etcd-druid made, or of one of its pods.
pub(super) fn are_of_druid(labels: &BTreeMap<String, String>) -> bool {
    is(labels, names::MANAGED_BY, names::MANAGED_BY_DRUID)
        && is(labels, names::COMPONENT, names::COMPONENT_STATEFUL_SET)
}

fn is(labels: &BTreeMap<String, String>, key: &str, value: &str) -> bool {
    labels.get(key).is_some_and(|found| found == value)
}
