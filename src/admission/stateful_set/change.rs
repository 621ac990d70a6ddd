//! What a review would do to a StatefulSet: which pods would go with it.

use serde::Deserialize;

use super::super::hook::Hook;
use super::super::identity;
use super::super::malformed::Malformed;
use super::super::review::{Metadata, Operation, Options, Request, UserInfo};
use super::super::{actor, checked};
use super::decide::Passing;
use super::intent::{Intents, Managers};
use super::ordinals::Ordinals;
use crate::api::names::ORPHAN;
use crate::judge::DryRun;
use crate::quorum::ClusterRef;

/// A change that takes members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The StatefulSet is deleted, and its pods with it.
    Delete,
    /// The ordinals that the StatefulSet keeps pods for change, and some leave.
    Resize {
        /// As it is.
        from: Ordinals,
        /// As it would be.
        to: Ordinals,
    },
}

/// What becomes of the pods of a deleted StatefulSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dependents {
    /// They go too.
    Follow,
    /// They stay.
    Orphaned,
}

/// A StatefulSet, or its scale, as a review shows it.
#[derive(Debug, Clone, Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata<Managers>,
    spec: Option<Spec>,
}

#[derive(Debug, Clone, Deserialize)]
struct Spec {
    #[serde(default, deserialize_with = "checked::count")]
    replicas: Option<u32>,
    ordinals: Option<Start>,
}

#[derive(Debug, Clone, Deserialize)]
struct Start {
    #[serde(default, deserialize_with = "checked::count")]
    start: Option<u32>,
}

/// A review, read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) review: String,
    pub(super) set: ClusterRef,
    pub(super) uid: Option<String>,
    pub(super) user: UserInfo,
    pub(super) dry_run: DryRun,
    /// The garbage collector deletes exactly this incarnation.
    pub(super) collected: bool,
    /// What is asked, or why nothing has to be.
    pub(super) asks: Result<(Change, Option<Intents>), Passing>,
}

pub(super) fn read(body: &[u8]) -> Result<Read, Malformed> {
    let request = Request::<Object>::read(Hook::StatefulSets, body)?;
    let old = request
        .old_object
        .as_ref()
        .ok_or_else(|| request.incomplete("has no oldObject"))?;
    let (namespace, name) = identity::of(&request, &old.metadata)?;
    let asks = match request.operation {
        Operation::Delete => deletion(old, &request.options),
        Operation::Create | Operation::Update | Operation::Connect => resize(&request, old)?,
    };
    Ok(Read {
        set: ClusterRef::new(namespace, name),
        uid: old.metadata.uid.clone(),
        dry_run: request.dry_run(),
        collected: is_collected(&request, old),
        asks,
        review: request.uid,
        user: request.user_info,
    })
}

fn is_collected(request: &Request<Object>, old: &Object) -> bool {
    let uid = old.metadata.uid.as_deref();
    request.operation == Operation::Delete
        && actor::is_garbage_collector(&request.user_info)
        && uid.is_some()
        && request.options.precondition() == uid
}

type Asks = Result<(Change, Option<Intents>), Passing>;

/// The stored object's own announcements decide about a delete; it is read again for that.
fn deletion(old: &Object, options: &Options) -> Asks {
    let metadata = &old.metadata;
    match (
        dependents(options, metadata),
        &metadata.deletion_timestamp,
        has_orphan_finalizer(metadata),
    ) {
        (Dependents::Orphaned, _, _) => Err(Passing::Orphans),
        // Admitted when it began. A delete that no longer orphans is another matter.
        (Dependents::Follow, Some(_), false) => Err(Passing::Terminating),
        (Dependents::Follow, _, _) => Ok((Change::Delete, None)),
    }
}

/// As the API server's own registry decides it: the explicit option, the policy, then what the object says.
fn dependents<Managers>(options: &Options, set: &Metadata<Managers>) -> Dependents {
    let orphaned = match (
        options.orphan_dependents,
        options.propagation_policy.as_deref(),
    ) {
        (Some(orphan), _) => orphan,
        (None, Some(policy)) => policy == "Orphan",
        (None, None) => has_orphan_finalizer(set),
    };
    if orphaned {
        Dependents::Orphaned
    } else {
        Dependents::Follow
    }
}

fn has_orphan_finalizer<Managers>(set: &Metadata<Managers>) -> bool {
    set.finalizers.iter().flatten().any(|f| f == ORPHAN)
}

fn resize(request: &Request<Object>, old: &Object) -> Result<Asks, Malformed> {
    let new = request
        .object
        .as_ref()
        .ok_or_else(|| request.incomplete("has no object"))?;
    let is_scale = request.sub_resource == "scale";
    let (from, to) = (ordinals(old, is_scale), ordinals(new, is_scale));
    if from.leaving(to, 0).is_empty() {
        return Ok(Err(Passing::NothingLeaves));
    }
    let intents = (!is_scale).then(|| Intents::of(&new.metadata));
    Ok(Ok((Change::Resize { from, to }, intents)))
}

/// A scale leaves `spec.replicas` out when it is 0. A StatefulSet never does: there, the API server's default is 1.
fn ordinals(object: &Object, is_scale: bool) -> Ordinals {
    let spec = object.spec.as_ref();
    let replicas = spec.and_then(|s| s.replicas);
    let start = spec
        .and_then(|s| s.ordinals.as_ref())
        .and_then(|o| o.start)
        .unwrap_or_default();
    Ordinals {
        start: (!is_scale).then_some(start),
        count: replicas.unwrap_or(u32::from(!is_scale)),
    }
}

#[cfg(test)]
mod tests {
    use super::Dependents::{Follow, Orphaned};
    use super::*;

    #[test]
    fn what_becomes_of_the_pods_is_told_as_the_api_server_does() {
        let told = |options, finalizers: &[&str]| {
            let set =
                serde_json::from_value(serde_json::json!({"finalizers": finalizers})).unwrap();
            dependents::<Managers>(&serde_json::from_value(options).unwrap(), &set)
        };
        assert_eq!(told(serde_json::json!({}), &[]), Follow);
        assert_eq!(told(serde_json::json!({}), &["orphan"]), Orphaned);
        assert_eq!(
            told(serde_json::json!({"propagationPolicy": "Orphan"}), &[]),
            Orphaned
        );
        assert_eq!(
            told(
                serde_json::json!({"propagationPolicy": "Background"}),
                &["orphan"]
            ),
            Follow
        );
        assert_eq!(
            told(serde_json::json!({"orphanDependents": true}), &[]),
            Orphaned
        );
        assert_eq!(
            told(serde_json::json!({"orphanDependents": false}), &["orphan"]),
            Follow
        );
    }
}
