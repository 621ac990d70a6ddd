//! Tests of `/validate/pods`.

use quorumgate::judge::DryRun;
use quorumgate::quorum::{Actor, Grace, Kind, Reason, Waiver};
use serde_json::json;

use super::door::{Door, OWN_USERNAME, fixture, wait, with, without, yes};

const PATH: &str = "/validate/pods";
const FORCED: &str = "/request/options/gracePeriodSeconds";
const USER: &str = "/request/userInfo";

#[tokio::test]
async fn a_delete_is_asked_about_with_the_pod_that_the_review_shows() {
    let door = Door::open();
    let reply = door.post(PATH, &fixture("pod-delete")).await;
    assert!(reply.is_allowed());
    assert_eq!(
        reply.response()["uid"],
        "5c6f0e1e-8f3f-4f1a-9d39-0c6a1bd1c0aa"
    );
    let question = door.question();
    assert_eq!(question.namespace, "shoot");
    assert_eq!(question.pod.as_str(), "etcd-main-0");
    assert_eq!(
        question.shown_uid().unwrap().as_str(),
        "b3a7c1a2-6d0e-4a43-8f2d-3f0b35d3f3b0"
    );
    assert_eq!(question.kind, Kind::Delete);
    assert_eq!(question.grace, Grace::Graceful);
    assert_eq!(question.precondition, None);
    assert_eq!(question.dry_run, DryRun::No);
    assert_eq!(question.asker.name, "kubernetes-admin");
    assert_eq!(question.asker.actor, Actor::Stranger);
}

/// Pod GC calls the pods of a deleted Node failed before it deletes them, and a kubelet that still
/// runs ends them by that.
#[tokio::test]
async fn a_pod_that_pod_gc_calls_failed_is_judged_as_the_delete_that_follows() {
    let door = Door::open();
    let review = with(fixture("pod-delete"), "/request/operation", json!("UPDATE"));
    let review = with(review, "/request/subResource", json!("status"));
    let collector = "system:serviceaccount:kube-system:pod-garbage-collector";
    let review = with(review, "/request/userInfo/username", json!(collector));
    assert!(door.post(PATH, &review).await.is_allowed());
    let question = door.question();
    assert_eq!(question.pod.as_str(), "etcd-main-0");
    assert_eq!(
        (question.kind, question.grace),
        (Kind::Delete, Grace::Forced)
    );
    assert_eq!(question.asker.actor, Actor::NodeOrPodGc);
    let uid = question.precondition.expect("the incarnation");
    assert_eq!(uid.as_str(), "b3a7c1a2-6d0e-4a43-8f2d-3f0b35d3f3b0");
    let refused = Door::answering(|_| wait(Reason::NoLedger));
    assert!(!refused.post(PATH, &review).await.is_allowed());
}

#[tokio::test]
async fn n3_a_collection_delete_has_no_name_and_is_identified_by_its_old_object() {
    let door = Door::open();
    let review = with(fixture("pod-delete"), "/request/name", json!(""));
    assert!(door.post(PATH, &review).await.is_allowed());
    let review = without(without(review, "/request/name"), "/request/namespace");
    assert!(door.post(PATH, &review).await.is_allowed());
    for question in door.questions() {
        assert_eq!(question.pod.as_str(), "etcd-main-0");
        assert_eq!(question.namespace, "shoot");
    }
    assert_eq!(door.questions().len(), 2);
}

#[tokio::test]
async fn n1_a_force_delete_asks_twice_and_both_are_judged_alike() {
    let door = Door::answering(|_| wait(Reason::NoEvidence { because: vec![] }));
    let first = with(fixture("pod-delete"), FORCED, json!(0));
    let second = with(
        first.clone(),
        "/request/oldObject/metadata/deletionTimestamp",
        json!("2026-11-21T09:00:00Z"),
    );
    assert!(!door.post(PATH, &first).await.is_allowed());
    assert!(!door.post(PATH, &second).await.is_allowed());
    let [one, two] = door.questions().try_into().unwrap();
    assert_eq!((one.grace, two.grace), (Grace::Forced, Grace::Forced));
    assert_eq!(one.shown_uid(), two.shown_uid());
}

#[tokio::test]
async fn rule_2_a_terminating_pod_finishes_without_anybody_being_asked() {
    let door = Door::answering(|_| wait(Reason::NoEvidence { because: vec![] }));
    let terminating = with(
        fixture("pod-delete"),
        "/request/oldObject/metadata/deletionTimestamp",
        json!("2026-11-21T09:00:00Z"),
    );
    let kubelet = json!({"username": "system:node:node-a", "groups": ["system:nodes"]});
    let final_delete = with(with(terminating.clone(), FORCED, json!(0)), USER, kubelet);
    for review in [terminating, final_delete] {
        let reply = door.post(PATH, &review).await;
        assert!(reply.is_allowed());
        assert_eq!(
            reply.response()["auditAnnotations"]["reason"],
            "Terminating"
        );
    }
    assert!(door.questions().is_empty());
}

#[tokio::test]
async fn n16_who_asks_is_told_by_name_and_group() {
    let door = Door::open();
    for (user, actor) in [
        (
            json!({"username": "system:node:a", "groups": ["system:nodes"]}),
            Actor::NodeOrPodGc,
        ),
        (
            json!({"username": "system:serviceaccount:kube-system:pod-garbage-collector"}),
            Actor::NodeOrPodGc,
        ),
        (
            json!({"username": OWN_USERNAME, "groups": null}),
            Actor::Gate,
        ),
        (
            json!({"username": "system:node:a", "groups": []}),
            Actor::Stranger,
        ),
        (json!({}), Actor::Stranger),
    ] {
        let review = with(fixture("pod-delete"), USER, user.clone());
        assert!(door.post(PATH, &review).await.is_allowed());
        assert_eq!(
            door.questions().last().unwrap().asker.actor,
            actor,
            "{user}"
        );
    }
}

#[tokio::test]
async fn grace_0_is_forced_except_where_the_pod_has_no_node() {
    let door = Door::open();
    let forced = with(fixture("pod-delete"), FORCED, json!(0));
    let pending = without(forced.clone(), "/request/oldObject/spec/nodeName");
    for (review, grace) in [(forced, Grace::Forced), (pending, Grace::Graceful)] {
        door.post(PATH, &review).await;
        assert_eq!(door.questions().last().unwrap().grace, grace);
    }
}

#[tokio::test]
async fn s3_s4_the_precondition_is_passed_on() {
    let door = Door::answering(|_| yes(Waiver::WrongIncarnation));
    let review = with(
        fixture("pod-delete"),
        "/request/options/preconditions",
        json!({"uid": "another", "resourceVersion": "7"}),
    );
    let reply = door.post(PATH, &review).await;
    assert!(reply.is_allowed());
    assert_eq!(
        reply.response()["auditAnnotations"]["reason"],
        "WrongIncarnation"
    );
    assert_eq!(door.question().precondition.unwrap().as_str(), "another");
}

#[tokio::test]
async fn k1_dry_runs_are_told_by_the_request_or_by_its_options() {
    let door = Door::open();
    let by_request = with(fixture("pod-delete"), "/request/dryRun", json!(true));
    let by_options = with(
        fixture("pod-delete"),
        "/request/options/dryRun",
        json!(["All"]),
    );
    for review in [by_request, by_options] {
        door.post(PATH, &review).await;
        assert_eq!(door.questions().last().unwrap().dry_run, DryRun::Yes);
    }
}

#[tokio::test]
async fn s10_the_same_review_twice_is_judged_twice_and_answered_alike() {
    let door = Door::answering(|_| wait(Reason::NoEvidence { because: vec![] }));
    let one = door.post(PATH, &fixture("pod-delete")).await;
    let two = door.post(PATH, &fixture("pod-delete")).await;
    assert_eq!(one.body, two.body);
    assert_eq!(door.questions().len(), 2);
}
