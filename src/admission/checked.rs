//! Checks of the names, numbers and lists in a review while they are deserialised.
//!
//! Names become parts of URLs that are asked with this process's own rights, numbers become ranges,
//! and a list takes many times the memory of its text. So a name has to follow the rules of
//! Kubernetes, a number has to fit into its type in the API, and only those elements of a list are
//! kept that somebody looks at. A review that breaks a rule is unreadable, which is a bad request.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::api::{dns, names};
use crate::observe::is_stateful_set;
use crate::telemetry::events::shortened;

/// The most bytes of a UID. Those of Kubernetes have 36.
const LONGEST_UID: usize = 128;

/// The most bytes of a bad name that an error repeats.
const REPEATED: usize = 64;

/// The group of kubelets, which is the only group that decides anything.
pub(super) const NODE_GROUP: &str = "system:nodes";

/// The owner of an object.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// The group and version of the owner.
    #[serde(default, deserialize_with = "null_is_default")]
    pub api_version: String,
    /// The kind of the owner.
    #[serde(default, deserialize_with = "null_is_default")]
    pub kind: String,
    /// The name of the owner.
    #[serde(default, deserialize_with = "null_is_default")]
    pub name: String,
    /// The UID of the owner.
    #[serde(default, deserialize_with = "null_is_default")]
    pub uid: String,
    /// Whether this owner controls the object.
    #[serde(default, deserialize_with = "null_is_default")]
    pub controller: bool,
}

/// Reads `null` as the default.
pub(super) fn null_is_default<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

/// The name of a namespace, or nothing.
pub(super) fn namespace<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    named(
        from,
        dns::is_label,
        "the name of a namespace (RFC 1123 label)",
    )
}

/// The name of an object, or nothing.
pub(super) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    named(
        from,
        dns::is_subdomain,
        "the name of an object (RFC 1123 subdomain)",
    )
}

fn named<'de, D: Deserializer<'de>>(
    from: D,
    is_one: fn(&str) -> bool,
    what: &str,
) -> Result<String, D::Error> {
    let name = Option::<String>::deserialize(from)?.unwrap_or_default();
    if name.is_empty() || is_one(&name) {
        return Ok(name);
    }
    Err(D::Error::custom(not_a_name(name, what)))
}

fn not_a_name(name: String, what: &str) -> String {
    format!("{:?} is not {what}", shortened(name, REPEATED))
}

/// The UID of a stored object.
pub(super) fn uid<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let uid = Option::<String>::deserialize(from)?;
    match uid.as_ref().map(String::len) {
        Some(length) if length > LONGEST_UID => {
            Err(D::Error::custom(format!("a UID of {length} bytes")))
        }
        _ => Ok(uid),
    }
}

/// A UID that must be there.
pub(super) fn some_uid<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    uid(from).map(Option::unwrap_or_default)
}

/// A number of pods or an ordinal: an `int32` that is not negative.
pub(super) fn count<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let count = Option::<i32>::deserialize(from)?;
    count
        .map(|count| u32::try_from(count).map_err(|_| D::Error::custom(format!("{count} pods"))))
        .transpose()
}

/// The owner that controls the object. The other owners do not tell to which cluster it belongs.
pub(super) fn controller<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<OwnerReference>>, D::Error> {
    let owners = kept(from, |owner: &OwnerReference| owner.controller)?;
    let of_a_set = |owner: &&OwnerReference| is_stateful_set(&owner.api_version, &owner.kind);
    for owner in owners.iter().flatten().filter(of_a_set) {
        if !dns::is_subdomain(&owner.name) {
            let what = "the name of a StatefulSet (RFC 1123 subdomain)";
            return Err(D::Error::custom(not_a_name(owner.name.clone(), what)));
        }
    }
    Ok(owners)
}

/// The groups that decide anything.
pub(super) fn groups<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    kept(from, |group: &String| group == NODE_GROUP)
}

/// The finalizers that decide anything.
pub(super) fn finalizers<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<String>>, D::Error> {
    kept(from, |finalizer: &String| {
        [names::ORPHAN, names::PVC_PROTECTION, names::PV_PROTECTION].contains(&finalizer.as_str())
    })
}

/// The elements of a list that pass a test. The others take no memory.
pub(super) fn kept<'de, D, T>(from: D, is_kept: fn(&T) -> bool) -> Result<Option<Vec<T>>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    from.deserialize_option(Sieve {
        is_kept,
        of: PhantomData,
    })
}

/// Whether a list has any element.
pub(super) fn is_any<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    let first = kept(from, |_: &IgnoredAny| true)?;
    Ok(first.is_some_and(|all| !all.is_empty()))
}

/// The labels or annotations that somebody looks at.
pub(super) fn notes<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    from.deserialize_option(Notes)
}

fn is_looked_at(key: &str) -> bool {
    let own = key
        .strip_prefix(names::GROUP)
        .is_some_and(|rest| rest.starts_with('/'));
    own || [names::MANAGED_BY, names::COMPONENT, names::SAFE_TO_EVICT].contains(&key)
}

/// Reads a list, or `null`, and keeps the elements that pass a test.
struct Sieve<T> {
    is_kept: fn(&T) -> bool,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Sieve<T> {
    type Value = Option<Vec<T>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while let Some(element) = list.next_element()? {
            if (self.is_kept)(&element) {
                kept.push(element);
            }
        }
        Ok(Some(kept))
    }
}

/// Reads a map of texts, or `null`, and keeps the entries that somebody looks at.
struct Notes;

impl<'de> Visitor<'de> for Notes {
    type Value = Option<BTreeMap<String, String>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut notes = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if is_looked_at(&key) {
                notes.insert(key, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Some(notes))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::review::{Metadata, Options, UserInfo};

    fn metadata(fields: Value) -> Result<Metadata, String> {
        serde_json::from_value(fields).map_err(|error| error.to_string())
    }

    #[test]
    fn names_that_no_object_can_have_are_refused_with_what_was_said() {
        for fields in [
            json!({"name": "secrets/x?"}),
            json!({"name": ".."}),
            json!({"namespace": "kube-system/secrets"}),
            json!({"namespace": "a.b"}),
            json!({"uid": "u".repeat(129)}),
            json!({"ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x/../y", "controller": true},
            ]}),
        ] {
            let said = metadata(fields.clone()).unwrap_err();
            assert!(
                said.contains("is not the name of") || said.contains("a UID of 129"),
                "{said}"
            );
        }
        let long = metadata(json!({"name": "/".repeat(1000)})).unwrap_err();
        assert!(long.len() < 200, "{long}");
    }

    #[test]
    fn names_that_are_missing_or_of_others_are_no_concern() {
        // Cluster roles have such names, and may own what they like.
        let owner = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "system:x", "controller": true});
        let read = metadata(json!({"name": null, "namespace": "", "ownerReferences": [owner]}));
        let read = read.unwrap();
        assert_eq!((read.name.as_str(), read.namespace.as_str()), ("", ""));
        assert_eq!(read.owner_references.unwrap().len(), 1);
    }

    #[test]
    fn of_lists_and_maps_that_is_kept_which_somebody_looks_at() {
        let many: Vec<Value> = (0..1000).map(|n| json!({"name": n.to_string()})).collect();
        let read = metadata(json!({
            "labels": {"quorumgate.io/enroll": "true", "quorumgate.iox": "no", "app": "etcd"},
            "annotations": {"quorumgate.io/intent": "delete", "note": "x"},
            "finalizers": ["foregroundDeletion", "orphan", "other"],
            "ownerReferences": many,
            "managedFields": [{}, {}],
        }));
        let read = read.unwrap();
        let keys = |notes: &Option<std::collections::BTreeMap<String, String>>| {
            notes
                .iter()
                .flatten()
                .map(|(key, _)| key.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&read.labels), ["quorumgate.io/enroll"]);
        assert_eq!(keys(&read.annotations), ["quorumgate.io/intent"]);
        assert_eq!(read.finalizers.unwrap(), ["orphan"]);
        assert!(read.owner_references.unwrap().is_empty());
        let none = metadata(json!({"labels": null, "finalizers": null})).unwrap();
        assert!(none.labels.is_none() && none.finalizers.is_none());
        let user = json!({"username": "a", "groups": ["system:nodes", "b", "c"]});
        let user: UserInfo = serde_json::from_value(user).unwrap();
        assert_eq!(user.groups.unwrap(), ["system:nodes"]);
        for (stages, dry) in [
            (json!(["All"]), true),
            (json!([]), false),
            (json!(null), false),
        ] {
            let options: Options = serde_json::from_value(json!({"dryRun": stages})).unwrap();
            assert_eq!(options.dry_run, dry);
        }
    }
}
