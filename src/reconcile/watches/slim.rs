//! The parts of objects that the caches are asked for. The objects are small compared with pods and
//! StatefulSets, so they are cached as what they are, with the rest left out.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Node, NodeSpec, NodeStatus};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    Condition, LabelSelector, OwnerReference, Time,
};
use kube::api::ObjectMeta;
use kube::core::{DeserializeGuard, error_boundary::InvalidObject};
use serde::{Deserialize, Deserializer};
use tracing::warn;

use crate::api::{
    MemberRole, QuorumDisruptionBudget, QuorumDisruptionBudgetStatus, condition, names,
};
use crate::quorum::ClusterRef;

/// Reads the metadata of an object without its managed fields, which are most of it. A watch goes
/// on from its resourceVersion.
pub(super) fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Read {
        name: Option<String>,
        namespace: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        deletion_timestamp: Option<Time>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let read = Read::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        resource_version: read.resource_version,
        generation: read.generation,
        deletion_timestamp: read.deletion_timestamp,
        labels: read.labels,
        annotations: read.annotations,
        owner_references: read.owner_references,
        ..ObjectMeta::default()
    })
}

/// Drops the managed fields, and the spare room of lists.
pub(super) fn trim(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    meta.owner_references
        .iter_mut()
        .for_each(Vec::shrink_to_fit);
    meta.finalizers.iter_mut().for_each(Vec::shrink_to_fit);
}

/// The budget, or an empty one in place of a budget that cannot be read, as after a downgrade. One
/// unreadable object among a thousand must not end the watch of all. The empty budget keeps its
/// namespace under the webhooks, and keeps enrolment from creating another one. Code that decides
/// or writes reads the ledger itself, and gets the error there.
fn or_empty(budget: DeserializeGuard<QuorumDisruptionBudget>) -> QuorumDisruptionBudget {
    match budget.0 {
        Ok(budget) => budget,
        Err(InvalidObject { error, metadata }) => {
            let cluster = ClusterRef::new(
                metadata.namespace.as_deref().unwrap_or_default(),
                metadata.name.as_deref().unwrap_or_default(),
            );
            warn!(
                %cluster,
                error,
                "cannot read the QuorumDisruptionBudget: pods of this cluster stay but for overrides and teardowns; fix the budget, or run the version of the gate that wrote it"
            );
            let mut empty = QuorumDisruptionBudget::with_defaults(&cluster);
            empty.metadata = metadata;
            empty
        }
    }
}

/// A budget with what its cache is asked for: whom it enrols, what its ledger has open, and what of
/// its status is unusual. The record of a healthy cluster is most of it.
pub(super) fn budget(read: DeserializeGuard<QuorumDisruptionBudget>) -> QuorumDisruptionBudget {
    let mut budget = or_empty(read);
    let meta = &mut budget.metadata;
    meta.owner_references = None;
    // An empty map would keep its memory.
    meta.annotations = meta
        .annotations
        .take()
        .map(|mut annotations| {
            let asked = [names::DEFRAGMENT, names::RECOVER];
            let asked = asked.into_iter();
            asked
                .filter_map(|name| annotations.remove_entry(name))
                .collect::<BTreeMap<_, _>>()
        })
        .filter(|asked| !asked.is_empty());
    if let Some(status) = &mut budget.status {
        status.leader = None;
        status.selector = None;
        status.update_strategy = None;
        status.volumes = Vec::new();
        status.defragmentations = Vec::new();
        status.replacements.retain(|r| r.completion_time.is_none());
        status.members.retain(|m| m.role == MemberRole::Learner);
        status
            .conditions
            .retain(|shown| is_unease(shown) || IN_CACHE.contains(&shown.type_.as_str()));
        status.conditions.iter_mut().for_each(|c| c.message.clear());
        status.replacements.shrink_to_fit();
        status.members.shrink_to_fit();
        status.conditions.shrink_to_fit();
    }
    budget
}

/// The longest selector that is kept, in bytes of its keys and values.
const LONGEST_SELECTOR: usize = 8 * 1024;

/// A `PodDisruptionBudget` without its status, which changes with each of its pods. Anybody with
/// `edit` may write budgets of a mebibyte: a selector that is too long counts as that of all pods,
/// for which the gate writes no budget of its own beside it.
pub(super) fn disruption_budget(mut budget: PodDisruptionBudget) -> PodDisruptionBudget {
    budget.metadata.annotations = None;
    budget.metadata.managed_fields = None;
    let labels = budget.metadata.labels.iter_mut();
    labels.for_each(|labels| labels.retain(|key, _| key == names::MANAGED_BY));
    budget.status = None;
    let selector = budget.spec.iter_mut().filter_map(|s| s.selector.as_mut());
    selector
        .filter(|selector| length(selector) > LONGEST_SELECTOR)
        .for_each(|selector| *selector = LabelSelector::default());
    budget
}

fn length(selector: &LabelSelector) -> usize {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| key.len() + value.len());
    let terms = selector.match_expressions.iter().flatten();
    let terms = terms.map(|term| {
        let values = term.values.iter().flatten();
        term.key.len() + values.map(String::len).sum::<usize>()
    });
    labels.chain(terms).sum()
}

/// A namespace with its labels, any of which a webhook may select by.
pub(super) fn namespace(mut namespace: Namespace) -> Namespace {
    namespace.metadata.annotations = None;
    namespace.spec = None;
    namespace.status = None;
    namespace
}

/// A node with its taints and its readiness.
pub(super) fn node(mut node: Node) -> Node {
    node.metadata.labels = None;
    node.metadata.annotations = None;
    let spec = node.spec.take().unwrap_or_default();
    node.spec = Some(NodeSpec {
        taints: spec.taints,
        ..NodeSpec::default()
    });
    let mut conditions = node.status.take().and_then(|status| status.conditions);
    if let Some(conditions) = &mut conditions {
        conditions.retain(|condition| condition.type_ == "Ready");
    }
    node.status = Some(NodeStatus {
        conditions,
        ..NodeStatus::default()
    });
    node
}

/// Whether a status shows a state whose duration a rule needs.
pub(in crate::reconcile) fn shows_unease(status: &QuorumDisruptionBudgetStatus) -> bool {
    let unhealthy = status.conditions.iter().any(is_unease);
    unhealthy || status.members.iter().any(|m| m.role == MemberRole::Learner)
}

/// Whether a condition shows a state whose duration a rule needs.
/// The conditions by which an operation knows that it has work.
const IN_CACHE: [&str; 2] = [condition::SCALED, condition::RECOVERED];

fn is_unease(shown: &Condition) -> bool {
    shown.type_ == condition::QUORUM_HEALTHY && shown.status != "True"
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use kube::ResourceExt as _;

    use super::*;
    use crate::api::condition;
    use crate::ledger::trust_record;
    use crate::reconcile::enrol::made_here;

    #[test]
    fn a_disruption_budget_is_small_however_long_its_selector_is() {
        let budget = |labels: usize| {
            let labels: BTreeMap<String, String> = (0..labels)
                .map(|n| (format!("label-{n}"), "x".repeat(60)))
                .collect();
            let budget = disruption_budget(
                serde_json::from_value(json!({
                    "metadata": {
                        "name": "a", "labels": {names::MANAGED_BY: "quorumgate", "more": "of it"},
                    },
                    "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
                }))
                .unwrap(),
            );
            assert_eq!(budget.labels().len(), 1);
            budget.spec.unwrap().selector.unwrap()
        };
        assert_eq!(budget(2).match_labels.unwrap().len(), 2);
        // An empty selector is that of all pods.
        assert_eq!(budget(20_000), LabelSelector::default());
    }

    fn cached(whole: &QuorumDisruptionBudget) -> QuorumDisruptionBudget {
        super::budget(DeserializeGuard(Ok(whole.clone())))
    }

    fn whole(healthy: &str) -> QuorumDisruptionBudget {
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "Because", "message": "so it is",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            })
        };
        let cause = json!({
            "seq": 3, "kind": "Delete", "time": "2026-01-01T00:00:00Z", "by": "somebody",
        });
        serde_json::from_value(json!({
            "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
            "metadata": {
                "name": "etcd", "namespace": "db", "uid": "1", "generation": 4,
                "labels": {names::MANAGED_BY: "quorumgate"},
                "annotations": {names::DEFRAGMENT: "now", "more": "of it"},
            },
            "spec": {"statefulSetName": "etcd", "partition": 1},
            "status": {
                "clusterId": "cafe", "leader": "a", "selector": "app=etcd",
                "ledger": {"trusted": true, "budgetUid": "1", "epoch": 2, "inForceBy": "hooks"},
                "scaleOut": {"to": 3},
                "leaderMove": {"from": "a", "to": "b", "term": 7},
                "rollout": {"target": "new", "updated": 1, "targets": 2},
                "grants": [{"member": "etcd-0", "causes": [cause]}],
                "conditions": [condition(condition::QUORUM_HEALTHY, healthy), condition("Other", "True")],
            },
        }))
        .unwrap()
    }

    #[test]
    fn a_cached_budget_tells_workers_and_stopwatches_what_the_whole_one_tells() {
        for healthy in ["True", "False"] {
            let whole = whole(healthy);
            let cached = cached(&whole);
            assert_eq!(trust_record(&cached), trust_record(&whole));
            assert!(made_here(&cached));
            assert_eq!(cached.spec, whole.spec);
            let (of_cached, of_whole) = (&cached.metadata, &whole.metadata);
            assert_eq!(of_cached.generation, of_whole.generation);
            assert_eq!(of_cached.uid, of_whole.uid);
            let asked = cached.annotations().get(names::DEFRAGMENT);
            assert_eq!(asked, whole.annotations().get(names::DEFRAGMENT));
            let (cached, whole) = (cached.status.unwrap(), whole.status.unwrap());
            assert_eq!(shows_unease(&cached), shows_unease(&whole));
            assert_eq!(shows_unease(&cached), healthy == "False");
            assert_eq!(cached.cluster_id, whole.cluster_id);
            assert_eq!(cached.grants, whole.grants);
            assert_eq!(cached.ledger, whole.ledger);
            assert_eq!(cached.scale_out, whole.scale_out);
            assert_eq!(cached.leader_move, whole.leader_move);
            assert_eq!(cached.rollout, whole.rollout);
            assert!(cached.conditions.len() < whole.conditions.len());
        }
    }

    #[test]
    fn a_cached_budget_shows_learners_and_open_replacements_only() {
        let member = |name: &str, role: &str| json!({"name": name, "role": role, "serving": true});
        let mut whole = serde_json::to_value(whole("True")).unwrap();
        whole["status"]["members"] = json!([member("a", "Voter"), member("b", "Learner")]);
        let whole: QuorumDisruptionBudget = serde_json::from_value(whole).unwrap();
        let cached = cached(&whole).status.unwrap();
        let roles: Vec<_> = cached.members.iter().map(|member| member.role).collect();
        assert_eq!(roles, [MemberRole::Learner]);
        assert!(shows_unease(&cached));
    }

    #[test]
    fn an_annotation_that_nobody_asks_for_leaves_no_map_behind() {
        let mut whole = whole("True");
        let annotations = whole.metadata.annotations.as_mut().unwrap();
        annotations.remove(names::DEFRAGMENT).unwrap();
        assert!(!annotations.is_empty());
        assert_eq!(cached(&whole).metadata.annotations, None);
    }

    #[test]
    fn a_cached_object_has_no_managed_fields_and_no_spare_room() {
        let mut meta: ObjectMeta = serde_json::from_value(json!({
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": "1"}],
            "finalizers": ["quorumgate.io/budget"],
        }))
        .unwrap();
        meta.owner_references.as_mut().unwrap().reserve(8);
        meta.finalizers.as_mut().unwrap().reserve(8);
        trim(&mut meta);
        assert_eq!(meta.managed_fields, None);
        let (owners, finalizers) = (meta.owner_references.unwrap(), meta.finalizers.unwrap());
        assert_eq!((owners.len(), owners.capacity()), (1, 1));
        assert_eq!((finalizers.len(), finalizers.capacity()), (1, 1));
    }

    #[test]
    fn a_cached_node_has_its_taints_and_its_readiness() {
        let node: Value = json!({
            "metadata": {"name": "n1", "labels": {"zone": "a"}, "annotations": {"more": "of it"}},
            "spec": {
                "podCIDR": "10.0.0.0/24",
                "taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}],
            },
            "status": {
                "conditions": [
                    {"type": "DiskPressure", "status": "False"},
                    {"type": "Ready", "status": "Unknown"},
                ],
                "images": [{"names": ["etcd"]}],
            },
        });
        let cached = super::node(serde_json::from_value(node.clone()).unwrap());
        let expected: Node = serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "spec": {"taints": node["spec"]["taints"]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        }))
        .unwrap();
        assert_eq!(cached, expected);
    }

    #[test]
    fn a_cached_namespace_is_selected_as_the_whole_one_and_has_its_end() {
        let namespace: Namespace = serde_json::from_value(json!({
            "metadata": {
                "name": "db", "deletionTimestamp": "2026-01-01T00:00:00Z",
                "labels": {names::GATED: names::TRUE, "kubernetes.io/metadata.name": "db"},
                "annotations": {"more": "of it"},
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Terminating"},
        }))
        .unwrap();
        let cached = super::namespace(namespace.clone());
        let (cached, whole) = (cached.metadata, namespace.metadata);
        assert_eq!(cached.deletion_timestamp, whole.deletion_timestamp);
        assert_eq!(cached.labels, whole.labels);
    }
}
