//! Fuzz target for admission reviews: a line with the webhook's path, then a body.
//!
//! The judge behind the webhooks refuses everything. So an allow is right only for requests that
//! the webhooks permit without the judge. This file decides that from the body, which it parses
//! again, as far as it matters: skipped parts may contain numbers that are too large and lone
//! surrogates. A panic inside a webhook is a 500, and fails.

use std::cell::OnceCell;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use futures::future::{BoxFuture, FutureExt as _, ready};
use quorumgate::admission::mutate::evictions::Incarnations;
use quorumgate::admission::mutate::pods::Enrolment;
use quorumgate::admission::{Admission, Limits, router};
use quorumgate::features::Features;
use quorumgate::judge::{Answer, ClaimQuestion, Judging, Question, SetQuestion};
use quorumgate::quorum::PodUid;
use quorumgate::telemetry::events::{Notice, Notices};
use quorumgate::telemetry::metrics::Metrics;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

use crate::memory::bounded;

/// A judge that refuses everything.
struct Nobody;

impl Judging for Nobody {
    fn judge(&self, _question: Question) -> BoxFuture<'_, Answer> {
        ready(Answer::unavailable("nobody knows")).boxed()
    }

    fn judge_set(&self, _question: SetQuestion) -> BoxFuture<'_, Answer> {
        ready(Answer::unavailable("nobody knows")).boxed()
    }

    fn judge_claim(&self, _question: ClaimQuestion) -> BoxFuture<'_, Answer> {
        ready(Answer::unavailable("nobody knows")).boxed()
    }
}

impl Incarnations for Nobody {
    fn uid_of<'a>(
        &'a self,
        _namespace: &'a str,
        _pod: &'a str,
        _is_gated: bool,
    ) -> BoxFuture<'a, Result<Option<PodUid>, String>> {
        ready(Err("nobody knows".to_owned())).boxed()
    }
}

impl Enrolment for Nobody {
    fn is_enrolled<'a>(
        &'a self,
        _namespace: &'a str,
        _stateful_set: &'a str,
    ) -> BoxFuture<'a, Result<bool, String>> {
        ready(Ok(true)).boxed()
    }
}

impl Notices for Nobody {
    fn notify(&self, _notice: Notice) {}
}

/// The webhooks and their runtime.
struct Webhooks {
    runtime: Runtime,
    router: Router,
}

impl Webhooks {
    fn new() -> Self {
        let router = router(Admission {
            judge: Arc::new(Nobody),
            incarnations: Arc::new(Nobody),
            enrolment: Arc::new(Nobody),
            notices: Arc::new(Nobody),
            metrics: Arc::new(Metrics::new()),
            own_username: "system:serviceaccount:quorumgate:quorumgate".to_owned(),
            features: Features::default(),
            limits: Limits::default(),
        });
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, router }
    }

    fn post(&self, path: &str, body: &[u8]) -> (StatusCode, Vec<u8>) {
        let request = Request::post(path).body(Body::from(body.to_vec()));
        self.runtime.block_on(async {
            let answer = self.router.clone().oneshot(request.unwrap()).await.unwrap();
            let status = answer.status();
            let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            (status, body.to_vec())
        })
    }
}

/// The part of a body that matters here.
#[derive(Deserialize)]
struct ParsedReview<Request> {
    request: Request,
}

#[derive(Deserialize)]
struct Identified {
    uid: String,
}

/// A request for an object that terminates already.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminating {
    old_object: Ending,
}

#[derive(Deserialize)]
struct Operating {
    operation: String,
}

#[derive(Deserialize)]
struct Ending {
    metadata: Ended,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ended {
    deletion_timestamp: Option<IgnoredAny>,
}

/// A request that insists on a UID.
#[derive(Deserialize)]
struct Insisting {
    options: Insistence,
}

#[derive(Deserialize)]
struct Insistence {
    preconditions: Preconditions,
}

#[derive(Deserialize)]
struct Preconditions {
    uid: String,
}

#[derive(Deserialize)]
struct HandledReview {
    response: Response,
}

#[derive(Deserialize)]
struct Response {
    uid: String,
    allowed: bool,
}

thread_local! {
    static WEBHOOKS: OnceCell<Webhooks> = const { OnceCell::new() };
}

pub(crate) fn run(bytes: &[u8]) {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (path, body) = bytes.split_at(end);
    let Some(path) = std::str::from_utf8(path).ok().filter(|path| {
        path.starts_with('/') && path.parse::<axum::http::uri::PathAndQuery>().is_ok()
    }) else {
        return;
    };
    let (status, answer) = WEBHOOKS.with(|webhooks| {
        let webhooks = webhooks.get_or_init(Webhooks::new);
        bounded(bytes.len(), || webhooks.post(path, body))
    });
    assert!(!status.is_server_error(), "{status}");
    if status != StatusCode::OK {
        return;
    }
    let Identified { uid } = request(body).unwrap();
    let HandledReview { response } = serde_json::from_slice(&answer).unwrap();
    assert_eq!(response.uid, uid);
    assert!(
        !response.allowed || may_pass(path, body),
        "{path} let it pass: {}",
        String::from_utf8_lossy(body)
    );
}

fn request<Request: DeserializeOwned>(body: &[u8]) -> Option<Request> {
    let ParsedReview { request } = serde_json::from_slice(body).ok()?;
    Some(request)
}

/// Posts reviews with a list or a map of about this many bytes at every place that may hold one.
#[cfg(test)]
pub(crate) fn small_things(bytes: usize) {
    let list = |of: &str| format!("[{}]", vec![of; bytes / (of.len() + 1)].join(","));
    let labels: Vec<String> = (0..bytes / 12).map(|n| format!(r#""{n:x}":"""#)).collect();
    let map = format!("{{{}}}", labels.join(","));
    let container = r#"{"name":"","image":""}"#;
    let places = [
        (r#""userInfo":{"groups":LIST}"#, list(r#""""#)),
        (r#""options":{"dryRun":LIST}"#, list(r#""""#)),
        (r#""OBJECT":{"metadata":{"labels":LIST}}"#, map.clone()),
        (r#""OBJECT":{"metadata":{"annotations":LIST}}"#, map.clone()),
        (
            r#""OBJECT":{"metadata":{"finalizers":LIST}}"#,
            list(r#""""#),
        ),
        (
            r#""OBJECT":{"metadata":{"ownerReferences":LIST}}"#,
            list("{}"),
        ),
        (
            r#""OBJECT":{"metadata":{"ownerReferences":LIST}}"#,
            list(r#"{"controller":true}"#),
        ),
        (
            r#""OBJECT":{"metadata":{"managedFields":LIST}}"#,
            list("{}"),
        ),
        (r#""OBJECT":{"metadata":{"unknown":LIST}}"#, list("[]")),
        (r#""OBJECT":{"spec":{"updateStrategy":LIST}}"#, list("[]")),
        (r#""OBJECT":{"spec":{"updateStrategy":LIST}}"#, map.clone()),
        (r#""OBJECT":{"spec":{"containers":LIST}}"#, list(container)),
        (
            r#""OBJECT":{"spec":{"containers":[],"initContainers":LIST}}"#,
            list(container),
        ),
        (
            r#""OBJECT":{"spec":{"containers":[{"name":"","image":"","resources":{"limits":LIST}}]}}"#,
            map,
        ),
        (
            r#""OBJECT":{"spec":{"containers":[{"name":"","image":"","resizePolicy":LIST}]}}"#,
            list("{}"),
        ),
        (
            r#""OBJECT":{"spec":{"containers":[{"name":"","image":"","restartPolicyRules":LIST}]}}"#,
            list("{}"),
        ),
    ];
    for (path, resource, part, operation) in [
        ("/validate/pods", "pods", "", "DELETE"),
        ("/validate/evictions", "pods", "eviction", "CREATE"),
        ("/validate/statefulsets", "statefulsets", "", "UPDATE"),
        ("/validate/claims", "persistentvolumeclaims", "", "DELETE"),
        ("/validate/claims", "persistentvolumeclaims", "", "UPDATE"),
        ("/validate/volumes", "persistentvolumes", "", "UPDATE"),
        ("/validate/restarts", "pods", "", "UPDATE"),
        ("/mutate/evictions", "pods", "eviction", "CREATE"),
        ("/mutate/statefulsets", "statefulsets", "", "UPDATE"),
        ("/mutate/pods", "pods", "", "CREATE"),
    ] {
        let group = if resource == "statefulsets" {
            "apps"
        } else {
            ""
        };
        for (place, list) in &places {
            for object in ["object", "oldObject"] {
                let place = place.replace("OBJECT", object).replace("LIST", list);
                let user = if place.starts_with(r#""userInfo""#) {
                    ""
                } else {
                    r#""userInfo":{},"#
                };
                let review = format!(
                    r#"{path}
{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","namespace":"a","name":"b-0",
"resource":{{"group":"{group}","resource":"{resource}"}},"subResource":"{part}","operation":"{operation}",{user}{place}}}}}"#
                );
                run(review.as_bytes());
            }
        }
    }
}

/// Whether a webhook may permit this request although the judge refuses everything.
fn may_pass(path: &str, body: &[u8]) -> bool {
    match path.split('?').next().unwrap_or_default() {
        "/validate/pods" => terminates(body),
        // The API server refuses another UID than the one it shows. Most updates need no judge.
        "/validate/claims" | "/validate/volumes" => {
            terminates(body)
                || is_update(body)
                || request(body)
                    .is_some_and(|asked: Insisting| !asked.options.preconditions.uid.is_empty())
        }
        "/validate/evictions" => false,
        // The effect of an update follows from the objects alone, and many updates need no judge.
        "/validate/restarts" | "/validate/statefulsets" => true,
        // A mutating webhook decides nothing.
        path => path.starts_with("/mutate/"),
    }
}

fn is_update(body: &[u8]) -> bool {
    request(body).is_some_and(|asked: Operating| asked.operation == "UPDATE")
}

fn terminates(body: &[u8]) -> bool {
    let asked = request(body);
    asked.is_some_and(|asked: Terminating| asked.old_object.metadata.deletion_timestamp.is_some())
}
