//! `/validate/restarts`: may this pod be changed while it runs?
//!
//! A changed image, a deadline, or a resize may end etcd without a delete or an eviction that could
//! be judged, and a pod may lose the scheduling gate that keeps its member from starting empty. The
//! effect of such an update follows from the review alone ([`effect`]). The judge is asked only if
//! the update takes a member.
//!
//! [`effect`] and [`quantity`] are pure. They stay here because they work on the pod specs of a
//! review as serde reads them: the core has no serde, and would need the same types a second time.

mod effect;
mod quantity;
mod spec;

use serde::Deserialize;

use super::asked::{Context, ParsedReview, ReviewAction, ReviewContext, Subject};
use super::hook::Hook;
use super::malformed::Malformed;
use super::review::{Metadata, Request};
use crate::judge::Question;
use crate::quorum::{Actor, Grace, InPlace, Kind, Waiver};
use spec::Spec;

/// A pod before or after the update.
#[derive(Debug, Clone, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
}

/// The question of a review.
pub(super) fn asked(body: &[u8], context: Context<'_>) -> Result<ParsedReview, Malformed> {
    let mut request = Request::<Pod>::read(Hook::Restarts, body)?;
    let old = request.take_old_object()?;
    let new = request.take_object()?;
    let (namespace, name) = request.identity(&old.metadata)?;
    let subject = Subject::pod(&namespace, &name, old.metadata.uid.as_deref());
    let about = ReviewContext::new(&mut request, subject, context);
    let what = if old.metadata.deletion_timestamp.is_some() {
        ReviewAction::Nothing(Waiver::Terminating)
    } else if let Some(effect) = effect::compare(&old.spec, &new.spec)
        // The gate itself lets a pod start whose turn it is.
        && !(effect.by == InPlace::Start && about.asker.actor == Actor::Gate)
    {
        ReviewAction::Pod(Question {
            namespace,
            pod: name.as_str().into(),
            shown: Some(old.metadata.belonging()),
            kind: Kind::Restart(effect.by),
            only_if_etcd_is: effect.only_of,
            asker: about.asker.clone(),
            grace: Grace::Graceful,
            precondition: None,
            dry_run: about.dry_run,
            deadline: context.deadline,
            seen: None,
        })
    } else {
        ReviewAction::Nothing(Waiver::RestartsNothing)
    };
    Ok(ParsedReview { about, what })
}
