//! Requests that are no reviews for the webhook: the answer is a 4xx in words, with the uid if
//! there is one, and never an allow.

use axum::body::{Body, Bytes};
use axum::http::{Method, Request};
use serde_json::{Value, json};

use super::door::{Door, Reply, World, fixture, with, without};
use quorumgate::admission::Limits;

const UID: &str = "5c6f0e1e-8f3f-4f1a-9d39-0c6a1bd1c0aa";

async fn refused(door: &Door, path: &str, body: impl Into<Body>) -> Reply {
    let reply = door.send(Request::post(path), body.into()).await;
    assert!(reply.status.is_client_error(), "{reply:?}");
    assert!(
        reply.body.pointer("/response/allowed").is_none(),
        "{reply:?}"
    );
    assert_eq!(reply.body["kind"], "Status", "{reply:?}");
    assert!(
        reply.body["message"]
            .as_str()
            .unwrap()
            .starts_with("quorumgate: ")
    );
    assert!(door.questions().is_empty());
    reply
}

#[tokio::test]
async fn bodies_that_are_no_review_are_refused() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let doubled = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{},"request":{}}"#;
    for body in [
        "",
        " ",
        "null",
        "[]",
        "0",
        "\"x\"",
        "{",
        "{}",
        "not json",
        "\u{0}",
        doubled,
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":null}"#,
        r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":[]}"#,
        &deep,
    ] {
        for path in [
            "/validate/pods",
            "/validate/evictions",
            "/validate/statefulsets",
            "/validate/claims",
            "/validate/volumes",
            "/validate/restarts",
            "/mutate/evictions",
            "/mutate/pods",
        ] {
            let reply = refused(&Door::open(), path, body.to_owned()).await;
            assert_eq!(reply.status, 400, "{body:.40}");
        }
    }
    let door = Door::open();
    refused(&door, "/validate/pods", Bytes::from_static(b"\xff\xfe{}")).await;
    let truncated = fixture("pod-delete").to_string();
    refused(
        &door,
        "/validate/pods",
        truncated.split_at(truncated.len() / 2).0.to_owned(),
    )
    .await;
    refused(&door, "/validate/pods", format!("{truncated} trailing")).await;
}

#[tokio::test]
async fn fields_of_a_wrong_type_are_refused_with_the_uid() {
    for (pointer, value) in [
        ("/request/operation", json!("DESTROY")),
        ("/request/operation", json!(7)),
        ("/request/resource", json!("pods")),
        ("/request/userInfo", json!("root")),
        ("/request/userInfo", Value::Null),
        ("/request/userInfo/groups", json!("system:nodes")),
        ("/request/oldObject", json!([])),
        ("/request/oldObject/metadata", json!(1)),
        ("/request/oldObject/metadata/name", json!({})),
        ("/request/oldObject/spec/nodeName", json!(["a"])),
        ("/request/options/gracePeriodSeconds", json!("0")),
        ("/request/options/gracePeriodSeconds", json!(0.5)),
        ("/request/options/dryRun", json!("All")),
        ("/request/dryRun", json!("true")),
        ("/request/name", json!(0)),
    ] {
        let review = with(fixture("pod-delete"), pointer, value);
        let reply = refused(&Door::open(), "/validate/pods", review.to_string()).await;
        assert_eq!(reply.status, 400, "{pointer}");
        assert_eq!(reply.body["details"]["uid"], UID, "{pointer}");
    }
}

#[tokio::test]
async fn reviews_that_lack_what_a_verdict_needs_are_refused() {
    for (review, said) in [
        (
            with(fixture("pod-delete"), "/request/uid", json!("")),
            "no uid",
        ),
        (
            with(fixture("pod-delete"), "/request/oldObject", Value::Null),
            "no oldObject",
        ),
        (
            without(fixture("pod-delete"), "/request/oldObject"),
            "no oldObject",
        ),
        (
            without(
                without(fixture("pod-delete"), "/request/name"),
                "/request/oldObject/metadata/name",
            ),
            "names no object",
        ),
        (
            with(
                fixture("pod-delete"),
                "/request/namespace",
                json!("elsewhere"),
            ),
            "two namespaces",
        ),
        (
            with(fixture("pod-delete"), "/request/name", json!("etcd-main-2")),
            "two objects",
        ),
    ] {
        let reply = refused(&Door::open(), "/validate/pods", review.to_string()).await;
        assert_eq!(reply.status, 400);
        let message = reply.body["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
    }
    for (path, review) in [
        (
            "/validate/evictions",
            with(fixture("eviction"), "/request/object", Value::Null),
        ),
        (
            "/mutate/evictions",
            with(fixture("eviction"), "/request/object", Value::Null),
        ),
        (
            "/mutate/pods",
            with(fixture("pod-create"), "/request/object", Value::Null),
        ),
        (
            "/validate/statefulsets",
            with(fixture("scale"), "/request/object", Value::Null),
        ),
        (
            "/validate/statefulsets",
            with(fixture("scale"), "/request/object/spec/replicas", json!(-1)),
        ),
        (
            "/validate/claims",
            with(fixture("claim-delete"), "/request/oldObject", Value::Null),
        ),
        (
            "/validate/claims",
            with(fixture("claim-delete"), "/request/name", json!("another")),
        ),
        (
            "/validate/restarts",
            with(fixture("pod-update"), "/request/object", Value::Null),
        ),
        (
            "/validate/restarts",
            without(fixture("pod-update"), "/request/oldObject"),
        ),
        (
            "/validate/restarts",
            without(fixture("pod-update"), "/request/object/spec"),
        ),
        (
            "/validate/restarts",
            without(fixture("pod-update"), "/request/oldObject/spec/containers"),
        ),
    ] {
        refused(&Door::open(), path, review.to_string()).await;
    }
}

/// Strings that would change the URL of a call to the API server.
const NO_NAMES: [&str; 9] = [
    "secrets/x?",
    "..",
    "x?watch=1",
    "x#",
    "x%2f",
    "Etcd-0",
    "etcd_0",
    "a b",
    "etcd-0/log",
];

#[tokio::test]
async fn names_that_no_object_can_have_are_refused_before_anybody_is_asked() {
    let owner = |name| json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": name, "uid": "u", "controller": true}]);
    for (path, review, object) in [
        ("/validate/pods", "pod-delete", "oldObject"),
        ("/validate/evictions", "eviction", "object"),
        ("/validate/statefulsets", "statefulset-delete", "oldObject"),
        ("/validate/statefulsets", "scale", "oldObject"),
        ("/validate/claims", "claim-delete", "oldObject"),
        ("/validate/restarts", "pod-update", "oldObject"),
        ("/mutate/evictions", "eviction", "object"),
        ("/mutate/statefulsets", "statefulset-update", "object"),
        ("/mutate/pods", "pod-create", "object"),
    ] {
        for name in NO_NAMES {
            let places = [
                ("/request/name".to_owned(), json!(name)),
                ("/request/namespace".to_owned(), json!(name)),
                (format!("/request/{object}/metadata/name"), json!(name)),
                (format!("/request/{object}/metadata/namespace"), json!(name)),
                (
                    format!("/request/{object}/metadata/ownerReferences"),
                    owner(name),
                ),
            ];
            for (pointer, value) in places {
                let door = Door::open();
                let review = with(fixture(review), &pointer, value);
                let reply = refused(&door, path, review.to_string()).await;
                assert_eq!(reply.status, 400, "{path} {pointer} {name}");
                assert!(door.lookups().is_empty() && door.set_questions().is_empty());
                assert!(door.claim_questions().is_empty());
            }
        }
    }
}

#[tokio::test]
async fn numbers_of_pods_that_the_api_has_no_room_for_are_refused() {
    for count in [
        json!(-1),
        json!(2_147_483_648_u32),
        json!(4_294_967_295_u32),
        json!(1.5),
    ] {
        for pointer in [
            "/request/oldObject/spec/replicas",
            "/request/object/spec/replicas",
            "/request/oldObject/spec/ordinals/start",
        ] {
            let review = with(fixture("statefulset-update"), pointer, count.clone());
            refused(&Door::open(), "/validate/statefulsets", review.to_string()).await;
        }
    }
}

#[tokio::test]
async fn reviews_of_another_version_or_kind_are_refused() {
    for (pointer, value) in [
        ("/apiVersion", "admission.k8s.io/v1beta1"),
        ("/apiVersion", "v1"),
        ("/kind", "ConversionReview"),
        ("/kind", ""),
    ] {
        let review = with(fixture("pod-delete"), pointer, json!(value));
        let reply = refused(&Door::open(), "/validate/pods", review.to_string()).await;
        assert_eq!(reply.body["details"]["uid"], UID);
    }
}

#[tokio::test]
async fn reviews_for_another_webhook_are_refused_with_what_this_one_is_for() {
    let reviews = [
        "pod-delete",
        "eviction",
        "statefulset-delete",
        "statefulset-update",
        "scale",
        "claim-delete",
        "pod-create",
        "pod-update",
    ];
    for (path, own) in [
        ("/validate/pods", &["pod-delete"][..]),
        ("/validate/evictions", &["eviction"]),
        (
            "/validate/statefulsets",
            &["statefulset-delete", "statefulset-update", "scale"],
        ),
        ("/validate/claims", &["claim-delete"]),
        ("/validate/restarts", &["pod-update"]),
        ("/mutate/evictions", &["eviction"]),
        ("/mutate/pods", &["pod-create"]),
    ] {
        for name in reviews.iter().filter(|name| !own.contains(name)) {
            let reply = refused(&Door::open(), path, fixture(name).to_string()).await;
            assert_eq!(reply.status, 400, "{path} {name}");
            assert!(
                reply.body["details"]["uid"].is_string(),
                "{path} {name}: {reply:?}"
            );
        }
    }
    let connect = with(
        fixture("pod-delete"),
        "/request/operation",
        json!("CONNECT"),
    );
    let reply = refused(&Door::open(), "/validate/pods", connect.to_string()).await;
    let message = reply.body["message"].as_str().unwrap();
    assert!(
        message.contains("/validate/pods is for DELETE of pods"),
        "{message}"
    );
}

#[tokio::test]
async fn a_timeout_that_is_none_is_refused() {
    for query in ["timeout=soon", "timeout=-5s", "timeout=0s"] {
        let door = Door::open();
        let path = format!("/validate/pods?{query}");
        let reply = refused(&door, &path, fixture("pod-delete").to_string()).await;
        assert_eq!(reply.status, 400);
    }
}

/// A later release may have more webhooks, and its configurations are in force before the last
/// replica of this one is gone.
#[tokio::test]
async fn a_webhook_of_another_release_is_refused_by_a_429_in_its_review() {
    for path in ["/validate/jobs", "/mutate/jobs"] {
        let door = Door::open();
        let review = fixture("pod-delete");
        let reply = door.post(path, &review).await;
        let response = reply.response();
        assert_eq!(response["uid"], review["request"]["uid"]);
        assert_eq!(response["allowed"], false);
        assert_eq!(response["status"]["code"], 429);
        assert_eq!(response["status"]["reason"], "TooManyRequests");
        let message = response["status"]["message"].as_str().unwrap();
        assert!(message.contains("repeat the request"), "{message}");
        let page = door.exposition();
        let counted =
            r#"quorumgate_rejected_requests_total{hook="unknown",reason="UnknownWebhook"} 1"#;
        assert!(page.contains(counted), "{page}");

        assert_eq!(refused(&door, path, "{}").await.status, 404);
        let far = format!("{path}/word");
        assert_eq!(refused(&door, &far, "{}").await.status, 404);
    }
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let door = Door::open();
    assert_eq!(refused(&door, "/", "").await.status, 404);
    assert_eq!(refused(&door, "/validate/pods/", "").await.status, 404);
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let request = Request::builder().method(method).uri("/validate/pods");
        let reply = door.send(request, Body::empty()).await;
        assert_eq!(reply.status, 405);
        assert_eq!(reply.body["reason"], "MethodNotAllowed");
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_413_whether_or_not_it_says_so() {
    let limits = Limits {
        body_bytes: 10_000,
        ..Limits::default()
    };
    let door = Door::new(World {
        limits,
        ..World::default()
    });
    let long = "x".repeat(10_001);
    assert_eq!(
        refused(&door, "/validate/pods", long.clone()).await.status,
        413
    );
    let pieces = futures::stream::iter(
        long.into_bytes()
            .chunks(100)
            .map(|piece| Ok::<_, std::io::Error>(Bytes::copy_from_slice(piece)))
            .collect::<Vec<_>>(),
    );
    assert_eq!(
        refused(&door, "/validate/pods", Body::from_stream(pieces))
            .await
            .status,
        413
    );
    assert!(
        door.post("/validate/pods", &fixture("pod-delete"))
            .await
            .is_allowed()
    );
}

#[tokio::test]
async fn a_review_of_the_largest_objects_fits() {
    let padding = "x".repeat(1_500_000);
    let review = with(
        fixture("statefulset-update"),
        "/request/object/metadata/annotations/padding",
        json!(padding),
    );
    let review = with(
        review,
        "/request/oldObject/metadata/annotations",
        json!({"padding": padding}),
    );
    let same = with(review, "/request/oldObject/spec/replicas", json!(3));
    assert!(
        Door::open()
            .post("/validate/statefulsets", &same)
            .await
            .is_allowed()
    );
}

#[tokio::test]
async fn rejected_requests_are_counted_by_reason() {
    let door = Door::open();
    refused(&door, "/validate/pods", "{").await;
    let page = door.exposition();
    let line = r#"quorumgate_rejected_requests_total{hook="pods",reason="Unreadable"} 1"#;
    assert!(page.lines().any(|l| l == line), "{page}");
}
