//! `/validate/evictions`: may this pod be evicted? An allowed eviction deletes the pod without a further review.

use serde::Deserialize;

use crate::judge::{DryRun, Question};
use crate::quorum::Kind;

use super::deadline::Deadline;
use super::handle::{Answered, Call};
use super::hook::Hook;
use super::malformed::{Malformed, Problem};
use super::report::Subject;
use super::review::{Metadata, Options, Request};
use super::room::Readable;
use super::ruling::Ruling;
use super::{actor, grace, identity};

/// An eviction: `policy/v1` and `policy/v1beta1` alike.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Eviction {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    /// The pod's name and namespace.
    #[serde(default)]
    pub metadata: Metadata,
    /// How the pod is to be deleted. Some clients send none.
    pub delete_options: Option<Options>,
}

impl Eviction {
    /// Whether this is a version of evictions that is known; older API servers leave the type out.
    fn is_known(&self) -> bool {
        let version = self.api_version.as_deref().unwrap_or_default();
        let kind = self.kind.as_deref().unwrap_or_default();
        matches!(version, "" | "policy/v1" | "policy/v1beta1") && matches!(kind, "" | "Eviction")
    }
}

/// What both webhooks for evictions read out of a review.
#[derive(Debug)]
pub(super) struct Evicted {
    pub(super) request: Request<Eviction>,
    pub(super) eviction: Eviction,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) dry_run: DryRun,
}

impl Evicted {
    pub(super) fn read(hook: Hook, body: &[u8]) -> Result<Self, Malformed> {
        let mut request = Request::<Eviction>::read(hook, body)?;
        let eviction = request
            .object
            .take()
            .ok_or_else(|| request.incomplete("has no object"))?;
        if !eviction.is_known() {
            let found = format!("{:?} {:?}", eviction.api_version, eviction.kind);
            return Err(request.malformed(Problem::Misdirected(format!(
                "the object is not an Eviction of policy/v1 or policy/v1beta1: {found}"
            ))));
        }
        let mut metadata = eviction.metadata.clone();
        if hook == Hook::MutateEvictions && !request.name.is_empty() {
            // Where the object has another name the API server itself refuses it, right after this webhook: a bad request (400). A
            // webhook that gives no verdict would make that an internal error (500).
            metadata.name.clear();
        }
        let (namespace, pod) = identity::of(&request, &metadata)?;
        let dry_run = dry_run(&request, &eviction);
        Ok(Self {
            request,
            eviction: *eviction,
            namespace,
            pod,
            dry_run,
        })
    }

    pub(super) fn subject(&self) -> Subject {
        Subject::pod(&self.namespace, &self.pod, self.precondition())
    }

    pub(super) fn precondition(&self) -> Option<&str> {
        self.eviction.delete_options.as_ref()?.precondition()
    }
}

/// `kubectl drain --dry-run=server` asks inside the eviction, other clients in the request's own options.
fn dry_run(request: &Request<Eviction>, eviction: &Eviction) -> DryRun {
    let inside = eviction
        .delete_options
        .as_ref()
        .is_some_and(|options| options.dry_run);
    if inside {
        DryRun::Yes
    } else {
        request.dry_run()
    }
}

pub(super) async fn answer(
    call: Call<'_>,
    body: Readable<'_>,
    deadline: Deadline,
) -> Result<Answered, Malformed> {
    let evicted = body.read(|body| Evicted::read(Hook::Evictions, body))?;
    let subject = evicted.subject();
    let asker = actor::asker(
        evicted.request.user_info.clone(),
        &call.admission.own_username,
    );
    let options = evicted.eviction.delete_options.clone().unwrap_or_default();
    let question = Question {
        namespace: evicted.namespace.clone(),
        pod: evicted.pod.as_str().into(),
        shown: None,
        kind: Kind::Evict,
        asker: asker.clone(),
        grace: grace::of_eviction(&options),
        precondition: options.precondition().map(Into::into),
        dry_run: evicted.dry_run,
        deadline: deadline.judge,
        seen: None,
    };
    let ruling: Ruling = call.judged(question, deadline).await;
    Ok(Answered {
        review: evicted.request.uid,
        subject,
        asker,
        dry_run: evicted.dry_run,
        ruling,
    })
}
