//! The undoing of what the controllers leave behind in namespaces of others, for the removal of the
//! gate. No replica may run any more, since its leader would do it all again.
//!
//! Each function makes one pass and returns the names of what is still there, so that the caller
//! repeats it until nothing is.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};

use super::{MANAGER, companion, strategy};
use crate::api::{QuorumDisruptionBudget, names};
use crate::observe::{is_held, named_after};
use crate::quorum::ClusterRef;

/// The pods that are kept from starting until their members have been replaced. Without the gate
/// nobody would ever let them start, so the gate has to stay until there are none.
pub async fn held_pods(client: &Client) -> Result<Vec<String>, Error> {
    let mut held = Vec::new();
    for namespace in guarded(client).await?.into_keys() {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let unscheduled = ListParams::default().fields("spec.nodeName=");
        let pods = pods.list(&unscheduled).await?.items;
        let of_here = pods.iter().filter(|pod| is_held(pod));
        held.extend(of_here.map(|pod| format!("{namespace}/{}", pod.name_any())));
    }
    Ok(held)
}

/// Takes off members' pods what keeps cluster autoscalers from their nodes, where the gate's
/// webhook put it there: nobody guards these pods any more, and their nodes would never be scaled
/// down.
pub async fn marks_of_pods(client: &Client) -> Result<Vec<String>, Error> {
    let mut left = Vec::new();
    for (namespace, clusters) in guarded(client).await? {
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), &namespace);
        let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let listed = pods.list_metadata(&ListParams::default()).await?.items;
        for cluster in clusters {
            if asks_for_mark(sets.get_opt(&cluster).await?.as_ref()) {
                continue;
            }
            let marked = listed.iter().filter(|pod| {
                let mark = pod.annotations().get(names::SAFE_TO_EVICT);
                mark.is_some_and(|mark| mark == names::FALSE)
                    && named_after(&pod.metadata).as_ref() == Some(&cluster)
            });
            for pod in marked {
                let without = json!({"metadata": {
                    "uid": pod.uid(), "annotations": {names::SAFE_TO_EVICT: Value::Null},
                }});
                let without = Patch::Merge(without);
                let name = pod.name_any();
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
async fn guarded(client: &Client) -> Result<BTreeMap<String, Vec<String>>, Error> {
    let budgets: Api<QuorumDisruptionBudget> = Api::all(client.clone());
    let budgets = match budgets.list_metadata(&ListParams::default()).await {
        Ok(budgets) => budgets.items,
        Err(Error::Api(status)) if status.is_not_found() => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut guarded: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for budget in budgets {
        let namespace = budget.namespace().unwrap_or_default();
        guarded
            .entry(namespace)
            .or_default()
            .push(budget.name_any());
    }
    Ok(guarded)
}

/// Gives StatefulSets the update strategies of their owners back.
pub async fn update_strategies(client: &Client) -> Result<Vec<String>, Error> {
    let changed = || async {
        let sets: Api<StatefulSet> = Api::all(client.clone());
        let sets = sets.list_metadata(&ListParams::default()).await?;
        let changed = sets.items.into_iter().filter(|set| {
            let leaves = set.metadata.deletion_timestamp.is_some();
            let remembers = set
                .annotations()
                .contains_key(names::PREVIOUS_UPDATE_STRATEGY);
            remembers && !leaves
        });
        let changed =
            changed.filter_map(|set| Some(ClusterRef::new(set.namespace()?, set.name_any())));
        Ok::<Vec<ClusterRef>, Error>(changed.collect())
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
    for pdb in all.list(&list).await?.items {
        if !companion::is_companion(&pdb) {
            continue;
        }
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
        let gated = namespaces.list_metadata(&list).await?;
        let gated = gated
            .items
            .into_iter()
            .map(|namespace| namespace.name_any());
        let others = gated.filter(|name| name != own && name != "kube-system");
        Ok::<Vec<String>, Error>(others.collect())
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
