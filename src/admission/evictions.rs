//! `/validate/evictions`: may this pod be evicted? An allowed eviction deletes the pod without a
//! further review.

use serde::Deserialize;

use super::asked::{Context, ParsedReview, ReviewAction, ReviewContext, Subject};
use super::hook::Hook;
use super::malformed::{Malformed, Problem};
use super::review::{Metadata, Options, Request};
use crate::judge::{DryRun, Question};
use crate::quorum::Kind;

/// An eviction: `policy/v1` and `policy/v1beta1` alike.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Eviction {
    #[serde(default)]
    api_version: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    /// The name and the namespace of the pod.
    #[serde(default)]
    pub metadata: Metadata,
    /// The options of the delete. Some clients send none.
    pub delete_options: Option<Options>,
}

impl Eviction {
    /// Whether this version of evictions is known. Older API servers leave the type out.
    fn is_known(&self) -> bool {
        let version = self.api_version.as_deref().unwrap_or_default();
        let kind = self.kind.as_deref().unwrap_or_default();
        matches!(version, "" | "policy/v1" | "policy/v1beta1") && matches!(kind, "" | "Eviction")
    }
}

/// The review of an eviction, as both webhooks for evictions read it.
#[derive(Debug)]
pub(super) struct Evicted {
    request: Request<Eviction>,
    pub(super) eviction: Eviction,
    pub(super) namespace: String,
    pub(super) pod: String,
}

impl Evicted {
    pub(super) fn read(hook: Hook, body: &[u8]) -> Result<Self, Malformed> {
        let mut request = Request::<Eviction>::read(hook, body)?;
        let eviction = request.take_object()?;
        if !eviction.is_known() {
            let found = format!("{:?} {:?}", eviction.api_version, eviction.kind);
            return Err(request.malformed(Problem::Misdirected(format!(
                "the object is not an Eviction of policy/v1 or policy/v1beta1: {found}"
            ))));
        }
        let mut metadata = eviction.metadata.clone();
        if hook == Hook::MutateEvictions && !request.name.is_empty() {
            // If the object has another name, the API server refuses the eviction right after this
            // webhook, as a bad request (400). An error of the webhook would make that an internal
            // error (500).
            metadata.name.clear();
        }
        let (namespace, pod) = request.identity(&metadata)?;
        Ok(Self {
            request,
            eviction: *eviction,
            namespace,
            pod,
        })
    }

    pub(super) fn about(&mut self, context: Context<'_>) -> ReviewContext {
        let subject = Subject::pod(&self.namespace, &self.pod, self.precondition());
        ReviewContext {
            dry_run: dry_run(&self.request, &self.eviction),
            ..ReviewContext::new(&mut self.request, subject, context)
        }
    }

    pub(super) fn precondition(&self) -> Option<&str> {
        self.eviction.delete_options.as_ref()?.precondition()
    }
}

/// Whether nothing is to be stored. `kubectl drain --dry-run=server` says so inside the eviction,
/// other clients in the options of the request.
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

/// The question of a review.
pub(super) fn asked(body: &[u8], context: Context<'_>) -> Result<ParsedReview, Malformed> {
    let mut evicted = Evicted::read(Hook::Evictions, body)?;
    let about = evicted.about(context);
    let options = evicted.eviction.delete_options.unwrap_or_default();
    let question = Question {
        namespace: evicted.namespace,
        pod: evicted.pod.as_str().into(),
        shown: None,
        kind: Kind::Evict,
        asker: about.asker.clone(),
        // The review shows no pod, so only an explicit 0 is known to remove the object at once.
        grace: Options::grace_of(options.grace_period_seconds),
        precondition: options.precondition().map(Into::into),
        dry_run: about.dry_run,
        deadline: context.deadline,
        only_if_etcd_is: Vec::new(),
        seen: None,
    };
    let what = ReviewAction::Pod(question);
    Ok(ParsedReview { about, what })
}
