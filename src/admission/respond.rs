//! The response that the API server reads.
//!
//! A refusal never carries `retryAfterSeconds`. The API server would turn it into a `Retry-After`
//! header, after which client-go repeats the request silently, ten times, in the middle of the
//! controller that asked.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};
use serde::Serialize;

use super::asked::Subject;
use super::outcome::{HandledReview, Outcome};
use super::rejection::Rejection;
use super::report::verdict;
use crate::telemetry::events::shortened;

/// The most bytes of a warning. The API server may cut a longer one in the middle of a character.
const WARNING_BYTES: usize = 256;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: ReviewResponse<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReviewResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    audit_annotations: BTreeMap<&'static str, Cow<'a, str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// The response to a review.
pub(super) fn respond(answered: &HandledReview, rejection: Option<&Rejection>) -> Response {
    let outcome = &answered.outcome;
    let allowed = outcome.is_allowed();
    let refusal = rejection.filter(|_| !allowed);
    let patch = match outcome {
        Outcome::Changed(Some(patch)) => serde_json::to_vec(patch).ok().map(ByteString),
        Outcome::Changed(None) | Outcome::Judged(_) | Outcome::Unasked(_) => None,
    };
    Json(Review {
        api_version: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        response: ReviewResponse {
            uid: &answered.about.review,
            allowed,
            status: refusal.map(|rejection| status(&answered.about.subject, rejection)),
            patch_type: patch.is_some().then_some("JSONPatch"),
            patch,
            audit_annotations: audit(answered, rejection),
            warnings: warnings(answered, rejection),
        },
    })
    .into_response()
}

fn status(subject: &Subject, rejection: &Rejection) -> Status {
    let details = StatusDetails {
        causes: Some(rejection.causes()),
        group: subject.kind.group().map(str::to_owned),
        kind: Some(subject.kind.resource().to_owned()),
        name: Some(subject.name.clone()),
        retry_after_seconds: None,
        uid: subject.uid.clone(),
    };
    Status {
        code: Some(rejection.code.number()),
        details: Some(details),
        message: Some(rejection.message.clone()),
        reason: Some(rejection.code.reason().to_owned()),
        status: Some("Failure".to_owned()),
        ..Status::default()
    }
}

fn warnings(answered: &HandledReview, rejection: Option<&Rejection>) -> Vec<String> {
    let warned = rejection
        .filter(|_| answered.outcome.is_allowed())
        .map(|rejection| {
            format!(
                "allowed by enforcement: Warn, otherwise refused: {}",
                rejection.message
            )
        });
    let answer = answered.outcome.answer();
    let others = answer.map(|answer| answer.warnings.clone());
    let all = warned.into_iter().chain(others.unwrap_or_default());
    all.map(|warning| shortened(warning, WARNING_BYTES))
        .collect()
}

fn audit<'a>(
    answered: &'a HandledReview,
    rejection: Option<&Rejection>,
) -> BTreeMap<&'static str, Cow<'a, str>> {
    let outcome = &answered.outcome;
    if let Outcome::Changed(_) = outcome {
        // The API server keeps the first annotation of a webhook's name, and the webhook that
        // judges has the same name.
        return BTreeMap::from([("change", outcome.reason().into())]);
    }
    let mut annotations = BTreeMap::from([
        ("verdict", verdict(answered, rejection).into()),
        ("reason", outcome.reason().into()),
    ]);
    let Some(answer) = outcome.answer() else {
        return annotations;
    };
    if let Some(headroom) = answer.headroom {
        annotations.insert("headroom", headroom.to_string().into());
    }
    if let Some(cluster) = &answer.cluster {
        annotations.insert("cluster", cluster.to_string().into());
    }
    annotations
}
