//! `/mutate/statefulsets`: keeps `OnDelete` on enrolled StatefulSets by a change of each write
//! before it is stored. So an operator that writes its own strategy back on every sync changes
//! nothing, and its sync is not refused either.
//!
//! If the feature is off, or the StatefulSet is no longer enrolled, the same webhook gives the
//! owner's strategy back. If something cannot be found out in time, the request stays as it is, and
//! the controller repairs the StatefulSet later.

use std::str::FromStr as _;

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, RemoveOperation};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::patch::set;
use super::pods::Enrolment;
use crate::admission::asked::{Context, ParsedReview, ReviewAction, ReviewContext, Subject};
use crate::admission::hook::Hook;
use crate::admission::malformed::Malformed;
use crate::admission::reads::Reads;
use crate::admission::review::{Metadata, Request};
use crate::admission::room::Readable;
use crate::api::names::PREVIOUS_UPDATE_STRATEGY;
use crate::features::Features;
use crate::observe::labels_enrol;
use crate::quorum::Actor;
use crate::strategy::{AnnotationChange, Change, LeaderCommand, ON_DELETE, SetStrategy};

/// The part of a StatefulSet that matters to its update strategy.
#[derive(Debug, Clone, Default, Deserialize)]
struct StatefulSet {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    update_strategy: Option<Value>,
}

impl StatefulSet {
    fn sight(&self) -> SetStrategy<'_> {
        let annotations = self.metadata.annotations.as_ref();
        let memory = annotations.and_then(|all| all.get(PREVIOUS_UPDATE_STRATEGY));
        SetStrategy {
            strategy: self.spec.update_strategy.as_ref(),
            memory: memory.map(String::as_str),
        }
    }
}

/// The patch for the StatefulSet in a review.
pub(in crate::admission) async fn asked(
    body: Readable<'_>,
    context: Context<'_>,
    enrolment: (&dyn Enrolment, Reads<'_>),
    features: Features,
) -> Result<ParsedReview, Malformed> {
    let read = |body: &[u8]| Request::<StatefulSet>::read(Hook::MutateStatefulSets, body);
    let mut request = body.read(read)?;
    let object = request.take_object()?;
    let (namespace, name) = request.place(&object.metadata)?;
    let subject = Subject::stateful_set(namespace, name, object.metadata.uid.as_deref());
    let old = request.old_object.take();
    let before = old.as_deref().and_then(|old| old.sight().memory);
    let about = ReviewContext::new(&mut request, subject, context);
    let manager = request.options.field_manager.as_deref();
    let order = manager.and_then(|name| LeaderCommand::from_str(name).ok());
    let change = match order.filter(|_| about.asker.actor == Actor::Gate) {
        Some(order) => object.sight().obey(order, before),
        None if !features.on_delete => object.sight().give_back(before),
        None => keep_strategy(enrolment, &about.subject, &object, before, context.deadline).await,
    };
    let patch = change.map(|change| patch(&change, &object.metadata));
    Ok(ParsedReview {
        about,
        what: ReviewAction::Patch(Ok(patch)),
    })
}

/// The change that keeps the strategy of an enrolled StatefulSet.
async fn keep_strategy(
    (enrolment, reads): (&dyn Enrolment, Reads<'_>),
    subject: &Subject,
    object: &StatefulSet,
    before: Option<&str>,
    deadline: Instant,
) -> Option<Change> {
    let sight = object.sight();
    let changed_before = sight.memory.or(before).is_some();
    if sight.kind() == ON_DELETE && !changed_before {
        return None;
    }
    let labels = object.metadata.labels.as_ref();
    if labels.is_some_and(labels_enrol) {
        return sight.on_delete(before);
    }
    let enrolled = async {
        let may_read = reads.allowed_in(&subject.namespace);
        let _place = may_read.map_err(|why| why.to_string())?;
        enrolment
            .is_enrolled(&subject.namespace, &subject.name)
            .await
    };
    match timeout_at(deadline, enrolled).await {
        Ok(Ok(true)) => sight.on_delete(before),
        Ok(Ok(false)) => sight.give_back(before),
        // The StatefulSet was enrolled when the gate changed it.
        Ok(Err(_)) | Err(_) if changed_before => sight.on_delete(before),
        Ok(Err(_)) | Err(_) => None,
    }
}

fn patch(change: &Change, metadata: &Metadata) -> Patch {
    let mut operations = Vec::new();
    if let Some(strategy) = &change.strategy {
        operations.extend(set(["spec", "updateStrategy"], strategy.clone()).0);
    }
    match (&change.memory, &metadata.annotations) {
        (AnnotationChange::Stays, _) => {}
        (AnnotationChange::Says(text), None) => {
            let all = json!({PREVIOUS_UPDATE_STRATEGY: text});
            operations.extend(set(["metadata", "annotations"], all).0);
        }
        (AnnotationChange::Says(text), Some(_)) => {
            let one = ["metadata", "annotations", PREVIOUS_UPDATE_STRATEGY];
            operations.extend(set(one, json!(text)).0);
        }
        (AnnotationChange::Goes, _) => operations.push(PatchOperation::Remove(RemoveOperation {
            path: PointerBuf::from_tokens(["metadata", "annotations", PREVIOUS_UPDATE_STRATEGY]),
        })),
    }
    Patch(operations)
}
