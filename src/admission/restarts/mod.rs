//! `/validate/restarts`: may this pod be changed while it runs?
//!
//! A changed image, a deadline, or a resize may end etcd without a delete or an eviction that anybody could judge. What such an update
//! does is worked out from the review alone ([`effect`]); only where it takes a member is the judge asked, whose pod it is, and
//! whether somebody takes responsibility for it.

mod effect;
mod quantity;
mod spec;

use serde::Deserialize;

use crate::judge::{Answer, Question, Yes};
use crate::quorum::{Grace, Kind, Waiver};

use super::deadline::Deadline;
use super::handle::{Answered, Call};
use super::hook::Hook;
use super::malformed::Malformed;
use super::report::Subject;
use super::review::{Metadata, Request};
use super::room::Readable;
use super::ruling::Ruling;
use super::{actor, identity, pods};
use spec::Spec;

/// A pod before or after the update.
#[derive(Debug, Clone, Deserialize)]
struct Pod {
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
}

pub(super) async fn answer(
    call: Call<'_>,
    body: Readable<'_>,
    deadline: Deadline,
) -> Result<Answered, Malformed> {
    let mut request = body.read(|body| Request::<Pod>::read(Hook::Restarts, body))?;
    let old = request.old_object.take();
    let old = old.ok_or_else(|| request.incomplete("has no oldObject"))?;
    let new = request.object.take();
    let new = new.ok_or_else(|| request.incomplete("has no object"))?;
    let (namespace, name) = identity::of(&request, &old.metadata)?;
    let user = std::mem::take(&mut request.user_info);
    let asker = actor::asker(user, &call.admission.own_username);
    let dry_run = request.dry_run();
    let subject = Subject::pod(&namespace, &name, old.metadata.uid.as_deref());
    let ruling = if old.metadata.deletion_timestamp.is_some() {
        Ruling::on_pod(&namespace, &name, pods::already_terminating())
    } else if let Some(effect) = effect::of(&old.spec, &new.spec) {
        let question = Question {
            namespace,
            pod: name.as_str().into(),
            shown: Some(old.metadata.belonging()),
            kind: Kind::Restart(effect),
            asker: asker.clone(),
            grace: Grace::Graceful,
            precondition: None,
            dry_run,
            deadline: deadline.judge,
            seen: None,
        };
        call.judged(question, deadline).await
    } else {
        // Nothing has to be found out, so nobody has to be reachable.
        Ruling::on_pod(&namespace, &name, restarts_nothing())
    };
    Ok(Answered {
        review: request.uid,
        subject,
        asker,
        dry_run,
        ruling,
    })
}

fn restarts_nothing() -> Answer {
    Answer {
        cluster: None,
        outcome: Ok(Yes::Waived(Waiver::RestartsNothing)),
        headroom: None,
        warnings: Vec::new(),
    }
}
