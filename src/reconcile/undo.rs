//! The undoing of what the controllers leave behind in namespaces of others, for the removal of the
//! gate. No replica may run any more, since its leader would do it all again.
//!
//! Each function makes one pass and returns the names of what is still there, so that the caller
//! repeats it until nothing is.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};

use super::run::MANAGER;
use super::watches::{CachedSet, SlimPod, SlimStatefulSet};
use super::{companion, strategy};
use crate::api::{QuorumDisruptionBudget, names};
use crate::lists;
use crate::named;
use crate::observe::named_after;
use crate::quorum::ClusterRef;
use crate::strategy::ON_DELETE;

/// The pods that are kept from starting until their members have been replaced, with or without a
/// budget. Without the gate nobody would ever let them start, so the gate has to stay until there
/// are none.
pub async fn held_pods(client: &Client) -> Result<Vec<String>, Error> {
    let held = held(&Api::all(client.clone())).await?;
    let named = |pod: &SlimPod| {
        let namespace = pod.namespace().unwrap_or_default();
        format!("{namespace}/{}", pod.name_any())
    };
    Ok(held.iter().map(named).collect())
}

/// The pods among these that wait for the gate's scheduling gate.
async fn held(pods: &Api<SlimPod>) -> Result<Vec<SlimPod>, Error> {
    let unscheduled = ListParams::default().fields("spec.nodeName=");
    let mut held = Vec::new();
    lists::each(pods, &unscheduled, |pod| {
        if pod.is_held() {
            held.push(pod);
        }
    })
    .await?;
    Ok(held)
}

/// The StatefulSets with outdated pods that the StatefulSet controller would replace as soon as it
/// has the owner's strategy back. It asks nobody, and counts no member that is down elsewhere.
pub async fn unfinished_rollouts(client: &Client) -> Result<Vec<String>, Error> {
    let sets: Api<SlimStatefulSet> = Api::all(client.clone());
    let mut unfinished = Vec::new();
    lists::each(&sets, &ListParams::default(), |set| {
        let cluster = ClusterRef::new(set.namespace().unwrap_or_default(), set.name_any());
        let set = CachedSet::from(set).stateful_set(&cluster);
        if let Some((outdated, replicas)) = outdated(&set) {
            unfinished.push(format!(
                "{cluster} ({outdated} of {replicas} pods are outdated)"
            ));
        }
    })
    .await?;
    Ok(unfinished)
}

/// The number of outdated pods that the owner's strategy replaces, and of all. `None` without any,
/// and where the gate has not replaced that strategy.
fn outdated(set: &StatefulSet) -> Option<(i32, i32)> {
    let memory = set.annotations().get(names::PREVIOUS_UPDATE_STRATEGY)?;
    let owners = crate::strategy::read(memory).unwrap_or_default();
    if owners.get("type").is_some_and(|kind| kind == ON_DELETE) {
        return None;
    }
    let replicas = set.spec.as_ref()?.replicas.unwrap_or(1);
    let partition = owners.pointer("/rollingUpdate/partition");
    let partition = partition.and_then(Value::as_i64);
    let partition = partition.and_then(|first| i32::try_from(first).ok());
    let status = set.status.clone().unwrap_or_default();
    let is_current = status.observed_generation >= set.metadata.generation;
    let updated = is_current.then_some(status.updated_replicas).flatten();
    let outdated = replicas - partition.unwrap_or(0) - updated.unwrap_or(0);
    (outdated > 0).then_some((outdated, replicas))
}

/// Takes the marks of the gate's webhook off members' pods: nobody guards these pods any more, and
/// one of the marks keeps cluster autoscalers from scaling their nodes down. That one stays where
/// the owner asks for it.
pub async fn marks_of_pods(client: &Client) -> Result<Vec<String>, Error> {
    let mut left = Vec::new();
    for (namespace, clusters) in guarded(client).await? {
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), &namespace);
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        // The name and the UID of each marked pod, and whether autoscalers keep off it, by cluster.
        let mut marked: BTreeMap<String, Vec<(String, Option<String>, bool)>> = BTreeMap::new();
        lists::each_metadata(&pods, &ListParams::default(), |pod| {
            let is_marked = |key, value| pod.annotations().get(key).is_some_and(|v| v == value);
            let is_kept = is_marked(names::SAFE_TO_EVICT, names::FALSE);
            if !is_kept && !is_marked(names::ASKED, names::TRUE) {
                return;
            }
            let cluster = named_after(&pod.metadata);
            if let Some(cluster) = cluster.filter(|cluster| clusters.contains(cluster)) {
                let pods = marked.entry(cluster).or_default();
                pods.push((pod.name_any(), pod.uid(), is_kept));
            }
        })
        .await?;
        for (cluster, marked) in marked {
            let set = named::get_opt(&sets, named::OF_OBJECT, &cluster).await?;
            let by_owner = asks_for_mark(set.as_ref());
            for (name, uid, is_kept) in marked {
                let of_autoscalers = (is_kept && !by_owner).then_some(names::SAFE_TO_EVICT);
                let marks = [names::ASKED].into_iter().chain(of_autoscalers);
                let marks: BTreeMap<_, _> = marks.map(|mark| (mark, Value::Null)).collect();
                let without = Patch::Merge(json!({"metadata": {"uid": uid, "annotations": marks}}));
                let params = PatchParams::default();
                let patched = pods.patch_metadata(&name, &params, &without).await;
                if allowing_races(patched)?.is_none() {
                    left.push(format!("{namespace}/{name}"));
                }
            }
        }
    }
    Ok(left)
}

/// Whether the owner of a StatefulSet asks for the mark that the gate puts on pods otherwise.
fn asks_for_mark(set: Option<&StatefulSet>) -> bool {
    let template = set.and_then(|set| set.spec.as_ref()?.template.metadata.as_ref());
    let annotations = template.and_then(|template| template.annotations.as_ref());
    annotations.is_some_and(|all| all.contains_key(names::SAFE_TO_EVICT))
}

/// The clusters with a budget, by namespace. None if budgets are not defined any more.
async fn guarded(client: &Client) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    let budgets: Api<QuorumDisruptionBudget> = Api::all(client.clone());
    let mut guarded: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let every = ListParams::default();
    let listed = lists::each_metadata(&budgets, &every, |budget| {
        let namespace = budget.namespace().unwrap_or_default();
        guarded
            .entry(namespace)
            .or_default()
            .insert(budget.name_any());
    });
    match listed.await {
        Err(Error::Api(status)) if status.is_not_found() => Ok(BTreeMap::new()),
        listed => listed.map(|()| guarded),
    }
}

/// Gives StatefulSets the update strategies of their owners back.
pub async fn update_strategies(client: &Client) -> Result<Vec<String>, Error> {
    let changed = || async {
        let sets: Api<StatefulSet> = Api::all(client.clone());
        let mut changed = Vec::new();
        lists::each_metadata(&sets, &ListParams::default(), |set| {
            let leaves = set.metadata.deletion_timestamp.is_some();
            let remembers = set
                .annotations()
                .contains_key(names::PREVIOUS_UPDATE_STRATEGY);
            if remembers && !leaves {
                let namespace = set.namespace().unwrap_or_default();
                changed.push(ClusterRef::new(namespace, set.name_any()));
            }
        })
        .await?;
        Ok::<Vec<ClusterRef>, Error>(changed)
    };
    for cluster in changed().await? {
        // Somebody else wrote it or deleted it: the next pass sees.
        allowing_races(strategy::give_back(client, &cluster).await)?;
    }
    let left = changed().await?;
    Ok(left.iter().map(ToString::to_string).collect())
}

/// Deletes the `PodDisruptionBudget`s that were made for planners. They would keep the numbers of
/// today for ever.
pub async fn companions(client: &Client) -> Result<Vec<String>, Error> {
    let labels = format!("{}={MANAGER}", names::MANAGED_BY);
    let list = ListParams::default().labels(&labels);
    let all: Api<PodDisruptionBudget> = Api::all(client.clone());
    let mut left = Vec::new();
    for pdb in lists::kept(&all, &list, companion::is_companion).await? {
        let namespace = pdb.namespace().unwrap_or_default();
        let there: Api<PodDisruptionBudget> = Api::namespaced(client.clone(), &namespace);
        let only = Preconditions {
            uid: pdb.uid(),
            resource_version: None,
        };
        let params = DeleteParams::default().preconditions(only);
        let deleted = there.delete(&pdb.name_any(), &params).await;
        if allowing_races(deleted)?.is_none_or(|deleted| deleted.is_left()) {
            left.push(format!("{namespace}/{}", pdb.name_any()));
        }
    }
    Ok(left)
}

/// Takes the label off the namespaces that were gated. In the gate's own namespace, which is `own`,
/// and in kube-system it never stood by the gate's doing.
pub async fn labels_of_namespaces(client: &Client, own: &str) -> Result<Vec<String>, Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let gated = || async {
        let list = ListParams::default().labels(names::GATED);
        let mut others = Vec::new();
        lists::each_metadata(&namespaces, &list, |namespace| {
            others.push(namespace.name_any());
        })
        .await?;
        others.retain(|name| name != own && name != "kube-system");
        Ok::<Vec<String>, Error>(others)
    };
    let without = json!({"metadata": {"labels": {names::GATED: Value::Null}}});
    let without = Patch::Merge(without);
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    for name in gated().await? {
        let patched = namespaces.patch_metadata(&name, &params, &without);
        allowing_races(patched.await)?;
    }
    gated().await
}

/// `None` where the object is gone or somebody else has just written it.
fn allowing_races<T>(done: Result<T, Error>) -> Result<Option<T>, Error> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(owners: &str, status: &Value) -> StatefulSet {
        serde_json::from_value(json!({
            "metadata": {
                "generation": 4, "annotations": {"quorumgate.io/previous-update-strategy": owners},
            },
            "spec": {"replicas": 3, "selector": {}, "template": {}},
            "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn outdated_are_the_pods_that_the_owners_strategy_would_replace() {
        let rolling = r#"{"type":"RollingUpdate"}"#;
        let partition = r#"{"type":"RollingUpdate","rollingUpdate":{"partition":2}}"#;
        let on_delete = r#"{"type":"OnDelete"}"#;
        let updated = |updated: u32, seen: u32| json!({"replicas": 3, "updatedReplicas": updated, "observedGeneration": seen});
        for (owners, status, expected) in [
            (rolling, updated(3, 4), None),
            (rolling, updated(1, 4), Some((2, 3))),
            (rolling, updated(3, 3), Some((3, 3))),
            (
                rolling,
                json!({"replicas": 3, "observedGeneration": 4}),
                Some((3, 3)),
            ),
            (partition, updated(1, 4), None),
            (partition, updated(0, 4), Some((1, 3))),
            (on_delete, updated(0, 4), None),
            // What cannot be read is given back as RollingUpdate.
            ("", updated(2, 4), Some((1, 3))),
        ] {
            let set = set(owners, &status);
            assert_eq!(outdated(&set), expected, "{owners} {status}");
        }
        let mut untouched = set(rolling, &updated(0, 4));
        untouched.metadata.annotations = None;
        assert_eq!(outdated(&untouched), None);
    }
}
