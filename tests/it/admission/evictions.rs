//! Tests of `/validate/evictions`.

use quorumgate::judge::{DryRun, Refused};
use quorumgate::quorum::{Grace, Kind, Waiver};
use serde_json::{Value, json};

use super::door::{Door, answer, fixture, with, without, yes};

const PATH: &str = "/validate/evictions";
const OPTIONS: &str = "/request/object/deleteOptions";

#[tokio::test]
async fn an_eviction_is_asked_about_by_name() {
    let door = Door::open();
    assert!(door.post(PATH, &fixture("eviction")).await.is_allowed());
    let question = door.question();
    assert_eq!(question.kind, Kind::Evict);
    assert_eq!(question.namespace, "shoot");
    assert_eq!(question.pod.as_str(), "etcd-main-1");
    assert_eq!((question.shown_uid(), question.precondition), (None, None));
    assert_eq!(question.grace, Grace::Graceful);
    assert_eq!(question.dry_run, DryRun::No);
}

#[tokio::test]
async fn s5_p21_n18_every_form_of_an_eviction_is_understood() {
    let eviction = fixture("eviction");
    let forms = [
        with(
            eviction.clone(),
            "/request/object/apiVersion",
            json!("policy/v1beta1"),
        ),
        without(
            without(eviction.clone(), "/request/object/apiVersion"),
            "/request/object/kind",
        ),
        without(eviction.clone(), OPTIONS),
        with(eviction.clone(), OPTIONS, Value::Null),
        with(eviction, "/request/object", json!({"metadata": {}})),
    ];
    for form in forms {
        let door = Door::open();
        assert!(door.post(PATH, &form).await.is_allowed(), "{form}");
        assert_eq!(door.question().pod.as_str(), "etcd-main-1");
    }
}

#[tokio::test]
async fn p21_another_version_of_evictions_is_refused() {
    let door = Door::open();
    for version in ["policy/v2", "apps/v1"] {
        let review = with(
            fixture("eviction"),
            "/request/object/apiVersion",
            json!(version),
        );
        let reply = door.post(PATH, &review).await;
        assert_eq!(reply.status, 400);
    }
    assert!(door.questions().is_empty());
}

#[tokio::test]
async fn s6_an_eviction_without_a_namespace_takes_the_requests() {
    let door = Door::open();
    let review = without(fixture("eviction"), "/request/object/metadata/namespace");
    assert!(door.post(PATH, &review).await.is_allowed());
    assert_eq!(door.question().namespace, "shoot");
}

#[tokio::test]
async fn s7_an_eviction_without_any_namespace_is_no_allow() {
    let door = Door::open();
    let review = without(
        without(fixture("eviction"), "/request/object/metadata/namespace"),
        "/request/namespace",
    );
    let reply = door.post(PATH, &review).await;
    assert_eq!(reply.status, 400);
    assert!(door.questions().is_empty());
}

#[tokio::test]
async fn p3_a_name_that_differs_from_the_paths_is_no_allow() {
    let door = Door::open();
    let review = with(
        fixture("eviction"),
        "/request/object/metadata/name",
        json!("etcd-main-2"),
    );
    assert_eq!(door.post(PATH, &review).await.status, 400);
    assert!(door.questions().is_empty());
}

#[tokio::test]
async fn s8_an_eviction_of_a_pod_that_does_not_exist_is_404() {
    let door = Door::answering(|_| answer(Err(Refused::NoSuchPod)));
    let reply = door.post(PATH, &fixture("eviction")).await;
    assert!(!reply.is_allowed());
    let status = &reply.response()["status"];
    assert_eq!(status["code"], 404);
    assert_eq!(status["reason"], "NotFound");
    assert_eq!(status["message"], "pods \"etcd-main-1\" not found");
    assert_eq!(status["details"]["name"], "etcd-main-1");
    assert!(door.notices().is_empty());
}

#[tokio::test]
async fn s14_p16_a_dry_run_is_told_by_any_of_its_sources() {
    let review = fixture("eviction");
    let sources = [
        with(review.clone(), "/request/dryRun", json!(true)),
        with(review.clone(), "/request/options/dryRun", json!(["All"])),
        with(
            review.clone(),
            "/request/object/deleteOptions/dryRun",
            json!(["All"]),
        ),
        with(
            with(review, "/request/dryRun", json!(true)),
            "/request/object/deleteOptions/dryRun",
            json!(["All"]),
        ),
    ];
    for source in sources {
        let door = Door::open();
        assert!(door.post(PATH, &source).await.is_allowed());
        assert_eq!(door.question().dry_run, DryRun::Yes, "{source}");
    }
}

#[tokio::test]
async fn s3_s4_the_precondition_of_an_eviction_is_passed_on() {
    let door = Door::answering(|_| yes(Waiver::WrongIncarnation));
    let review = with(
        fixture("eviction"),
        OPTIONS,
        json!({"preconditions": {"uid": "another"}}),
    );
    assert!(door.post(PATH, &review).await.is_allowed());
    assert_eq!(door.question().precondition.unwrap().as_str(), "another");
}

#[tokio::test]
async fn rule_5_force_inside_an_eviction_is_force() {
    let door = Door::open();
    let review = with(
        fixture("eviction"),
        OPTIONS,
        json!({"gracePeriodSeconds": 0}),
    );
    door.post(PATH, &review).await;
    assert_eq!(door.question().grace, Grace::Forced);
}
