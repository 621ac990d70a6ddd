//! `/validate/pods`: may this pod be deleted?

use serde::Deserialize;

use crate::judge::{Answer, Question, Yes};
use crate::quorum::{Actor, Grace, Kind, Waiver};

use super::deadline::Deadline;
use super::handle::{Answered, Call};
use super::hook::Hook;
use super::malformed::Malformed;
use super::report::Subject;
use super::review::{Metadata, Request};
use super::room::Readable;
use super::ruling::Ruling;
use super::{actor, grace, identity};

/// A pod as a review shows it: perhaps from a cache, so nothing but its identity decides.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Pod {
    /// Its identity.
    #[serde(default)]
    pub metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
    termination_grace_period_seconds: Option<i64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Status {
    phase: Option<String>,
}

impl Pod {
    /// The node it is bound to.
    pub(super) fn node(&self) -> Option<&str> {
        let name = self.spec.as_ref()?.node_name.as_deref()?;
        (!name.is_empty()).then_some(name)
    }

    /// Whether its phase is `Failed` or `Succeeded`.
    pub(super) fn has_final_phase(&self) -> bool {
        let phase = self.status.as_ref().and_then(|s| s.phase.as_deref());
        matches!(phase, Some("Failed" | "Succeeded"))
    }

    /// The grace period of its own, seconds.
    pub(super) fn own_grace_seconds(&self) -> Option<i64> {
        self.spec.as_ref()?.termination_grace_period_seconds
    }

    fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

pub(super) async fn answer(
    call: Call<'_>,
    body: Readable<'_>,
    deadline: Deadline,
) -> Result<Answered, Malformed> {
    let mut request = body.read(|body| Request::<Pod>::read(Hook::Pods, body))?;
    let pod = request
        .old_object
        .take()
        .ok_or_else(|| request.incomplete("has no oldObject"))?;
    let (namespace, name) = identity::of(&request, &pod.metadata)?;
    let asker = actor::asker(
        std::mem::take(&mut request.user_info),
        &call.admission.own_username,
    );
    let dry_run = request.dry_run();
    let grace = grace::of_delete(&request.options, &pod);
    let subject = Subject::pod(&namespace, &name, pod.metadata.uid.as_deref());
    let ruling = if pod.is_terminating() && may_finish(grace, asker.actor) {
        Ruling::on_pod(&namespace, &name, already_terminating())
    } else {
        let question = Question {
            namespace,
            pod: name.as_str().into(),
            shown: Some(pod.metadata.belonging()),
            kind: Kind::Delete,
            asker: asker.clone(),
            grace,
            precondition: request.options.precondition().map(Into::into),
            dry_run,
            deadline: deadline.judge,
            seen: None,
        };
        call.judged(question, deadline).await
    };
    Ok(Answered {
        review: request.uid,
        subject,
        asker,
        dry_run,
        ruling,
    })
}

/// Rule 2, without asking anybody, so that terminating pods finish whatever else is down. A stale copy does no harm:
/// an incarnation that terminates never stops terminating.
fn may_finish(grace: Grace, actor: Actor) -> bool {
    match (grace, actor) {
        (Grace::Graceful, _) | (Grace::Forced, Actor::NodeOrPodGc) => true,
        (Grace::Forced, Actor::Stranger | Actor::Gate) => false,
    }
}

/// The answer of rule 2.
pub(super) fn already_terminating() -> Answer {
    Answer {
        cluster: None,
        outcome: Ok(Yes::Waived(Waiver::Terminating)),
        headroom: None,
        warnings: Vec::new(),
    }
}
