//! Whether a StatefulSet without a budget should have one.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;

use crate::api::names;

/// Whether the labels of the StatefulSet enrol it, by the gate's own label or as a cluster of
/// etcd-druid.
pub fn is_enrolled(set: &StatefulSet) -> bool {
    set.metadata.labels.as_ref().is_some_and(labels_enrol)
}

/// Whether these labels enrol a StatefulSet.
pub fn labels_enrol(labels: &BTreeMap<String, String>) -> bool {
    match labels.get(names::ENROLL).map(String::as_str) {
        Some(names::TRUE) => true,
        Some(names::FALSE) => false,
        Some(_) | None => are_of_druid(labels),
    }
}

/// Whether the StatefulSet's label keeps the gate from enrolling it, whatever operator made it. A
/// budget that a person wrote counts all the same.
pub fn opts_out(set: &StatefulSet) -> bool {
    set.metadata.labels.as_ref().is_some_and(labels_opt_out)
}

/// Whether these labels keep the gate from enrolling a StatefulSet.
pub fn labels_opt_out(labels: &BTreeMap<String, String>) -> bool {
    is(labels, names::ENROLL, names::FALSE)
}

/// Whether these are the labels of a StatefulSet of etcd-druid, or of one of its pods.
pub fn are_of_druid(labels: &BTreeMap<String, String>) -> bool {
    is(labels, names::MANAGED_BY, names::MANAGED_BY_DRUID)
        && is(labels, names::COMPONENT, names::COMPONENT_STATEFUL_SET)
}

fn is(labels: &BTreeMap<String, String>, key: &str, value: &str) -> bool {
    labels.get(key).is_some_and(|found| found == value)
}
