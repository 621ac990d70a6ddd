//! Admission reviews: a line with the webhook's path, then a body.
//!
//! Behind the webhooks everybody says no. So an allow is right only for what the webhooks let pass unasked, and that is told here from
//! the body, read anew and only where it matters: in what is skipped, numbers may be too large and surrogates alone. A panic inside is a
//! 500, and fails.

use std::cell::OnceCell;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use futures::future::{BoxFuture, FutureExt as _, ready};
use quorumgate::admission::mutate::evictions::Incarnations;
use quorumgate::admission::mutate::pods::Enrolment;
use quorumgate::admission::stateful_set::{
    SetAnswer, SetJudging, SetQuestion, SetReason, SetRefusal,
};
use quorumgate::admission::{Admission, Limits, router};
use quorumgate::features::Features;
use quorumgate::judge::{Answer, Judging, Question, Refusal};
use quorumgate::quorum::{PodUid, Reason};
use quorumgate::telemetry::events::{Notice, Notices};
use quorumgate::telemetry::metrics::Metrics;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

use crate::memory::bounded;

/// Says no to everything.
struct Nobody;

impl Judging for Nobody {
    fn judge(&self, _question: Question) -> BoxFuture<'_, Answer> {
        ready(Answer {
            cluster: None,
            outcome: Err(Refusal::Wait(Reason::NoLedger)),
            headroom: None,
            warnings: Vec::new(),
        })
        .boxed()
    }
}

impl SetJudging for Nobody {
    fn judge(&self, _question: SetQuestion) -> BoxFuture<'_, SetAnswer> {
        ready(SetAnswer {
            outcome: Err(SetRefusal::Wait(SetReason::NoLedger)),
            warnings: Vec::new(),
        })
        .boxed()
    }
}

impl Incarnations for Nobody {
    fn uid_of<'a>(
        &'a self,
        _namespace: &'a str,
        _pod: &'a str,
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

/// The webhooks, and what runs them.
struct Webhooks {
    runtime: Runtime,
    router: Router,
}

impl Webhooks {
    fn new() -> Self {
        let router = router(Admission {
            judge: Arc::new(Nobody),
            set_judge: Arc::new(Nobody),
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

/// A body, as far as its request is concerned.
#[derive(Deserialize)]
struct Asked<Request> {
    request: Request,
}

#[derive(Deserialize)]
struct Identified {
    uid: String,
}

/// A request for an object that is terminating already.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Terminating {
    old_object: Ending,
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

#[derive(Deserialize)]
struct Answered {
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
    let Answered { response } = serde_json::from_slice(&answer).unwrap();
    assert_eq!(response.uid, uid);
    assert!(
        !response.allowed || may_pass(path, body),
        "{path} let it pass: {}",
        String::from_utf8_lossy(body)
    );
}

fn request<Request: DeserializeOwned>(body: &[u8]) -> Option<Request> {
    let Asked { request } = serde_json::from_slice(body).ok()?;
    Some(request)
}

/// Puts a list or a map of about this many bytes in every place of a review that may hold one.
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
        ("/validate/restarts", "pods", "", "UPDATE"),
        ("/mutate/evictions", "pods", "eviction", "CREATE"),
        ("/mutate/statefulsets", "statefulsets", "", "UPDATE"),
        ("/mutate/pods", "pods", "", "CREATE"),
    ] {
        let group = if resource == "pods" { "" } else { "apps" };
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

/// Whether a webhook may let this request pass although everybody behind it says no.
fn may_pass(path: &str, body: &[u8]) -> bool {
    match path.split('?').next().unwrap_or_default() {
        "/validate/pods" => request(body).is_some_and(|asked: Terminating| {
            asked.old_object.metadata.deletion_timestamp.is_some()
        }),
        "/validate/evictions" => false,
        // What an update restarts or takes is worked out from the objects alone, and much of it passes unasked.
        "/validate/restarts" | "/validate/statefulsets" => true,
        // What mutates a request decides nothing.
        path => path.starts_with("/mutate/"),
    }
}
