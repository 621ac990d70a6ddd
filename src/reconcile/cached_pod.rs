//! What is kept of the pods of StatefulSets. There may be tens of thousands, and what wakes a keeper is a small part of each: the rest, half
//! of it who last wrote which field, would be most of the process's memory and of its start.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt as _};
use serde::{Deserialize, Deserializer};

use crate::api::names;
use crate::quorum::ClusterRef;

/// A pod, as far as somebody asks the cache for it.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = Pod)]
pub(super) struct CachedPod {
    #[serde(deserialize_with = "identity")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Placed,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placed {
    node_name: Option<String>,
}

impl CachedPod {
    /// The cluster whose StatefulSet it names as its controller.
    pub(super) fn cluster(&self) -> Option<ClusterRef> {
        let owner = self
            .owner_references()
            .iter()
            .find(|owner| owner.controller == Some(true) && owner.kind == "StatefulSet")?;
        Some(ClusterRef::new(self.namespace()?, &owner.name))
    }

    /// The node that it was bound to.
    pub(super) fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref()
    }

    /// The revision of its StatefulSet that it was made from.
    pub(super) fn revision(&self) -> Option<&str> {
        self.labels().get(names::REVISION).map(String::as_str)
    }
}

/// Of the metadata, what a watch needs and what is asked for above.
fn identity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Identity {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let kept = Identity::deserialize(deserializer)?;
    let revision = kept
        .labels
        .and_then(|mut labels| labels.remove_entry(names::REVISION));
    Ok(ObjectMeta {
        name: kept.name,
        namespace: kept.namespace,
        uid: kept.uid,
        resource_version: kept.resource_version,
        labels: revision.map(|revision| [revision].into()),
        owner_references: kept.owner_references,
        ..ObjectMeta::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As an API server shows one, shortened.
    fn shown() -> CachedPod {
        serde_json::from_value(json!({
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
        }))
        .unwrap()
    }

    #[test]
    fn whose_it_is_where_it_runs_and_what_it_was_made_from_is_kept() {
        let pod = shown();
        assert_eq!(pod.cluster(), Some(ClusterRef::new("prod", "etcd")));
        assert_eq!(pod.node(), Some("n1"));
        assert_eq!(pod.revision(), Some("etcd-5d4f"));
    }

    /// A watch goes on from the last version that it saw, and a cache finds by name and namespace.
    #[test]
    fn what_a_watch_and_a_cache_need_is_kept() {
        let pod = shown();
        let meta = pod.meta();
        assert_eq!(meta.name.as_deref(), Some("etcd-0"));
        assert_eq!(meta.namespace.as_deref(), Some("prod"));
        assert_eq!(meta.uid.as_deref(), Some("3c1e"));
        assert_eq!(meta.resource_version.as_deref(), Some("41"));
    }

    #[test]
    fn one_without_owner_node_or_labels_is_read_all_the_same() {
        let bare = json!({"metadata": {"name": "etcd-0", "namespace": "prod"}, "spec": {}});
        let pod: CachedPod = serde_json::from_value(bare).unwrap();
        assert_eq!(
            (pod.cluster(), pod.node(), pod.revision()),
            (None, None, None)
        );
    }
}
