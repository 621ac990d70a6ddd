//! `/validate/claims`: may this `PersistentVolumeClaim` be deleted, or lose the finalizer that
//! protects it while a pod uses it?

use serde::Deserialize;

use super::actor;
use super::asked::{Context, ParsedReview, ReviewAction, ReviewContext, Subject};
use super::hook::{Hook, Operation};
use super::malformed::Malformed;
use super::review::{Metadata, Request};
use crate::api::names::PVC_PROTECTION;
use crate::judge::{ClaimChange, ClaimQuestion};
use crate::quorum::Waiver;

/// A claim as a review shows it.
#[derive(Debug, Clone, Default, Deserialize)]
struct Claim {
    #[serde(default)]
    metadata: Metadata,
}

/// The question of a review.
pub(super) fn asked(body: &[u8], context: Context<'_>) -> Result<ParsedReview, Malformed> {
    let mut request = Request::<Claim>::read(Hook::Claims, body)?;
    let claim = request.take_old_object()?;
    let (namespace, name) = request.identity(&claim.metadata)?;
    let subject = Subject::claim(&namespace, &name, claim.metadata.uid.as_deref());
    let change = match request.operation {
        Operation::Update => update(&mut request, &claim)?,
        Operation::Create | Operation::Delete | Operation::Connect => deletion(&request, &claim),
    };
    let about = ReviewContext::new(&mut request, subject, context);
    let what = match change {
        Err(waiver) => ReviewAction::Nothing(waiver),
        Ok(change) => ReviewAction::Claim(ClaimQuestion {
            namespace,
            claim: name,
            change,
            asker: about.asker.clone(),
            dry_run: about.dry_run,
            deadline: context.deadline,
        }),
    };
    Ok(ParsedReview { about, what })
}

/// The question of a delete, or the reason why it passes without a question, so that it does
/// whatever else is down. A stale copy of the claim does no harm: before the API server deletes
/// another incarnation, it asks again.
fn deletion(request: &Request<Claim>, claim: &Claim) -> Result<ClaimChange, Waiver> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(Waiver::Terminating);
    }
    let shown = claim.metadata.uid.as_deref();
    let precondition = request.options.precondition();
    if shown.is_some() && precondition.is_some() && precondition != shown {
        return Err(Waiver::WrongIncarnation);
    }
    Ok(ClaimChange::Delete {
        collected: shown.is_some()
            && precondition == shown
            && actor::is_garbage_collector(&request.user_info),
    })
}

/// The question of an update, if it ends a protection.
fn update(
    request: &mut Request<Claim>,
    old: &Claim,
) -> Result<Result<ClaimChange, Waiver>, Malformed> {
    let new = request.take_object()?;
    let is_protected = |claim: &Claim| claim.metadata.has_finalizer(PVC_PROTECTION);
    let ends = is_protected(old) && !is_protected(&new);
    Ok(if ends {
        Ok(ClaimChange::Unprotect)
    } else {
        Err(Waiver::StaysProtected)
    })
}
