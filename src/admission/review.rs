//! An admission review as the API server sends it, read without trusting any of it.
//!
//! Only what a verdict needs is read, and checked while it is read ([`checked`]); the rest of the objects is skipped. What is missing where it may be missing is `None`,
//! and what must be there is asked for by name, so that a refusal can say what was not there.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::judge::DryRun;

use super::checked;
use super::hook::Hook;
use super::malformed::{Malformed, Problem};

/// One review's request.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<Object> {
    /// Has to be repeated in the answer.
    #[serde(deserialize_with = "checked::some_uid")]
    pub uid: String,
    /// What kind of object is asked about.
    pub resource: Resource,
    /// The part of it, or empty.
    #[serde(default, deserialize_with = "null_is_default")]
    pub sub_resource: String,
    /// The object's name. Empty in a collection delete, where only `oldObject` tells it.
    #[serde(default, deserialize_with = "checked::name")]
    pub name: String,
    /// The namespace, or empty.
    #[serde(default, deserialize_with = "checked::namespace")]
    pub namespace: String,
    /// What would be done.
    pub operation: Operation,
    /// Who asks.
    pub user_info: UserInfo,
    /// The object as it would be. None on a delete. Boxed, as the old one: a request is moved often, and both are large.
    pub object: Option<Box<Object>>,
    /// The object as it is. None on a create.
    pub old_object: Option<Box<Object>>,
    /// Whether nothing will be stored. Not the only source: an eviction has options of its own.
    #[serde(default, deserialize_with = "null_is_default")]
    pub dry_run: bool,
    /// The options of the operation.
    #[serde(default, deserialize_with = "null_is_default")]
    pub options: Options,
}

/// A resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Resource {
    /// Its API group; empty for the core group.
    #[serde(default, deserialize_with = "null_is_default")]
    pub group: String,
    /// Its plural name.
    pub resource: String,
}

/// What would be done to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It would come to be.
    Create,
    /// It would change.
    Update,
    /// It would go.
    Delete,
    /// Something would connect to it.
    Connect,
}

/// Who asks.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct UserInfo {
    /// The username.
    #[serde(default, deserialize_with = "null_is_default")]
    pub username: String,
    /// The groups that decide anything.
    #[serde(default, deserialize_with = "checked::groups")]
    pub groups: Option<Vec<String>>,
}

/// The options of a delete or a create, also those inside an eviction: the fields that matter of all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// Whether there is an entry, `All`, for a dry run.
    #[serde(default, deserialize_with = "checked::is_any")]
    pub dry_run: bool,
    /// Seconds; 0 removes the object at once.
    pub grace_period_seconds: Option<i64>,
    /// What must be true of the object.
    pub preconditions: Option<Preconditions>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    /// The older form of the same.
    pub orphan_dependents: Option<bool>,
    /// The name under which fields are written.
    pub field_manager: Option<String>,
}

/// What must be true of an object for a request to be carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Preconditions {
    /// Its incarnation.
    pub uid: Option<String>,
}

impl Options {
    /// The UID that is insisted on.
    pub fn precondition(&self) -> Option<&str> {
        self.preconditions.as_ref()?.uid.as_deref()
    }
}

/// What every object says of itself. Whoever has no use for the owners of its fields skips them.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<Managers = IgnoredAny> {
    /// Its name; empty where it is still to be generated.
    #[serde(default, deserialize_with = "checked::name")]
    pub name: String,
    /// Its namespace.
    #[serde(default, deserialize_with = "checked::namespace")]
    pub namespace: String,
    /// Its incarnation.
    #[serde(default, deserialize_with = "checked::uid")]
    pub uid: Option<String>,
    /// When it began to terminate.
    pub deletion_timestamp: Option<String>,
    /// Its labels, as far as somebody looks at them.
    #[serde(default, deserialize_with = "checked::notes")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Its annotations, as far as somebody looks at them.
    #[serde(default, deserialize_with = "checked::notes")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// What keeps it from going, and decides anything.
    #[serde(default, deserialize_with = "checked::finalizers")]
    pub finalizers: Option<Vec<String>>,
    /// The object that controls it.
    #[serde(default, deserialize_with = "checked::controller")]
    pub owner_references: Option<Vec<OwnerReference>>,
    /// Who wrote its fields.
    pub managed_fields: Option<Managers>,
}

impl<Managers> Metadata<Managers> {
    /// As much of it as tells whose the object is. Boxed: it is large, and goes a long way.
    pub fn belonging(self) -> Box<ObjectMeta> {
        let owners = self.owner_references.unwrap_or_default();
        let owners = owners.into_iter().map(|owner| meta::OwnerReference {
            api_version: owner.api_version,
            kind: owner.kind,
            name: owner.name,
            uid: owner.uid,
            controller: Some(owner.controller),
            block_owner_deletion: None,
        });
        Box::new(ObjectMeta {
            name: Some(self.name),
            uid: self.uid,
            labels: self.labels,
            owner_references: Some(owners.collect()),
            ..ObjectMeta::default()
        })
    }
}

/// Whom an object belongs to.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// The owner's group and version.
    #[serde(default, deserialize_with = "null_is_default")]
    pub api_version: String,
    /// The owner's kind.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kind: String,
    /// The owner's name.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// The owner's incarnation.
    #[serde(default, deserialize_with = "null_is_default")]
    pub uid: String,
    /// Whether it is the one that manages the object.
    #[serde(default, deserialize_with = "null_is_default")]
    pub controller: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<Object> {
    #[serde(default, deserialize_with = "null_is_default")]
    api_version: String,
    #[serde(default, deserialize_with = "null_is_default")]
    kind: String,
    // Without these bounds serde's derive would ask `Object: Default`.
    #[serde(bound(deserialize = "Object: DeserializeOwned"))]
    request: Option<Request<Object>>,
}

/// The least that is read of a body that cannot be read otherwise.
#[derive(Deserialize)]
struct JustUid {
    request: JustUidRequest,
}

#[derive(Deserialize)]
struct JustUidRequest {
    #[serde(deserialize_with = "checked::some_uid")]
    uid: String,
}

impl<Object: DeserializeOwned> Request<Object> {
    /// Reads the body of a review for a webhook.
    pub fn read(hook: Hook, body: &[u8]) -> Result<Self, Malformed> {
        let unreadable = |error: &dyn std::fmt::Display| Malformed {
            uid: uid_of(body),
            problem: Problem::Unreadable(error.to_string()),
        };
        // Checking the encoding of all of it at once takes less than checking every string, of which there are hundreds.
        let text = simdutf8::compat::from_utf8(body).map_err(|error| unreadable(&error))?;
        let envelope: Envelope<Object> =
            serde_json::from_str(text).map_err(|error| unreadable(&error))?;
        let Envelope {
            api_version,
            kind,
            request,
        } = envelope;
        if api_version != "admission.k8s.io/v1" || kind != "AdmissionReview" {
            return Err(Malformed {
                uid: request.map(|r| r.uid),
                problem: Problem::Version(format!("{kind:?} of {api_version:?}")),
            });
        }
        let request = request.ok_or(Problem::Incomplete("has no request"))?;
        if request.uid.is_empty() {
            return Err(Problem::Incomplete("has no uid").into());
        }
        request.addressed_to(hook)
    }

    fn addressed_to(self, hook: Hook) -> Result<Self, Malformed> {
        if hook.is_for(&self.resource, &self.sub_resource, self.operation) {
            return Ok(self);
        }
        let problem = Problem::Misdirected(format!(
            "{} is for {}, not for {:?} of {:?} {:?} {:?}",
            hook.path(),
            hook.expects(),
            self.operation,
            self.resource.group,
            self.resource.resource,
            self.sub_resource,
        ));
        Err(self.malformed(problem))
    }
}

impl<Object> Request<Object> {
    /// Whether anything may be written, by the request and its own options.
    pub fn dry_run(&self) -> DryRun {
        (self.dry_run || self.options.dry_run).into()
    }

    /// The namespace, and the name, which may only be in the object itself, or nowhere while it is still to be generated.
    pub fn place<'a>(&'a self, object: &'a Metadata) -> Result<(&'a str, &'a str), Malformed> {
        if self.namespace.is_empty() {
            return Err(self.incomplete("names no namespace"));
        }
        let name = if self.name.is_empty() {
            &object.name
        } else {
            &self.name
        };
        Ok((&self.namespace, name))
    }

    /// A refusal that repeats this request's uid.
    pub fn malformed(&self, problem: Problem) -> Malformed {
        Malformed {
            uid: Some(self.uid.clone()),
            problem,
        }
    }

    /// The same, for something that is not there.
    pub fn incomplete(&self, what: &'static str) -> Malformed {
        self.malformed(Problem::Incomplete(what))
    }
}

fn uid_of(body: &[u8]) -> Option<String> {
    let JustUid { request } = serde_json::from_slice(body).ok()?;
    Some(request.uid)
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}
