//! `/validate/claims`: may this `PersistentVolumeClaim` be deleted?

use serde::Deserialize;

use super::actor;
use super::asked::{About, Asked, Context, Subject, What};
use super::hook::Hook;
use super::malformed::Malformed;
use super::review::{Metadata, Request};
use crate::judge::ClaimQuestion;
use crate::quorum::{Teardown, Waiver};

/// A claim as a review shows it.
#[derive(Debug, Clone, Default, Deserialize)]
struct Claim {
    #[serde(default)]
    metadata: Metadata,
}

/// The question of a review.
pub(super) fn asked(body: &[u8], context: Context<'_>) -> Result<Asked, Malformed> {
    let mut request = Request::<Claim>::read(Hook::Claims, body)?;
    let claim = request.take_old_object()?;
    let (namespace, name) = request.identity(&claim.metadata)?;
    let subject = Subject::claim(&namespace, &name, claim.metadata.uid.as_deref());
    let passes = passes(&request, &claim);
    let about = About::of(&mut request, subject, context);
    let what = match passes {
        Some(waiver) => What::Nothing(waiver),
        None => What::Claim(ClaimQuestion {
            namespace,
            claim: name,
            asker: about.asker.clone(),
            dry_run: about.dry_run,
            deadline: context.deadline,
        }),
    };
    Ok(Asked { about, what })
}

/// The reason why a delete passes without a question, so that it does whatever else is down. A
/// stale copy of the claim does no harm: before the API server deletes another incarnation, it asks
/// again.
///
/// The garbage collector deletes a claim when its owners are gone or go with their dependents. By a
/// StatefulSet's `persistentVolumeClaimRetentionPolicy` the owner is the StatefulSet or a pod that
/// was scaled in. Whoever deleted that was judged.
fn passes(request: &Request<Claim>, claim: &Claim) -> Option<Waiver> {
    if claim.metadata.deletion_timestamp.is_some() {
        return Some(Waiver::Terminating);
    }
    let shown = claim.metadata.uid.as_deref()?;
    if request.options.precondition()? != shown {
        return Some(Waiver::WrongIncarnation);
    }
    actor::is_garbage_collector(&request.user_info).then_some(Waiver::Teardown(Teardown::Owner))
}
