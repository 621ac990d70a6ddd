//! The undoing of what the controllers leave behind in namespaces of others, for the removal of the
//! gate. No replica may run any more, since its leader would do it all again.
//!
//! Each function makes one pass and returns the names of what is still there, so that the caller
//! repeats it until nothing is.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};

use super::{MANAGER, companion, strategy};
use crate::api::names;
use crate::quorum::ClusterRef;

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
