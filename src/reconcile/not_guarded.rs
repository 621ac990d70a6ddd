//! Objects that carry the label to enrol and are no StatefulSets. The gate guards StatefulSets and
//! nothing else, so each such object gets an Event that says so.
//!
//! The watches select by the label and read metadata only, and nothing is cached: few objects or
//! none have the label, whatever else there is in the cluster. Only the leader has these watches.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::select_all;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ObjectMeta};
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::run::Run;
use super::watches::{Following, Watches};
use crate::api::names::{ENROLL, TRUE};
use crate::observe::{is_stateful_set, named_after};
use crate::quorum::ClusterRef;
use crate::telemetry::events::{Notice, Severity};

/// Most objects that are remembered, each of which gets one Event.
const REMEMBERED: usize = 4096;

/// The watches, each with the kind that it watches. They never end.
pub(super) fn watches(run: &Arc<Run>) -> [(&'static str, Following); 4] {
    [
        ("Pod", Box::pin(follow::<Pod>(Arc::clone(run)))),
        (
            "Deployment",
            Box::pin(follow::<Deployment>(Arc::clone(run))),
        ),
        (
            "ReplicaSet",
            Box::pin(follow::<ReplicaSet>(Arc::clone(run))),
        ),
        ("DaemonSet", Box::pin(follow::<DaemonSet>(Arc::clone(run)))),
    ]
}

/// Watches the labelled objects of a kind while this replica leads.
async fn follow<K>(run: Arc<Run>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let mut leading = run.leading.begun_now();
    loop {
        let leads = leading.now();
        tokio::select! {
            () = watch::<K>(&run), if leads => {}
            () = leading.changed() => {}
        }
    }
}

async fn watch<K>(run: &Run)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let namespaces = &run.settings.namespaces;
    let apis: Vec<Api<PartialObjectMeta<K>>> = if namespaces.is_empty() {
        vec![Api::all(run.client.clone())]
    } else {
        let of = |namespace: &String| Api::namespaced(run.client.clone(), namespace);
        namespaces.iter().map(of).collect()
    };
    let labelled = Config::default().labels(&format!("{ENROLL}={TRUE}"));
    let mut events = select_all(
        apis.into_iter()
            .map(|api| watcher(api, labelled.clone()).default_backoff().boxed()),
    );
    let mut told: HashSet<String> = HashSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => report(run, &mut told, &object),
            Ok(Event::Delete(object)) => {
                told.remove(&object.uid().unwrap_or_default());
            }
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => {
                let kind = K::kind(&());
                warn!(%kind, %error, "watch for the enrol label failed, reopening");
            }
        }
    }
}

/// Says once of each object that it is not guarded, if it is not.
fn report<K>(run: &Run, told: &mut HashSet<String>, object: &PartialObjectMeta<K>)
where
    K: Resource<DynamicType = ()>,
{
    let uid = object.uid().unwrap_or_default();
    if told.contains(&uid) {
        return;
    }
    let Some(note) = why(&K::kind(&()), &object.metadata, |of| {
        sight(&run.watches, of)
    }) else {
        return;
    };
    if told.len() >= REMEMBERED {
        told.clear();
    }
    told.insert(uid);
    run.events.notify(Notice {
        regarding: object.object_ref(&()),
        severity: Severity::Warning,
        reason: "NotGuarded".into(),
        action: "Enrol",
        note,
    });
}

/// The state of a StatefulSet, by the caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    /// A StatefulSet with a budget, or one that is about to get it.
    Guarded,
    /// A StatefulSet without the label.
    NotEnrolled,
    /// A StatefulSet that the caches do not have, or not yet.
    Unseen,
}

fn sight(watches: &Watches, cluster: &ClusterRef) -> Sight {
    if watches.budgets.of_cluster(cluster).is_some() {
        return Sight::Guarded;
    }
    match watches.stateful_sets.of_cluster(cluster) {
        Some(set) if set.sight.is_enrolled => Sight::Guarded,
        Some(_) => Sight::NotEnrolled,
        None => Sight::Unseen,
    }
}

/// Why the labelled object is not guarded. `None` where it is, where nobody can tell yet, and where
/// it is going anyway.
fn why(kind: &str, meta: &ObjectMeta, sight: impl Fn(&ClusterRef) -> Sight) -> Option<String> {
    if meta.deletion_timestamp.is_some() {
        return None;
    }
    let so = format!("the label {ENROLL} has no effect on a {kind}");
    let only = "only StatefulSets are guarded";
    if kind != "Pod" {
        return Some(format!(
            "{so}: {only}, so anyone may delete each pod of this {kind} at any time; run etcd in a StatefulSet and label that, or remove the label"
        ));
    }
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let of = |name: &str| sight(&ClusterRef::new(namespace, name));
    let mut owners = meta.owner_references.iter().flatten();
    let controller = owners.find(|owner| owner.controller == Some(true));
    let whose = match controller {
        Some(owner) if is_stateful_set(&owner.api_version, &owner.kind) => {
            let name = &owner.name;
            // A pod may be seen before its StatefulSet.
            return (of(name) == Sight::NotEnrolled).then(|| {
                format!(
                    "{so}: the label has to be on the StatefulSet: kubectl -n {namespace} label statefulset {name} {ENROLL}={TRUE}"
                )
            });
        }
        // A name that a guarded StatefulSet gives makes a member of the pod.
        _ if named_after(meta).is_some_and(|set| of(&set) == Sight::Guarded) => return None,
        Some(owner) => format!("this pod belongs to the {} {}", owner.kind, owner.name),
        None => "this pod has no controller".to_owned(),
    };
    Some(format!(
        "{so}: {only}, and {whose}, so anyone may delete it at any time; run etcd in a StatefulSet and label that, or remove the label"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The words about a pod with this name and this controller. In the namespace `db` the
    /// StatefulSet `etcd` is guarded, and `plain` is not enrolled.
    fn said(name: &str, controller: Option<(&str, &str, &str)>) -> Option<String> {
        let owners: Vec<Value> = controller
            .into_iter()
            .map(|(version, kind, name)| {
                json!({"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": true})
            })
            .collect();
        let meta = json!({"namespace": "db", "name": name, "ownerReferences": owners});
        why("Pod", &serde_json::from_value(meta).unwrap(), seen)
    }

    fn seen(cluster: &ClusterRef) -> Sight {
        match cluster.name.as_str() {
            "etcd" => Sight::Guarded,
            "plain" => Sight::NotEnrolled,
            _ => Sight::Unseen,
        }
    }

    #[test]
    fn whatever_is_labelled_and_no_stateful_set_is_told_that_it_is_not_guarded() {
        for kind in ["Deployment", "ReplicaSet", "DaemonSet"] {
            let mut meta = ObjectMeta::default();
            let note = why(kind, &meta, seen).unwrap();
            assert!(note.contains(&format!("no effect on a {kind}")), "{note}");
            assert!(note.contains("only StatefulSets are guarded"), "{note}");
            meta.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
                jiff::Timestamp::UNIX_EPOCH,
            ));
            assert_eq!(why(kind, &meta, seen), None, "it goes");
        }
        let bare = said("x-1", None).unwrap();
        assert!(bare.contains("this pod has no controller"), "{bare}");
        for (version, kind) in [
            ("apps/v1", "ReplicaSet"),
            ("apps.kruise.io/v1beta1", "StatefulSet"),
            ("workloads.kubeblocks.io/v1", "InstanceSet"),
        ] {
            let note = said("web-1", Some((version, kind, "web"))).unwrap();
            assert!(note.contains(&format!("the {kind} web")), "{note}");
        }
    }

    #[test]
    fn a_pod_of_a_stateful_set_is_told_only_where_that_is_known_to_lack_the_label() {
        let of = |set| said("etcd-0", Some(("apps/v1", "StatefulSet", set)));
        assert_eq!(of("etcd"), None);
        assert_eq!(of("new"), None, "its StatefulSet has not been seen yet");
        let note = of("plain").unwrap();
        assert!(
            note.ends_with("kubectl -n db label statefulset plain quorumgate.io/enroll=true"),
            "{note}"
        );
    }

    #[test]
    fn a_pod_with_the_name_of_a_member_is_not_told_whoever_controls_it() {
        assert_eq!(said("etcd-0", None), None, "an orphan");
        assert_eq!(
            said("etcd-7", Some(("example.org/v1", "Keeper", "k"))),
            None
        );
        assert!(said("etcd-7x", None).is_some());
    }

    #[test]
    fn a_note_fits_an_event() {
        let long = "n".repeat(253);
        let note = said(&long, Some(("apps/v1", "ReplicaSet", &long))).unwrap();
        assert!(note.len() < 1024, "{}", note.len());
    }
}
