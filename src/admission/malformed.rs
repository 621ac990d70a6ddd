//! Requests that get no decision, because the webhook is not meant for them or cannot read them.
//!
//! The answer is an HTTP error with a `Status`, whose message the API server passes on to its
//! caller. With `failurePolicy: Fail` an HTTP error refuses the request.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusDetails};

use serde_json::{Value, json};

use crate::telemetry::events::shortened;

/// The seconds after which an overloaded gate may be asked again. The client of the API server does
/// so by itself, within the timeout of the webhook.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The most bytes of a problem's text. A problem quotes the request, which may have mebibytes.
const PROBLEM_BYTES: usize = 512;

/// The reason why a request gets no decision.
#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
pub enum Problem {
    /// The `timeout` parameter is not a duration.
    Timeout(String),
    /// The body is longer than the limit, bytes.
    TooLarge(usize),
    /// The body did not arrive in time.
    TooSlow,
    /// The connection broke within the body.
    Body(String),
    /// The body is not the JSON of an `AdmissionReview`.
    Unreadable(String),
    /// The review is of another version or kind.
    Version(String),
    /// The webhook is not meant for such a review.
    Misdirected(String),
    /// The review lacks something that a decision needs, or contradicts itself.
    Incomplete(&'static str),
    /// The path is that of a webhook, which this release does not have.
    UnknownWebhook,
    /// No webhook has this path.
    NoSuchPath,
    /// The method is not POST.
    Method,
    /// Too many requests at once.
    Overloaded,
    /// The handler broke.
    Broken,
}

/// A request that gets no decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The uid of the review, if it could be read.
    pub uid: Option<String>,
    /// The problem.
    pub problem: Problem,
}

impl From<Problem> for Malformed {
    fn from(problem: Problem) -> Self {
        Self { uid: None, problem }
    }
}

impl Problem {
    /// A stable word for metrics.
    pub fn slug(&self) -> &'static str {
        self.into()
    }

    fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Timeout(_)
            | Self::Body(_)
            | Self::Unreadable(_)
            | Self::Version(_)
            | Self::Misdirected(_)
            | Self::Incomplete(_) => (StatusCode::BAD_REQUEST, "BadRequest"),
            Self::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "Timeout"),
            Self::NoSuchPath => (StatusCode::NOT_FOUND, "NotFound"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::Overloaded | Self::UnknownWebhook => {
                (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests")
            }
            Self::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
        }
    }

    /// The problem in words, with everything that the request says about it.
    fn sentence(&self) -> String {
        match self {
            Self::Timeout(why) => format!("the timeout parameter {why}"),
            Self::TooLarge(limit) => format!("the body is longer than {limit} bytes"),
            Self::TooSlow => "the body did not arrive in time".to_owned(),
            Self::Body(why) => format!("the body could not be read: {why}"),
            Self::Unreadable(why) => format!("the body is not an AdmissionReview: {why}"),
            Self::Version(found) => {
                format!("expected an AdmissionReview of admission.k8s.io/v1, found {found}")
            }
            Self::Misdirected(why) => why.clone(),
            Self::Incomplete(what) => format!("the review {what}"),
            Self::UnknownWebhook => "this replica does not have this webhook yet, or not any more: repeat the request, which may reach one that has it".to_owned(),
            Self::NoSuchPath => "there is no webhook at this path".to_owned(),
            Self::Method => "webhooks are called by POST".to_owned(),
            Self::Overloaded => "quorumgate answers as many requests as it can already".to_owned(),
            Self::Broken => "quorumgate broke while it answered; its log says where".to_owned(),
        }
    }
}

/// The problem in words, cut to a length that fits into the log and the answer.
impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shortened(self.sentence(), PROBLEM_BYTES))
    }
}

/// A review that refuses a request of which nothing but the uid is known.
fn refused(mut status: Status) -> Json<Value> {
    let uid = status.details.take().and_then(|details| details.uid);
    Json(json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": false, "status": status},
    }))
}

impl IntoResponse for Malformed {
    fn into_response(self) -> Response {
        let (code, reason) = self.problem.status();
        let status = Status {
            code: Some(i32::from(code.as_u16())),
            details: self.uid.map(|uid| StatusDetails {
                uid: Some(uid),
                ..StatusDetails::default()
            }),
            message: Some(format!("quorumgate: {}", self.problem)),
            reason: Some(reason.to_owned()),
            status: Some("Failure".to_owned()),
            ..Status::default()
        };
        if self.problem == Problem::UnknownWebhook {
            // A review that refuses with 429 is repeated by drains and controllers. An HTTP error
            // would be a 500 to them, or pass unasked where the webhook fails open.
            return refused(status).into_response();
        }
        let mut response = (code, Json(status)).into_response();
        if self.problem == Problem::Overloaded {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        response
    }
}
