//! Tests of `/validate/statefulsets`: its questions and its answers. The decision itself is tested
//! beside its code.

use std::time::{Duration, Instant};

use quorumgate::judge::{DryRun, Ground};
use quorumgate::quorum::stateful_set::{Change, Ordinals};
use quorumgate::quorum::{Basis, ClusterRef, Reason, Waiver};
use serde_json::json;

use super::door::{Door, World, allow, deny, fixture, with, without, yes};

const PATH: &str = "/validate/statefulsets";

fn passing() -> Door {
    Door::new(World {
        set_judgement: Box::new(|_| yes(Waiver::Foreign)),
        ..World::default()
    })
}

#[tokio::test]
async fn a_delete_is_asked_about() {
    let door = passing();
    assert!(
        door.post(PATH, &fixture("statefulset-delete"))
            .await
            .is_allowed()
    );
    let [question] = door.set_questions().try_into().unwrap();
    assert_eq!(question.change, Change::Delete);
    assert_eq!(question.set.to_string(), "shoot/etcd-main");
    assert_eq!(
        question.uid.unwrap().as_str(),
        "0f8b9c9f-4d36-4a4e-a5a5-8f1a6a3d5b1c"
    );
    assert_eq!(question.dry_run, DryRun::No);
}

/// The garbage collector has read the owner of the incarnation that its precondition names, and of
/// no other.
#[tokio::test]
async fn what_the_garbage_collector_says_counts_for_one_incarnation_only() {
    let collector = "system:serviceaccount:kube-system:generic-garbage-collector";
    let uid = "0f8b9c9f-4d36-4a4e-a5a5-8f1a6a3d5b1c";
    for (user, precondition, collected) in [
        (collector, json!({"uid": uid}), true),
        (collector, json!({"uid": "another"}), false),
        (collector, json!({}), false),
        (
            "system:serviceaccount:default:generic-garbage-collector",
            json!({"uid": uid}),
            false,
        ),
        ("system:kube-controller-manager", json!({"uid": uid}), false),
        ("kubernetes-admin", json!({"uid": uid}), false),
    ] {
        let door = passing();
        let review = with(
            fixture("statefulset-delete"),
            "/request/userInfo/username",
            json!(user),
        );
        let review = with(
            review,
            "/request/options/preconditions",
            precondition.clone(),
        );
        assert!(door.post(PATH, &review).await.is_allowed());
        assert_eq!(
            door.set_questions()[0].collected,
            collected,
            "{user} {precondition}"
        );
    }
}

#[tokio::test]
async fn a_delete_that_orphans_or_goes_on_passes_unasked() {
    let options = "/request/options/propagationPolicy";
    let terminating = with(
        fixture("statefulset-delete"),
        "/request/oldObject/metadata/deletionTimestamp",
        json!("2026-11-21T09:00:00Z"),
    );
    for (review, reason) in [
        (
            with(fixture("statefulset-delete"), options, json!("Orphan")),
            "Orphans",
        ),
        (terminating, "Terminating"),
    ] {
        let reply = Door::open().post(PATH, &review).await;
        assert!(reply.is_allowed());
        assert_eq!(reply.response()["auditAnnotations"]["reason"], reason);
    }
}

#[tokio::test]
async fn a_delete_that_stops_orphaning_is_asked_about_although_it_terminates() {
    let door = passing();
    let review = with(
        with(
            fixture("statefulset-delete"),
            "/request/oldObject/metadata/finalizers",
            json!(["orphan"]),
        ),
        "/request/oldObject/metadata/deletionTimestamp",
        json!("2026-11-21T09:00:00Z"),
    );
    door.post(PATH, &review).await;
    assert_eq!(door.set_questions().len(), 1);
}

#[tokio::test]
async fn the_largest_scale_in_there_can_be_is_asked_about_like_any_other() {
    let most = i32::MAX;
    for path in [
        "/request/oldObject/spec/replicas",
        "/request/oldObject/spec/ordinals/start",
    ] {
        for review in ["statefulset-update", "scale"] {
            let door = passing();
            let review = with(fixture(review), "/request/object/spec/replicas", json!(0));
            let review = with(review, path, json!(most));
            let start = Instant::now();
            assert!(door.post(PATH, &review).await.is_allowed());
            assert_eq!(door.set_questions().len(), 1);
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "{:?}",
                start.elapsed()
            );
        }
    }
}

#[tokio::test]
async fn a_scale_in_is_asked_about_by_update_and_by_scale() {
    let ordinals = |start, count| Ordinals { start, count };
    let (update, scale) = (fixture("statefulset-update"), fixture("scale"));
    let hibernation = without(scale.clone(), "/request/object/spec/replicas");
    for (review, from, to) in [
        (update, ordinals(Some(0), 5), ordinals(Some(0), 3)),
        (scale, ordinals(None, 5), ordinals(None, 3)),
        (hibernation, ordinals(None, 5), ordinals(None, 0)),
    ] {
        let door = passing();
        door.post(PATH, &review).await;
        let [question] = door.set_questions().try_into().unwrap();
        assert_eq!(question.change, Change::Resize { from, to });
    }
}

#[tokio::test]
async fn an_update_shows_its_own_announcement() {
    let door = passing();
    door.post(PATH, &fixture("statefulset-update")).await;
    let [question] = door.set_questions().try_into().unwrap();
    let soon = "2026-11-21T08:00:30Z".parse().unwrap();
    let late = "2026-11-23T08:00:30Z".parse().unwrap();
    let intents = question.intents.unwrap();
    assert!(intents.announced(soon).is_some());
    assert!(intents.announced(late).is_none());
}

/// Each write of a manager renews the time of all that it wrote.
#[tokio::test]
async fn an_announcement_that_stood_before_a_write_is_as_old_as_it_was() {
    let now = "2026-11-21T08:00:30Z".parse().unwrap();
    let stood = |value: &str| {
        let review = fixture("statefulset-update");
        let mut managers = review["request"]["object"]["metadata"]["managedFields"].clone();
        for entry in managers.as_array_mut().unwrap() {
            entry["time"] = json!("2026-11-20T08:00:00Z");
        }
        let old = "/request/oldObject/metadata";
        let review = with(review, &format!("{old}/managedFields"), managers);
        let said = json!({"quorumgate.io/intent": value});
        with(review, &format!("{old}/annotations"), said)
    };
    let said = fixture("statefulset-update")["request"]["object"]["metadata"]["annotations"]
        ["quorumgate.io/intent"]
        .clone();
    for (before, counts) in [(said.as_str().unwrap(), false), ("delete", true)] {
        let door = passing();
        door.post(PATH, &stood(before)).await;
        let [question] = door.set_questions().try_into().unwrap();
        let announced = question.intents.unwrap().announced(now);
        assert_eq!(announced.is_some(), counts, "{before} stood before");
    }
}

#[tokio::test]
async fn an_update_that_takes_no_ordinal_passes_unasked() {
    let same = with(
        fixture("statefulset-update"),
        "/request/oldObject/spec/replicas",
        json!(3),
    );
    let out = with(fixture("scale"), "/request/object/spec/replicas", json!(7));
    for review in [same, out] {
        let reply = Door::open().post(PATH, &review).await;
        assert!(reply.is_allowed());
        assert_eq!(
            reply.response()["auditAnnotations"]["reason"],
            "NothingLeaves"
        );
    }
}

#[tokio::test]
async fn a_scale_in_of_members_that_etcd_lists_is_403() {
    let door = Door::new(World {
        set_judgement: Box::new(|_| {
            deny(Reason::MembersListed {
                cluster: ClusterRef::new("db", "etcd"),
                members: vec!["etcd-main-3".into()],
                ignored: None,
            })
        }),
        ..World::default()
    });
    let reply = door.post(PATH, &fixture("scale")).await;
    let status = &reply.response()["status"];
    assert_eq!(status["code"], 403);
    assert_eq!(status["details"]["group"], "apps");
    assert_eq!(status["details"]["causes"][0]["reason"], "MembersListed");
    assert_eq!(status["details"]["causes"][0]["field"], "spec.replicas");
    let [notice] = door.notices().try_into().unwrap();
    assert_eq!(notice.regarding.kind.as_deref(), Some("StatefulSet"));
    assert_eq!(notice.regarding.api_version.as_deref(), Some("apps/v1"));
}

#[tokio::test]
async fn a_dry_run_is_told() {
    let door = Door::new(World {
        set_judgement: Box::new(|_| allow(Ground::DryRun(Basis::Intent))),
        ..World::default()
    });
    let review = with(fixture("scale"), "/request/dryRun", json!(true));
    assert!(door.post(PATH, &review).await.is_allowed());
    assert_eq!(door.set_questions()[0].dry_run, DryRun::Yes);
}
