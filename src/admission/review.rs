//! An admission review as the API server sends it. Nothing in it is trusted.
//!
//! Only the fields that a decision needs are read, and checked while they are read ([`checked`]);
//! all others are skipped. A field that may be missing is `None`. A field that must be there is
//! asked for by name, so that the refusal can say what is missing.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{self as meta, ObjectMeta};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::checked::{self, OwnerReference, null_is_default};
use super::hook::Hook;
pub use super::hook::{Operation, Resource};
use super::malformed::{Malformed, Problem};
use crate::judge::DryRun;
use crate::quorum::Grace;

/// The request of a review.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request<Object> {
    /// The uid of the review, which the answer repeats.
    #[serde(deserialize_with = "checked::some_uid")]
    pub uid: String,
    /// The resource of the object.
    pub resource: Resource,
    /// The subresource, or empty.
    #[serde(default, deserialize_with = "null_is_default")]
    pub sub_resource: String,
    /// The name of the object. Empty in a collection delete, where only `oldObject` tells it.
    #[serde(default, deserialize_with = "checked::name")]
    pub name: String,
    /// The namespace, or empty.
    #[serde(default, deserialize_with = "checked::namespace")]
    pub namespace: String,
    /// The operation.
    pub operation: Operation,
    /// The asker.
    pub user_info: UserInfo,
    /// The object after the operation. `None` on a delete. Both objects are boxed, because they are
    /// large and a request is moved often.
    pub object: Option<Box<Object>>,
    /// The object before the operation. `None` on a create.
    pub old_object: Option<Box<Object>>,
    /// Whether nothing will be stored. An eviction may say so in its own options as well.
    #[serde(default, deserialize_with = "null_is_default")]
    pub dry_run: bool,
    /// The options of the operation.
    #[serde(default, deserialize_with = "null_is_default")]
    pub options: Options,
}

/// The asker, as the API server authenticated it.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct UserInfo {
    /// The username.
    #[serde(default, deserialize_with = "null_is_default")]
    pub username: String,
    /// The groups that decide anything.
    #[serde(default, deserialize_with = "checked::groups")]
    pub groups: Option<Vec<String>>,
}

/// The options of a delete or a create, also those inside an eviction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Options {
    /// Whether there is an entry, `All`, for a dry run.
    #[serde(default, deserialize_with = "checked::is_any")]
    pub dry_run: bool,
    /// The grace period in seconds; 0 removes the object at once.
    pub grace_period_seconds: Option<i64>,
    /// The preconditions.
    pub preconditions: Option<Preconditions>,
    /// `Orphan`, `Background` or `Foreground`.
    pub propagation_policy: Option<String>,
    /// The older form of `propagationPolicy`.
    pub orphan_dependents: Option<bool>,
    /// The name under which fields are written.
    pub field_manager: Option<String>,
}

/// The conditions on the object without which the API server does not carry out the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Preconditions {
    /// The UID of the object.
    pub uid: Option<String>,
}

impl Options {
    /// The UID that is insisted on.
    pub fn precondition(&self) -> Option<&str> {
        self.preconditions.as_ref()?.uid.as_deref()
    }

    /// The grace in a grace period.
    pub(super) fn grace_of(seconds: Option<i64>) -> Grace {
        if seconds == Some(0) {
            Grace::Forced
        } else {
            Grace::Graceful
        }
    }
}

/// The metadata of an object. `Managers` is the type of `managedFields`, which are skipped by
/// default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata<Managers = IgnoredAny> {
    /// The name; empty if it is still to be generated.
    #[serde(default, deserialize_with = "checked::name")]
    pub name: String,
    /// The namespace.
    #[serde(default, deserialize_with = "checked::namespace")]
    pub namespace: String,
    /// The UID.
    #[serde(default, deserialize_with = "checked::uid")]
    pub uid: Option<String>,
    /// The time at which the object began to terminate.
    pub deletion_timestamp: Option<String>,
    /// The labels that somebody looks at.
    #[serde(default, deserialize_with = "checked::notes")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The annotations that somebody looks at.
    #[serde(default, deserialize_with = "checked::notes")]
    pub annotations: Option<BTreeMap<String, String>>,
    /// The finalizers that decide anything.
    #[serde(default, deserialize_with = "checked::finalizers")]
    pub finalizers: Option<Vec<String>>,
    /// The object that controls this one.
    #[serde(default, deserialize_with = "checked::controller")]
    pub owner_references: Option<Vec<OwnerReference>>,
    /// The writers of the fields.
    pub managed_fields: Option<Managers>,
}

impl<Managers> Metadata<Managers> {
    /// Whether the object has this finalizer, which has to be one of those that decide anything.
    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().flatten().any(|own| own == finalizer)
    }

    /// The part that tells to which cluster the object belongs. Boxed, because it is large and is
    /// moved often.
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

/// The part that is read of a body that cannot be read as a review.
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
        // One check of the whole encoding is faster than hundreds of checks of single strings.
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
    /// Takes the object after the operation, which has to be there.
    pub fn take_object(&mut self) -> Result<Box<Object>, Malformed> {
        let object = self.object.take();
        object.ok_or_else(|| self.incomplete("has no object"))
    }

    /// Takes the object before the operation, which has to be there.
    pub fn take_old_object(&mut self) -> Result<Box<Object>, Malformed> {
        let object = self.old_object.take();
        object.ok_or_else(|| self.incomplete("has no oldObject"))
    }

    /// Whether anything may be written, by the request and its own options.
    pub fn dry_run(&self) -> DryRun {
        (self.dry_run || self.options.dry_run).into()
    }

    /// The namespace and the name of an object that is created. The name may be in the object
    /// alone, or empty while it is still to be generated.
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

    /// The namespace and the name of a stored object, from the request or from the object in it.
    /// The two must not contradict each other.
    pub(super) fn identity<Managers>(
        &self,
        object: &Metadata<Managers>,
    ) -> Result<(String, String), Malformed> {
        let namespace = agreed(&self.namespace, &object.namespace)
            .map_err(|()| self.incomplete("names two namespaces"))?
            .ok_or_else(|| self.incomplete("names no namespace"))?;
        Ok((namespace, self.name_of(object)?))
    }

    /// The name of the object, in which the request and the object have to agree.
    pub(super) fn name_of<Managers>(
        &self,
        object: &Metadata<Managers>,
    ) -> Result<String, Malformed> {
        agreed(&self.name, &object.name)
            .map_err(|()| self.incomplete("names two objects"))?
            .ok_or_else(|| self.incomplete("names no object"))
    }

    /// An error that repeats the uid of this request.
    pub fn malformed(&self, problem: Problem) -> Malformed {
        Malformed {
            uid: Some(self.uid.clone()),
            problem,
        }
    }

    /// The error for a review that lacks something or contradicts itself.
    pub fn incomplete(&self, what: &'static str) -> Malformed {
        self.malformed(Problem::Incomplete(what))
    }
}

fn agreed(one: &str, other: &str) -> Result<Option<String>, ()> {
    match (one, other) {
        ("", "") => Ok(None),
        (said, "") | ("", said) => Ok(Some(said.to_owned())),
        (one, other) if one == other => Ok(Some(one.to_owned())),
        _ => Err(()),
    }
}

/// The uid in a body that cannot be read as a review for any webhook.
pub(super) fn uid_of(body: &[u8]) -> Option<String> {
    let JustUid { request } = serde_json::from_slice(body).ok()?;
    Some(request.uid)
}
