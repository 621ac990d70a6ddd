//! A small part of a StatefulSet's pod: its cluster, its node and its revision. There may be tens
//! of thousands of pods. Changes of pods wake workers, for which this part is enough. Whole pods
//! would take most of the process's memory, and parsing them would be half of the work of a start.

use k8s_openapi::api::core::v1::{Pod, PodSchedulingGate};
use kube::api::ObjectMeta;
use kube::{Resource, ResourceExt as _};
use serde::Deserialize;

use super::cache::Place;
use super::slim;
use crate::api::names;
use crate::observe::{are_of_druid, named_after};
use crate::quorum::ClusterRef;

/// A pod with its owner, its node and its revision, as a watch or a list reads it.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub(in crate::reconcile) struct SlimPod {
    #[serde(deserialize_with = "slim::metadata")]
    metadata: ObjectMeta,
    spec: Option<Placed>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placed {
    node_name: Option<String>,
    scheduling_gates: Option<Vec<PodSchedulingGate>>,
}

impl SlimPod {
    /// Whether the pod waits for the gate's scheduling gate.
    pub(in crate::reconcile) fn is_held(&self) -> bool {
        let gates = self.spec.iter().flat_map(|spec| &spec.scheduling_gates);
        gates.flatten().any(|gate| gate.name == names::IDENTITY)
    }

    /// The pod's cluster, by the same rule as for verdicts.
    pub(in crate::reconcile) fn cluster(&self) -> Option<ClusterRef> {
        Some(ClusterRef::new(
            self.namespace()?,
            named_after(self.meta())?,
        ))
    }
}

/// A pod, as a cache keeps it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::reconcile) struct CachedPod {
    cluster: Option<Box<str>>,
    node: Option<Box<str>>,
    revision: Option<Box<str>>,
    is_druids: bool,
}

impl From<SlimPod> for CachedPod {
    fn from(pod: SlimPod) -> Self {
        let cluster = pod.cluster().map(|cluster| cluster.name.into());
        let revision = pod.labels().get(names::REVISION);
        let is_druids = are_of_druid(pod.labels());
        Self {
            is_druids,
            cluster,
            revision: revision.map(|revision| revision.as_str().into()),
            node: pod.spec.and_then(|spec| spec.node_name).map(Into::into),
        }
    }
}

impl CachedPod {
    /// The cluster of the pod at this place.
    pub(in crate::reconcile) fn cluster(&self, place: &Place) -> Option<ClusterRef> {
        let name = self.cluster.as_deref()?;
        Some(ClusterRef::new(place.namespace(), name))
    }

    /// Whether the pod has the labels of etcd-druid.
    pub(in crate::reconcile) fn is_druids(&self) -> bool {
        self.is_druids
    }

    /// The node that the pod is bound to.
    pub(in crate::reconcile) fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// The StatefulSet revision of the pod.
    pub(in crate::reconcile) fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use kube::api::{ObjectList, WatchEvent};
    use serde_json::{Value, json};

    use super::*;

    /// A shortened pod as an API server shows it.
    fn shown() -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "etcd-0",
                "namespace": "prod",
                "uid": "3c1e",
                "resourceVersion": "41",
                "labels": {"app": "etcd", names::REVISION: "etcd-5d4f", names::POD_NAME: "etcd-0"},
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Thing", "name": "other", "uid": "1"},
                    {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": "2", "controller": true},
                ],
                "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "etcd", "image": "etcd"}]},
            "status": {"phase": "Running"},
        })
    }

    #[test]
    fn owner_node_and_revision_are_kept() {
        let pod: SlimPod = serde_json::from_value(shown()).unwrap();
        let place = Place::from_object(&pod);
        let pod = CachedPod::from(pod);
        assert_eq!(pod.cluster(&place), Some(ClusterRef::new("prod", "etcd")));
        assert_eq!(pod.node(), Some("n1"));
        assert_eq!(pod.revision(), Some("etcd-5d4f"));
    }

    #[test]
    fn the_cluster_follows_the_rule_of_verdicts() {
        let mut orphan = shown();
        orphan["metadata"]["ownerReferences"] = json!(null);
        let orphan: SlimPod = serde_json::from_value(orphan).unwrap();
        assert_eq!(orphan.cluster(), Some(ClusterRef::new("prod", "etcd")));

        let mut kruise = shown();
        kruise["metadata"]["ownerReferences"][1]["apiVersion"] = json!("apps.kruise.io/v1beta1");
        let kruise: SlimPod = serde_json::from_value(kruise).unwrap();
        assert_eq!(kruise.cluster(), Some(ClusterRef::new("prod", "etcd")));

        let mut ghost = shown();
        ghost["metadata"]["ownerReferences"][1]["name"] = json!("ghost");
        let ghost: SlimPod = serde_json::from_value(ghost).unwrap();
        assert_eq!(ghost.cluster(), Some(ClusterRef::new("prod", "etcd")));
    }

    #[test]
    fn the_metadata_for_a_watch_and_its_cache_is_kept() {
        let deleted = json!({"type": "DELETED", "object": shown()}).to_string();
        let WatchEvent::Deleted(pod) =
            serde_json::from_str::<WatchEvent<SlimPod>>(&deleted).unwrap()
        else {
            panic!("{deleted} is read as something else");
        };
        assert_eq!(pod.resource_version().as_deref(), Some("41"));
        let place = Place::from_object(&pod);
        assert_eq!((place.namespace(), place.name()), ("prod", "etcd-0"));
    }

    /// Items of a list have no kind.
    #[test]
    fn items_of_a_list_are_read() {
        let item = json!({"metadata": {"name": "etcd-0", "namespace": "prod"}, "spec": {}});
        let list =
            json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [item, item]});
        let list: ObjectList<SlimPod> = serde_json::from_str(&list.to_string()).unwrap();
        assert_eq!(list.items.len(), 2);
    }

    #[test]
    fn absent_and_null_fields_are_none() {
        let bare = json!({"metadata": {"labels": null, "ownerReferences": null}, "spec": null});
        for bare in [bare, json!({"metadata": {}})] {
            let pod: SlimPod = serde_json::from_value(bare).unwrap();
            assert_eq!(CachedPod::from(pod), CachedPod::default());
        }
    }
}
