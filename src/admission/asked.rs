//! The question of a review, as its webhook understood it.

use json_patch::Patch;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::actor;
use super::review::Request;
use crate::judge::{Asker, ClaimQuestion, DryRun, Question, SetQuestion};
use crate::quorum::Waiver;

/// A review, understood.
#[derive(Debug)]
pub(super) struct ParsedReview {
    /// The request.
    pub(super) about: ReviewContext,
    /// The question.
    pub(super) what: ReviewAction,
}

/// A request, whatever is asked.
#[derive(Debug)]
pub(super) struct ReviewContext {
    /// The uid of the review, which the answer repeats.
    pub(super) review: String,
    /// The object that the review is about.
    pub(super) subject: Subject,
    /// The asker.
    pub(super) asker: Asker,
    /// Whether anything may be written.
    pub(super) dry_run: DryRun,
}

impl ReviewContext {
    /// The request of a review that is about this object.
    pub(super) fn new<Object>(
        request: &mut Request<Object>,
        subject: Subject,
        context: Context<'_>,
    ) -> Self {
        let user = std::mem::take(&mut request.user_info);
        Self {
            review: request.uid.clone(),
            subject,
            asker: actor::asker(user, context.own_username),
            dry_run: request.dry_run(),
        }
    }
}

/// The question of a review.
#[derive(Debug)]
pub(super) enum ReviewAction {
    /// A disruption of a pod.
    Pod(Question),
    /// A change of a StatefulSet that takes pods away.
    Set(SetQuestion),
    /// The delete of a claim.
    Claim(ClaimQuestion),
    /// A request that takes nothing, so that nobody has to be asked.
    Nothing(Waiver),
    /// A change to the request itself, if there is one. An error says what could not be found out.
    Patch(Result<Option<Patch>, String>),
}

/// The circumstances of a request that its review does not tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The username under which the API server knows this process.
    pub(super) own_username: &'a str,
    /// The time by which the judge has to answer.
    pub(super) deadline: Instant,
}

/// The object that a request is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    /// The kind.
    pub(super) kind: SubjectKind,
    /// The namespace.
    pub(super) namespace: String,
    /// The name.
    pub(super) name: String,
    /// The UID, if the request showed it.
    pub(super) uid: Option<String>,
}

/// The kind of an object that a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SubjectKind {
    /// A pod.
    Pod,
    /// A StatefulSet.
    StatefulSet,
    /// A `PersistentVolumeClaim`.
    Claim,
}

impl SubjectKind {
    /// The API group. `None` for the core group.
    pub(super) fn group(self) -> Option<&'static str> {
        match self {
            Self::Pod | Self::Claim => None,
            Self::StatefulSet => Some("apps"),
        }
    }

    /// The plural name of the resource.
    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::Pod => "pods",
            Self::StatefulSet => "statefulsets",
            Self::Claim => "persistentvolumeclaims",
        }
    }
}

impl Subject {
    /// A pod.
    pub(super) fn pod(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self {
            kind: SubjectKind::Pod,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: uid.map(str::to_owned),
        }
    }

    /// A StatefulSet.
    pub(super) fn stateful_set(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self {
            kind: SubjectKind::StatefulSet,
            ..Self::pod(namespace, name, uid)
        }
    }

    /// A `PersistentVolumeClaim`.
    pub(super) fn claim(namespace: &str, name: &str, uid: Option<&str>) -> Self {
        Self {
            kind: SubjectKind::Claim,
            ..Self::pod(namespace, name, uid)
        }
    }

    /// The object as an Event refers to it.
    pub(super) fn reference(&self) -> ObjectReference {
        let (version, kind) = match self.kind {
            SubjectKind::Pod => ("v1", "Pod"),
            SubjectKind::StatefulSet => ("apps/v1", "StatefulSet"),
            SubjectKind::Claim => ("v1", "PersistentVolumeClaim"),
        };
        ObjectReference {
            api_version: Some(version.to_owned()),
            kind: Some(kind.to_owned()),
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            uid: self.uid.clone(),
            ..ObjectReference::default()
        }
    }
}
