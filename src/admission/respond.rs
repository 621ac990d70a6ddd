//! A ruling as the API server reads it.
//!
//! A refusal never carries `retryAfterSeconds`: the API server would turn it into a `Retry-After` header, on which client-go
//! repeats the request silently, ten times, in the middle of whatever controller asked.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::Json;
use axum::response::{IntoResponse, Response};
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};
use serde::Serialize;

use crate::telemetry::events::shortened;

use super::objection::Objection;
use super::report::Subject;
use super::ruling::{Permit, Ruling};

/// Longer warnings may be cut by the API server in the middle of a character.
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

/// The answer to the review `uid`.
pub(super) fn respond(uid: &str, subject: &Subject, ruling: &Ruling) -> Response {
    let mut response = match &ruling.outcome {
        Ok(permit) => allowed(uid, permit),
        Err(objection) => refused(uid, subject, objection),
    };
    response.audit_annotations = audit(ruling);
    response.warnings = ruling
        .warnings
        .iter()
        .map(|warning| shortened(warning.clone(), WARNING_BYTES))
        .collect();
    Json(Review {
        api_version: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        response,
    })
    .into_response()
}

fn allowed<'a>(uid: &'a str, permit: &Permit) -> ReviewResponse<'a> {
    let patch = permit
        .patch()
        .and_then(|patch| serde_json::to_vec(patch).ok())
        .map(ByteString);
    ReviewResponse {
        uid,
        allowed: true,
        status: None,
        patch_type: patch.is_some().then_some("JSONPatch"),
        patch,
        audit_annotations: BTreeMap::new(),
        warnings: Vec::new(),
    }
}

fn refused<'a>(uid: &'a str, subject: &Subject, objection: &Objection) -> ReviewResponse<'a> {
    let details = StatusDetails {
        causes: Some(objection.causes()),
        group: (!subject.group.is_empty()).then(|| subject.group.to_owned()),
        kind: Some(subject.resource.to_owned()),
        name: Some(subject.name.clone()),
        retry_after_seconds: None,
        uid: subject.uid.clone(),
    };
    let status = Status {
        code: Some(objection.code.number()),
        details: Some(details),
        message: Some(objection.message.clone()),
        reason: Some(objection.code.reason().to_owned()),
        status: Some("Failure".to_owned()),
        ..Status::default()
    };
    ReviewResponse {
        uid,
        allowed: false,
        status: Some(status),
        patch: None,
        patch_type: None,
        audit_annotations: BTreeMap::new(),
        warnings: Vec::new(),
    }
}

fn audit(ruling: &Ruling) -> BTreeMap<&'static str, Cow<'_, str>> {
    if let Ok(permit) = &ruling.outcome
        && permit.is_of_a_change()
    {
        // The API server keeps the first annotation of a webhook's name, and the webhook that judges has the same name.
        return BTreeMap::from([("change", ruling.reason().into())]);
    }
    let mut annotations = BTreeMap::from([
        ("verdict", ruling.verdict().into()),
        ("reason", ruling.reason().into()),
    ]);
    if let Some(headroom) = ruling.headroom {
        annotations.insert("headroom", headroom.to_string().into());
    }
    if let Some(cluster) = &ruling.cluster {
        annotations.insert("cluster", cluster.to_string().into());
    }
    annotations
}
