//! Tests of `/validate/restarts`.

use quorumgate::judge::{DryRun, Ground};
use quorumgate::quorum::{Actor, Basis, Grace, InPlace, Kind, Reason, Waiver};
use serde_json::{Value, json};

use super::door::{Door, allow, deny, fixture, wait, with, without, yes};

const PATH: &str = "/validate/restarts";
const ETCD_IMAGE: &str = "/request/object/spec/containers/0/image";
const SIDECAR_IMAGE: &str = "/request/object/spec/containers/1/image";
const RESOURCES: &str = "/request/object/spec/containers/0/resources";

/// The review with another value of an existing field.
fn changed(mut review: Value, pointer: &str, value: &str) -> Value {
    *review.pointer_mut(pointer).unwrap() = json!(value);
    review
}

/// An update that keeps etcd's image.
fn same_image() -> Value {
    changed(fixture("pod-update"), ETCD_IMAGE, "etcd:3.6.16")
}

/// A resize of etcd's container: one amount, given by the pointer below its resources.
fn resize(pointer: &str, amount: &str) -> Value {
    let resized = with(same_image(), "/request/subResource", json!("resize"));
    changed(resized, &format!("{RESOURCES}{pointer}"), amount)
}

fn nobody_is_asked() -> Door {
    Door::answering(|_| wait(Reason::NoEvidence { because: vec![] }))
}

#[tokio::test]
async fn an_update_that_takes_a_member_is_asked_about_with_the_pod_that_the_review_shows() {
    let deadline = with(
        same_image(),
        "/request/object/spec/activeDeadlineSeconds",
        json!(1),
    );
    for (review, by) in [
        (fixture("pod-update"), InPlace::Image),
        (deadline, InPlace::Deadline),
        (resize("/limits/memory", "3Gi"), InPlace::Resize),
    ] {
        let door = Door::open();
        assert!(door.post(PATH, &review).await.is_allowed());
        let question = door.question();
        assert_eq!(question.kind, Kind::Restart(by));
        assert_eq!(question.namespace, "shoot");
        assert_eq!(question.pod.as_str(), "etcd-main-0");
        let shown = question.shown_uid().unwrap();
        assert_eq!(shown.as_str(), "b3a7c1a2-6d0e-4a43-8f2d-3f0b35d3f3b0");
        assert_eq!(question.grace, Grace::Graceful);
        assert_eq!(question.precondition, None);
        assert_eq!(question.dry_run, DryRun::No);
        assert_eq!(question.asker.name, "kubernetes-admin");
        assert_eq!(question.asker.actor, Actor::Stranger);
    }
}

#[tokio::test]
async fn k3_k6_what_restarts_no_etcd_passes_without_anybody_being_asked() {
    let door = nobody_is_asked();
    let labelled = with(
        same_image(),
        "/request/object/metadata/labels/more",
        json!("yes"),
    );
    let cpu = resize("/requests/cpu", "750m");
    for review in [labelled, cpu] {
        let reply = door.post(PATH, &review).await;
        assert!(reply.is_allowed());
        let said = &reply.response()["auditAnnotations"];
        assert_eq!(said["reason"], "RestartsNothing");
    }
    assert!(door.questions().is_empty());
}

/// Which container is etcd's may be the budget's word.
#[tokio::test]
async fn a_sidecar_is_asked_about_as_one_that_only_the_budget_may_name() {
    let door = Door::open();
    let sidecar = changed(same_image(), SIDECAR_IMAGE, "etcdbrctl:0.43.0");
    assert!(door.post(PATH, &sidecar).await.is_allowed());
    let question = door.question();
    assert_eq!(question.kind, Kind::Restart(InPlace::Image));
    assert_eq!(question.only_if_etcd_is, ["backup-restore"]);
}

#[tokio::test]
async fn rule_2_a_terminating_pod_may_be_updated_without_anybody_being_asked() {
    let door = nobody_is_asked();
    let terminating = with(
        fixture("pod-update"),
        "/request/oldObject/metadata/deletionTimestamp",
        json!("2026-11-21T09:00:00Z"),
    );
    let reply = door.post(PATH, &terminating).await;
    assert!(reply.is_allowed());
    let said = &reply.response()["auditAnnotations"];
    assert_eq!(said["reason"], "Terminating");
    assert!(door.questions().is_empty());
}

#[tokio::test]
async fn a_refused_restart_is_403_and_says_what_to_do_instead() {
    for (by, field) in [
        (InPlace::Image, "spec.containers"),
        (InPlace::Resize, "spec.containers"),
        (InPlace::Deadline, "spec.activeDeadlineSeconds"),
    ] {
        let door = Door::answering(move |_| deny(Reason::RestartByDelete(by)));
        let reply = door.post(PATH, &fixture("pod-update")).await;
        assert!(!reply.is_allowed());
        let status = &reply.response()["status"];
        assert_eq!(status["code"], 403);
        assert_eq!(status["reason"], "Forbidden");
        let cause = &status["details"]["causes"][0];
        assert_eq!(cause["reason"], "RestartByDelete");
        assert_eq!(cause["field"], field);
        let message = status["message"].as_str().unwrap();
        let begin = "pod shoot/etcd-main-0 cannot change this way: ";
        assert!(message.starts_with(begin), "{message}");
        for part in ["delete or evict the pod", "quorumgate.io/override-until"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[tokio::test]
async fn where_nobody_can_tell_whose_the_pod_is_it_has_to_wait() {
    let what = "the budget could not be read".to_owned();
    let door = Door::answering(move |_| wait(Reason::Unavailable { what: what.clone() }));
    let reply = door.post(PATH, &fixture("pod-update")).await;
    assert!(!reply.is_allowed());
    assert_eq!(reply.response()["status"]["code"], 429);
}

#[tokio::test]
async fn a_pod_that_is_no_members_and_one_with_an_override_pass() {
    let foreign = Door::answering(|_| yes(Waiver::Foreign));
    let lifted = Door::answering(|_| allow(Ground::DryRun(Basis::Override)));
    for (door, reason) in [(foreign, "Foreign"), (lifted, "Override")] {
        let reply = door.post(PATH, &fixture("pod-update")).await;
        assert!(reply.is_allowed());
        let said = &reply.response()["auditAnnotations"];
        assert_eq!(said["reason"], reason);
    }
}

#[tokio::test]
async fn k1_dry_runs_are_told_by_the_request_or_by_its_options() {
    let door = Door::answering(|_| deny(Reason::RestartByDelete(InPlace::Image)));
    let by_request = with(fixture("pod-update"), "/request/dryRun", json!(true));
    let options = "/request/options/dryRun";
    let by_options = with(fixture("pod-update"), options, json!(["All"]));
    for review in [by_request, by_options] {
        door.post(PATH, &review).await;
        assert_eq!(door.questions().last().unwrap().dry_run, DryRun::Yes);
    }
    assert!(door.notices().is_empty());
}

#[tokio::test]
async fn a_refused_restart_leaves_an_event_and_is_counted() {
    let door = Door::answering(|_| deny(Reason::RestartByDelete(InPlace::Image)));
    door.post(PATH, &fixture("pod-update")).await;
    let [notice] = door.notices().try_into().unwrap();
    assert_eq!(notice.reason, "RestartByDelete");
    assert_eq!(notice.action, "Restart");
    assert_eq!(notice.regarding.name.as_deref(), Some("etcd-main-0"));
    let page = door.exposition();
    let line =
        r#"quorumgate_decisions_total{hook="restarts",verdict="deny",reason="RestartByDelete"} 1"#;
    assert!(page.lines().any(|l| l == line), "{page}");
}

#[tokio::test]
async fn the_sub_resource_may_be_absent() {
    let door = Door::open();
    let whole = without(
        with(fixture("pod-update"), "/request/subResource", json!("")),
        "/request/subResource",
    );
    assert!(door.post(PATH, &whole).await.is_allowed());
    let status = with(
        fixture("pod-update"),
        "/request/subResource",
        json!("status"),
    );
    assert_eq!(door.post(PATH, &status).await.status, 400);
}
