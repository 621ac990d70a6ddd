//! `/validate/volumes`: may this `PersistentVolume` be deleted, or taken from its claim?
//!
//! A volume that is bound loses its data where its claim is taken out of it: Kubernetes then
//! releases it, and its provisioner empties it under the running etcd.

use serde::Deserialize;

use super::asked::{Context, ParsedReview, ReviewAction, ReviewContext, Subject};
use super::checked;
use super::hook::{Hook, Operation};
use super::malformed::Malformed;
use super::review::{Metadata, Request};
use crate::api::names::PV_PROTECTION;
use crate::judge::{ClaimChange, ClaimQuestion};
use crate::quorum::Waiver;

/// A volume as a review shows it.
#[derive(Debug, Clone, Default, Deserialize)]
struct Volume {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    claim_ref: Option<ClaimRef>,
}

/// The claim to which a volume is bound.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ClaimRef {
    #[serde(default, deserialize_with = "checked::namespace")]
    namespace: String,
    #[serde(default, deserialize_with = "checked::name")]
    name: String,
    #[serde(default, deserialize_with = "checked::uid")]
    uid: Option<String>,
}

/// The question of a review.
pub(super) fn asked(body: &[u8], context: Context<'_>) -> Result<ParsedReview, Malformed> {
    let mut request = Request::<Volume>::read(Hook::Volumes, body)?;
    let old = request.take_old_object()?;
    let name = request.name_of(&old.metadata)?;
    let keeps = match request.operation {
        Operation::Update => keeps(&old, &*request.take_object()?),
        Operation::Create | Operation::Delete | Operation::Connect => None,
    };
    let waiver = match old.spec.claim_ref {
        None => Some(Waiver::Foreign),
        Some(_) => keeps,
    };
    let claim = old.spec.claim_ref.unwrap_or(ClaimRef {
        namespace: String::new(),
        name: name.clone(),
        uid: None,
    });
    let subject = Subject::claim(&claim.namespace, &claim.name, claim.uid.as_deref());
    let about = ReviewContext::new(&mut request, subject, context);
    let what = match waiver {
        Some(waiver) => ReviewAction::Nothing(waiver),
        None => ReviewAction::Claim(ClaimQuestion {
            namespace: claim.namespace,
            claim: claim.name,
            change: ClaimChange::TakeVolume(name),
            asker: about.asker.clone(),
            dry_run: about.dry_run,
            deadline: context.deadline,
        }),
    };
    Ok(ParsedReview { about, what })
}

/// The reason why an update leaves the claim its volume, if it does.
fn keeps(old: &Volume, new: &Volume) -> Option<Waiver> {
    let is_protected = |volume: &Volume| volume.metadata.has_finalizer(PV_PROTECTION);
    let same = old.spec.claim_ref == new.spec.claim_ref;
    (same && (is_protected(new) || !is_protected(old))).then_some(Waiver::StaysProtected)
}
