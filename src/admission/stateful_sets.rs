//! `/validate/statefulsets`: may this StatefulSet be deleted, or lose replicas?

use serde::Deserialize;

use super::asked::{Context, ParsedReview, ReviewAction, ReviewContext, Subject};
use super::hook::{Hook, Operation};
use super::malformed::Malformed;
use super::managers::Managers;
use super::review::{Metadata, Request};
use super::{actor, checked};
use crate::api::names::{INTENT, ORPHAN};
use crate::judge::SetQuestion;
use crate::observe::Intents;
use crate::quorum::stateful_set::{Change, Delete, Ordinals};
use crate::quorum::{ClusterRef, Waiver};

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

/// The question of a review.
pub(super) fn asked(body: &[u8], context: Context<'_>) -> Result<ParsedReview, Malformed> {
    let mut request = Request::<Object>::read(Hook::StatefulSets, body)?;
    let old = request.take_old_object()?;
    let (namespace, name) = request.identity(&old.metadata)?;
    let uid = old.metadata.uid.as_deref();
    let (change, intents) = match request.operation {
        // The stored object's own annotations count for a delete. The judge reads them.
        Operation::Delete => (deletion(&request, &old), None),
        Operation::Create | Operation::Update | Operation::Connect => write(&mut request, &old)?,
    };
    let collected = request.operation == Operation::Delete
        && actor::is_garbage_collector(&request.user_info)
        && uid.is_some()
        && request.options.precondition() == uid;
    let subject = Subject::stateful_set(&namespace, &name, uid);
    let uid = uid.map(Into::into);
    let about = ReviewContext::new(&mut request, subject, context);
    let what = match change {
        Err(waiver) => ReviewAction::Nothing(waiver),
        Ok(change) => ReviewAction::Set(SetQuestion {
            set: ClusterRef::new(namespace, name),
            uid,
            change,
            intents,
            asker: about.asker.clone(),
            collected,
            dry_run: about.dry_run,
            deadline: context.deadline,
        }),
    };
    Ok(ParsedReview { about, what })
}

type Effect = Result<Change, Waiver>;

fn deletion(request: &Request<Object>, old: &Object) -> Effect {
    Change::by_delete(&Delete {
        orphan_dependents: request.options.orphan_dependents,
        propagation_policy: request.options.propagation_policy.as_deref(),
        ..stored(old)
    })
}

fn stored(old: &Object) -> Delete<'static> {
    Delete {
        has_orphan_finalizer: old.metadata.has_finalizer(ORPHAN),
        is_terminating: old.metadata.deletion_timestamp.is_some(),
        ..Delete::default()
    }
}

/// The effect of a write, and the annotations of the object after it, if the review shows them.
fn write(
    request: &mut Request<Object>,
    old: &Object,
) -> Result<(Effect, Option<Intents>), Malformed> {
    let new = request.take_object()?;
    let is_scale = request.sub_resource == "scale";
    // The garbage collector itself takes the finalizer off, once all pods are orphaned.
    let by_collector = actor::may_be_garbage_collector(&request.user_info);
    let orphans = is_scale || by_collector || new.metadata.has_finalizer(ORPHAN);
    let effect = match Change::by_finalizers(&stored(old), orphans) {
        Some(change) => Ok(change),
        None => Change::by_write(ordinals(old, is_scale), ordinals(&new, is_scale)),
    };
    let metadata = &new.metadata;
    let said = |metadata: &Metadata<Managers>| metadata.annotations.as_ref()?.get(INTENT).cloned();
    // Any write of its manager renews the time of an annotation. An announcement that was there
    // before is as old as it was, or one that is kept in Git would never end.
    let before = said(&old.metadata);
    let stood_before = before.is_some() && before == said(metadata);
    let managers = if stood_before {
        &old.metadata
    } else {
        metadata
    };
    let written = managers.managed_fields.unwrap_or_default().intent_written();
    let intents = (!is_scale).then(|| Intents::new(metadata.annotations.as_ref(), written));
    Ok((effect, intents))
}

/// The ordinals of an object. A scale leaves `spec.replicas` out if it is 0. A StatefulSet never
/// does; its default is 1.
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
