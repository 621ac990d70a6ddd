//! Whether the objects that own a StatefulSet still exist.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::{ApiResource, Scope, pinned_kind};
use kube::{Api, Client};

use super::read_limits::soon;
use super::teardown::{Owner, goes_with_dependents};
use crate::api::{OwnerStatus, StatefulSetStatus};
use crate::named;

/// The fields of an owner's spec that say how many members it asks for: that of etcd-druid and of
/// most operators, and that of etcd-operator.
const SIZES: [&str; 2] = ["replicas", "size"];

/// Where a StatefulSet has the name of an owner.
const OWNER_NAME: &str = "metadata.ownerReferences.name";

/// Reads owners of any kind. Remembers which kinds exist, and never the objects.
pub(super) struct Owners {
    client: Client,
    kinds: Mutex<HashMap<(String, String), (ApiResource, Scope)>>,
}

impl Owners {
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            kinds: Mutex::default(),
        }
    }

    /// The owner's present state. `Unknown` if it cannot be read, for lack of permission or because
    /// its kind is gone.
    pub(super) async fn state(&self, namespace: &str, owner: &OwnerStatus) -> Owner {
        let looked = self.look(namespace, owner).await;
        looked.unwrap_or(Owner::Unknown)
    }

    /// The owner's present state. The error says for people why it cannot be read. Ends after
    /// [`soon`], since a webhook that converts its kind may hang.
    pub(super) async fn look(&self, namespace: &str, owner: &OwnerStatus) -> Result<Owner, String> {
        let looked = soon(self.ask(namespace, owner)).await;
        looked.unwrap_or_else(|late| Err(late.to_string()))
    }

    /// Whether an owner that lives asks for no members. What cannot be read asks for nothing.
    pub(super) async fn asks_for_none(&self, namespace: &str, owner: &OwnerStatus) -> bool {
        let asked = async {
            let found = self.objects(namespace, owner).await.ok()?;
            let found = named::get(&found, OWNER_NAME, &owner.name).await.ok()?;
            let is_this = found.metadata.uid.as_deref() == Some(owner.uid.as_str());
            let spec = found.data.get("spec").filter(|_| is_this)?;
            let size = SIZES.iter().find_map(|field| spec.get(field))?;
            Some(size.as_i64() == Some(0))
        };
        matches!(soon(asked).await, Ok(Some(true)))
    }

    async fn ask(&self, namespace: &str, owner: &OwnerStatus) -> Result<Owner, String> {
        let objects = self.objects(namespace, owner).await?;
        match named::get_metadata(&objects, OWNER_NAME, &owner.name).await {
            Ok(found) if found.metadata.uid.as_deref() != Some(owner.uid.as_str()) => {
                Ok(Owner::Goes)
            }
            Ok(found) if goes_with_dependents(&found.metadata) => Ok(Owner::Goes),
            Ok(_) => Ok(Owner::Lives),
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                if status.details.is_some() {
                    return Ok(Owner::Goes);
                }
                // The kind is gone, or has moved to another version.
                self.forget(owner);
                Err(no_kind(owner))
            }
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The objects of the owner's kind.
    async fn objects(
        &self,
        namespace: &str,
        owner: &OwnerStatus,
    ) -> Result<Api<DynamicObject>, String> {
        let (resource, scope) = self.kind(owner).await?;
        Ok(match scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace, &resource),
            Scope::Cluster => Api::all_with(self.client.clone(), &resource),
        })
    }

    async fn kind(&self, owner: &OwnerStatus) -> Result<(ApiResource, Scope), String> {
        let known = {
            let kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            kinds.get(&key(owner)).cloned()
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let (group, version) = owner
            .api_version
            .split_once('/')
            .unwrap_or(("", &owner.api_version));
        let kind = GroupVersionKind::gvk(group, version, &owner.kind);
        let (resource, capabilities) = pinned_kind(&self.client, &kind)
            .await
            .map_err(|_| no_kind(owner))?;
        let found = (resource, capabilities.scope);
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.insert(key(owner), found.clone());
        Ok(found)
    }

    fn forget(&self, owner: &OwnerStatus) {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.remove(&key(owner));
    }
}

fn no_kind(owner: &OwnerStatus) -> String {
    let OwnerStatus {
        api_version, kind, ..
    } = owner;
    format!("the API server shows no {kind} in {api_version}")
}

/// The owners that an object names, in the form of the budget's record: the one that controls it
/// first.
pub(super) fn named(metadata: &ObjectMeta) -> Vec<OwnerStatus> {
    let references = metadata.owner_references.as_deref().unwrap_or_default();
    let mut references: Vec<&OwnerReference> = references.iter().collect();
    references.sort_by_key(|owner| owner.controller != Some(true));
    let recorded = |owner: &OwnerReference| OwnerStatus {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
    };
    references.into_iter().map(recorded).collect()
}

/// The state of all owners together. Their object goes with them when none is left that lives. That
/// one of them lived has to be on record: whoever may write `metadata.ownerReferences` can name an
/// owner that never was, and the garbage collector then deletes the object.
pub(super) fn together(
    states: &[(&OwnerStatus, Owner)],
    record: Option<&StatefulSetStatus>,
) -> Owner {
    let has = |state| states.iter().any(|(_, one)| *one == state);
    let is_known = |(owner, _): &(&OwnerStatus, Owner)| record.is_some_and(|set| set.knows(owner));
    if has(Owner::Lives) {
        Owner::Lives
    } else if has(Owner::Unknown) {
        Owner::Unknown
    } else if states.iter().any(is_known) {
        Owner::Goes
    } else {
        Owner::None
    }
}

fn key(owner: &OwnerStatus) -> (String, String) {
    (owner.api_version.clone(), owner.kind.clone())
}
