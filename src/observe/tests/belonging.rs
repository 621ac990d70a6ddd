use serde_json::json;

use super::pod;
use crate::observe::belonging::{Belonging, belonging, named_after, ordinal};
use crate::quorum::Ordinal;

#[test]
fn a_pod_belongs_to_the_stateful_set_that_controls_it() {
    let of_set = Belonging::ToSet {
        name: "etcd".into(),
        uid: "set-1".into(),
    };
    assert_eq!(belonging(&pod(&json!({})).metadata), of_set);
}

#[test]
fn druids_compaction_pod_is_foreign_whatever_its_labels() {
    let compaction = pod(&json!({"metadata": {
        "name": "etcd-compactor-0",
        "labels": {"app.kubernetes.io/managed-by": "etcd-druid", "app.kubernetes.io/part-of": "etcd"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "etcd-compactor", "uid": "j", "controller": true}],
    }}));
    assert_eq!(belonging(&compaction.metadata), Belonging::Foreign);
    assert_eq!(
        named_after(&compaction.metadata),
        Some("etcd-compactor".into())
    );
}

#[test]
fn an_owner_that_does_not_control_is_no_owner() {
    let mentioned = pod(&json!({"metadata": {"ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "j"},
    ]}}));
    assert_eq!(
        belonging(&mentioned.metadata),
        Belonging::Orphan { of: "etcd".into() }
    );
}

#[test]
fn a_stateful_set_of_another_group_is_foreign() {
    let kruise = pod(&json!({"metadata": {"ownerReferences": [
        {"apiVersion": "apps.kruise.io/v1beta1", "kind": "StatefulSet", "name": "etcd", "uid": "k", "controller": true},
    ]}}));
    assert_eq!(belonging(&kruise.metadata), Belonging::Foreign);
    assert_eq!(named_after(&kruise.metadata), Some("etcd".into()));
}

#[test]
fn a_pod_without_owner_is_an_orphan_where_it_may_have_been_of_a_set() {
    let orphan = pod(&json!({"metadata": {"ownerReferences": null}}));
    assert_eq!(
        belonging(&orphan.metadata),
        Belonging::Orphan { of: "etcd".into() }
    );
    assert_eq!(named_after(&orphan.metadata), Some("etcd".into()));
    let bare =
        pod(&json!({"metadata": {"name": "shell", "labels": null, "ownerReferences": null}}));
    assert_eq!(belonging(&bare.metadata), Belonging::Foreign);
    assert_eq!(named_after(&bare.metadata), None);
}

#[test]
fn an_ordinal_counts_only_after_the_sets_own_name() {
    assert_eq!(ordinal("etcd", &"etcd-2".into()), Some(Ordinal(2)));
    assert_eq!(ordinal("etcd", &"etcd-main-2".into()), None);
    assert_eq!(
        ordinal("etcd-main", &"etcd-main-2".into()),
        Some(Ordinal(2))
    );
}
