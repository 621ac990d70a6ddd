//! Reviews at the limits of what an API server can send. They are judged like all others, and their
//! answers stay within the limits too.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use quorumgate::admission::Limits;
use quorumgate::quorum::{Grace, InPlace, Kind};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::door::{Door, World, fixture, with};

const MIB: usize = 1024 * 1024;

/// Places in a review where a pod may hold much text.
const IN_A_DELETE: [&str; 2] = [
    "/request/oldObject/metadata/annotations/fat",
    "/request/oldObject/spec/schedulerName",
];

/// The review filled up to exactly this number of bytes, half of the filling at each of two places.
fn fat(review: Value, pointers: [&str; 2], bytes: usize) -> String {
    let [first, second] = pointers;
    let spare = bytes
        - with(with(review.clone(), first, json!("")), second, json!(""))
            .to_string()
            .len();
    let half = spare / 2;
    let review = with(review, first, json!("x".repeat(half)));
    let review = with(review, second, json!("x".repeat(spare - half))).to_string();
    assert_eq!(review.len(), bytes);
    review
}

#[tokio::test]
async fn a_review_of_3_mib_is_judged_like_a_small_one() {
    let door = Door::open();
    let large = fat(fixture("pod-delete"), IN_A_DELETE, 3 * MIB);
    let reply = door
        .send(Request::post("/validate/pods"), Body::from(large))
        .await;
    assert!(reply.is_allowed());
    door.post("/validate/pods", &fixture("pod-delete")).await;
    let [large, small] = <[_; 2]>::try_from(door.questions()).unwrap();
    assert_eq!(
        (large.pod, large.shown, large.kind, large.grace),
        (small.pod, small.shown, small.kind, small.grace)
    );
}

#[tokio::test]
async fn an_update_with_two_objects_of_a_mebibyte_and_a_half_is_judged() {
    let door = Door::open();
    let fields = "/metadata/annotations/fat";
    let (old, new) = (
        format!("/request/oldObject{fields}"),
        format!("/request/object{fields}"),
    );
    let large = fat(fixture("pod-update"), [&old, &new], 3 * MIB);
    let reply = door
        .send(Request::post("/validate/restarts"), Body::from(large))
        .await;
    assert!(reply.is_allowed());
    assert_eq!(door.question().kind, Kind::Restart(InPlace::Image));
}

#[tokio::test]
async fn one_byte_more_than_the_limit_is_413_and_nobody_is_asked() {
    let limit = Limits::default().body_bytes;
    for (bytes, status) in [(limit, 200), (limit + 1, 413)] {
        let door = Door::open();
        let body = fat(fixture("pod-delete"), IN_A_DELETE, bytes);
        let reply = door
            .send(Request::post("/validate/pods"), Body::from(body))
            .await;
        assert_eq!(reply.status, status, "{bytes}");
        assert_eq!(door.questions().len(), usize::from(status == 200));
    }
}

#[tokio::test]
async fn names_of_253_characters_are_asked_about_as_they_are() {
    let longest = format!("{}-0", "x".repeat(251));
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "x".repeat(253), "uid": "0", "controller": true}]);
    let review = with(fixture("pod-delete"), "/request/name", json!(longest));
    let review = with(review, "/request/oldObject/metadata/name", json!(longest));
    let review = with(review, "/request/oldObject/metadata/ownerReferences", owner);
    let review = with(
        review,
        "/request/userInfo/username",
        json!("u".repeat(4096)),
    );
    let door = Door::open();
    assert!(door.post("/validate/pods", &review).await.is_allowed());
    assert_eq!(door.question().pod.as_str(), longest);
}

#[tokio::test]
async fn absurd_graces_are_no_more_than_they_are() {
    for (seconds, grace) in [
        (json!(i64::MAX), Grace::Graceful),
        (json!(0), Grace::Forced),
        (json!(null), Grace::Graceful),
    ] {
        let door = Door::open();
        let review = with(
            fixture("pod-delete"),
            "/request/options/gracePeriodSeconds",
            seconds.clone(),
        );
        assert!(door.post("/validate/pods", &review).await.is_allowed());
        assert_eq!(door.question().grace, grace, "{seconds}");
    }
    for beyond in [
        "9223372036854775808",
        "1e400",
        "-9223372036854775809",
        "0.0001",
    ] {
        let door = Door::open();
        let review = with(
            fixture("pod-delete"),
            "/request/options/gracePeriodSeconds",
            json!("HERE"),
        );
        let body = review.to_string().replace(r#""HERE""#, beyond);
        let reply = door
            .send(Request::post("/validate/pods"), Body::from(body))
            .await;
        assert_eq!(reply.status, 400, "{beyond}");
        assert!(door.questions().is_empty());
    }
}

#[tokio::test]
async fn a_problem_with_a_mebibyte_is_told_in_a_line() {
    let large = json!("x".repeat(MIB));
    for pointer in [
        "/request/oldObject",
        "/request/options/gracePeriodSeconds",
        "/kind",
    ] {
        let door = Door::open();
        let reply = door
            .post(
                "/validate/pods",
                &with(fixture("pod-delete"), pointer, large.clone()),
            )
            .await;
        assert_eq!(reply.status, 400, "{pointer}");
        let message = reply.body["message"].as_str().unwrap();
        assert!(
            message.len() < 600 && message.ends_with('…'),
            "{} bytes",
            message.len()
        );
    }
}

#[tokio::test]
async fn a_timeout_that_no_api_server_sends_is_refused() {
    let door = Door::open();
    for timeout in ["99999999999999999999h", "-1s", "1e3s", "NaNs"] {
        let path = format!("/validate/pods?timeout={timeout}");
        assert_eq!(
            door.post(&path, &fixture("pod-delete")).await.status,
            400,
            "{timeout}"
        );
    }
    assert!(door.questions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn absurd_timeouts_end_at_the_webhooks_own() {
    for timeout in ["2562047h47m16.854775807s", "1h", "30s"] {
        let door = Door::new(World {
            judge_takes: Duration::from_secs(3600),
            ..World::default()
        });
        let start = Instant::now();
        let path = format!("/validate/pods?timeout={timeout}");
        assert!(!door.post(&path, &fixture("pod-delete")).await.is_allowed());
        let took = start.elapsed();
        assert!(
            took > Duration::from_secs(4) && took < Duration::from_secs(5),
            "{timeout}: {took:?}"
        );
    }
}

#[tokio::test]
async fn a_thousand_pods_of_one_collection_are_each_asked_about_once() {
    let door = Door::open();
    for number in 0..1000 {
        let name = json!(format!("etcd-main-{number}"));
        // For a collection the name in the request is empty.
        let review = with(fixture("pod-delete"), "/request/name", json!(""));
        let review = with(review, "/request/oldObject/metadata/name", name);
        assert!(door.post("/validate/pods", &review).await.is_allowed());
    }
    let asked = door.questions();
    assert_eq!(asked.len(), 1000);
    assert_eq!(asked.last().unwrap().pod.as_str(), "etcd-main-999");
}
