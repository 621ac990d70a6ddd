//! `/mutate/statefulsets`: keeps `OnDelete` on enrolled StatefulSets by changing the write before it is stored. So an operator that writes
//! its own strategy back on every sync changes nothing that anybody could see, and its sync is not refused either.
//!
//! With the feature off, or where nothing is enrolled any more, the same path gives back what was kept. Whatever cannot be found out
//! in time leaves the request as it is: the controller repairs what was missed.

use std::str::FromStr as _;

use json_patch::jsonptr::PointerBuf;
use json_patch::{Patch, PatchOperation, RemoveOperation};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::names::PREVIOUS_UPDATE_STRATEGY;
use crate::observe::labels_enrol;
use crate::quorum::Actor;
use crate::strategy::{Change, Memory, ON_DELETE, Order, Sight};

use super::super::actor;
use super::super::deadline::Deadline;
use super::super::handle::{Admission, Answered};
use super::super::hook::Hook;
use super::super::malformed::Malformed;
use super::super::report::Subject;
use super::super::review::{Metadata, Request};
use super::super::room::Readable;
use super::super::ruling::Ruling;
use super::set;

/// A StatefulSet, as far as its update strategy goes.
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
    fn sight(&self) -> Sight<'_> {
        let annotations = self.metadata.annotations.as_ref();
        let memory = annotations.and_then(|all| all.get(PREVIOUS_UPDATE_STRATEGY));
        Sight {
            strategy: self.spec.update_strategy.as_ref(),
            memory: memory.map(String::as_str),
        }
    }
}

pub(in super::super) async fn answer(
    admission: &Admission,
    body: Readable<'_>,
    deadline: Deadline,
) -> Result<Answered, Malformed> {
    let read = |body: &[u8]| Request::<StatefulSet>::read(Hook::MutateStatefulSets, body);
    let mut request = body.read(read)?;
    let object = request
        .object
        .take()
        .ok_or_else(|| request.incomplete("has no object"))?;
    let (namespace, name) = request.place(&object.metadata)?;
    let subject = Subject::stateful_set(namespace, name, object.metadata.uid.as_deref());
    let old = request.old_object.as_deref().map(StatefulSet::sight);
    let before = old.and_then(|old| old.memory);
    let dry_run = request.dry_run();
    let asker = actor::asker(request.user_info, &admission.own_username);
    let manager = request.options.field_manager.as_deref();
    let order = manager.and_then(|name| Order::from_str(name).ok());
    let change = match order.filter(|_| asker.actor == Actor::Gate) {
        Some(order) => object.sight().obey(order, before),
        None => change(admission, &subject, &object, before, deadline.judge).await,
    };
    Ok(Answered {
        subject,
        asker,
        review: request.uid,
        dry_run,
        ruling: Ruling::change(change.map(|change| patch(&change, &object.metadata))),
    })
}

async fn change(
    admission: &Admission,
    subject: &Subject,
    object: &StatefulSet,
    before: Option<&str>,
    deadline: Instant,
) -> Option<Change> {
    let sight = object.sight();
    let changed_before = sight.memory.or(before).is_some();
    if !admission.features.on_delete {
        return sight.give_back(before);
    }
    if sight.kind() == ON_DELETE && !changed_before {
        return None;
    }
    let labels = object.metadata.labels.as_ref();
    if labels.is_some_and(labels_enrol) {
        return sight.keep(before);
    }
    let enrolled = admission
        .enrolment
        .is_enrolled(&subject.namespace, &subject.name);
    match tokio::time::timeout_at(deadline, enrolled).await {
        Ok(Ok(true)) => sight.keep(before),
        Ok(Ok(false)) => sight.give_back(before),
        // It was enrolled when it was changed.
        Ok(Err(_)) | Err(_) if changed_before => sight.keep(before),
        Ok(Err(_)) | Err(_) => None,
    }
}

fn patch(change: &Change, metadata: &Metadata) -> Patch {
    let mut operations = Vec::new();
    if let Some(strategy) = &change.strategy {
        operations.extend(set(["spec", "updateStrategy"], strategy.clone()).0);
    }
    match (&change.memory, &metadata.annotations) {
        (Memory::Stays, _) => {}
        (Memory::Says(text), None) => {
            let all = json!({PREVIOUS_UPDATE_STRATEGY: text});
            operations.extend(set(["metadata", "annotations"], all).0);
        }
        (Memory::Says(text), Some(_)) => {
            let one = ["metadata", "annotations", PREVIOUS_UPDATE_STRATEGY];
            operations.extend(set(one, json!(text)).0);
        }
        (Memory::Goes, _) => operations.push(PatchOperation::Remove(RemoveOperation {
            path: PointerBuf::from_tokens(["metadata", "annotations", PREVIOUS_UPDATE_STRATEGY]),
        })),
    }
    Patch(operations)
}
