//! Tests of `/validate/claims`: its questions and its answers. The decision itself is tested beside
//! its code.

use quorumgate::judge::{Answer, ClaimChange, ClaimQuestion, DryRun, Ground};
use quorumgate::quorum::{Actor, Basis, Count, Reason, Waiver};
use serde_json::json;

use super::door::{Door, OWN_USERNAME, World, allow, deny, fixture, wait, with, without, yes};

const PATH: &str = "/validate/claims";
const UID: &str = "3b9d7c1e-2f3a-4a52-8d57-8f0f1f7f9a2c";
const COLLECTOR: &str = "system:serviceaccount:kube-system:generic-garbage-collector";

fn answering(judgement: impl Fn(&ClaimQuestion) -> Answer + Send + Sync + 'static) -> Door {
    Door::new(World {
        claim_judgement: Box::new(judgement),
        ..World::default()
    })
}

fn passing() -> Door {
    answering(|_| yes(Waiver::Foreign))
}

#[tokio::test]
async fn a_delete_is_asked_about_one_by_one_and_in_a_collection() {
    let single = fixture("claim-delete");
    let of_many = with(single.clone(), "/request/name", json!(""));
    for review in [single, of_many] {
        let door = passing();
        assert!(door.post(PATH, &review).await.is_allowed());
        let [question] = door.claim_questions().try_into().unwrap();
        assert_eq!(question.namespace, "shoot");
        assert_eq!(question.claim, "etcd-main-etcd-main-2");
        assert_eq!(question.dry_run, DryRun::No);
        assert_eq!(question.asker.name, "kubernetes-admin");
    }
}

#[tokio::test]
async fn a_dry_run_and_the_gate_itself_are_told_as_such() {
    let door = passing();
    let review = with(fixture("claim-delete"), "/request/dryRun", json!(true));
    let review = with(review, "/request/userInfo/username", json!(OWN_USERNAME));
    door.post(PATH, &review).await;
    let [question] = door.claim_questions().try_into().unwrap();
    assert_eq!(question.dry_run, DryRun::Yes);
    assert_eq!(question.asker.actor, Actor::Gate);
}

#[tokio::test]
async fn a_claim_that_is_terminating_or_another_passes_unasked() {
    let at = "/request/oldObject/metadata/deletionTimestamp";
    let terminating = with(fixture("claim-delete"), at, json!("2026-11-21T09:00:00Z"));
    let uid = "/request/options/preconditions";
    let another = with(fixture("claim-delete"), uid, json!({"uid": "another"}));
    for (review, reason) in [(terminating, "Terminating"), (another, "WrongIncarnation")] {
        let reply = Door::open().post(PATH, &review).await;
        assert!(reply.is_allowed());
        assert_eq!(reply.response()["auditAnnotations"]["reason"], reason);
    }
    let this = with(fixture("claim-delete"), uid, json!({"uid": UID}));
    let door = passing();
    door.post(PATH, &this).await;
    assert_eq!(door.claim_questions().len(), 1);
}

/// By `persistentVolumeClaimRetentionPolicy` a claim goes after the StatefulSet or the pod that
/// owns it. But anybody may write an owner that does not exist.
#[tokio::test]
async fn a_claim_that_the_garbage_collector_deletes_is_asked_about_as_such() {
    let collected = |user: &str, precondition| {
        let user = with(
            fixture("claim-delete"),
            "/request/userInfo/username",
            json!(user),
        );
        with(user, "/request/options/preconditions", precondition)
    };
    let asked = async |review| {
        let door = passing();
        door.post(PATH, &review).await;
        let [question] = door.claim_questions().try_into().unwrap();
        question.change
    };
    let is_collected = ClaimChange::Delete { collected: true };
    let by_uid = collected(COLLECTOR, json!({"uid": UID}));
    assert_eq!(asked(by_uid).await, is_collected);

    let impostor = "system:serviceaccount:default:generic-garbage-collector";
    let unseen = without(
        collected(COLLECTOR, json!({"uid": UID})),
        "/request/oldObject/metadata/uid",
    );
    for review in [
        collected(COLLECTOR, json!({})),
        collected(impostor, json!({"uid": UID})),
        unseen,
    ] {
        assert_eq!(
            asked(review).await,
            ClaimChange::Delete { collected: false }
        );
    }
}

#[tokio::test]
async fn of_the_updates_only_the_end_of_a_protection_is_asked_about() {
    let finalizers = "/request/object/metadata/finalizers";
    let kept = with(
        fixture("claim-update"),
        finalizers,
        json!(["a", "kubernetes.io/pvc-protection"]),
    );
    let reply = Door::open().post(PATH, &kept).await;
    assert_eq!(
        reply.response()["auditAnnotations"]["reason"],
        "StaysProtected"
    );
    let old = "/request/oldObject/metadata/finalizers";
    let never = with(fixture("claim-update"), old, json!(["a"]));
    assert!(Door::open().post(PATH, &never).await.is_allowed());
    for gone in [json!(null), json!([]), json!(["a"])] {
        let door = passing();
        door.post(PATH, &with(fixture("claim-update"), finalizers, gone))
            .await;
        let [question] = door.claim_questions().try_into().unwrap();
        assert_eq!(question.change, ClaimChange::Unprotect);
    }
    let reason = Reason::ClaimProtected {
        claim: "etcd-main-etcd-main-2".to_owned(),
        pods: vec!["etcd-main-2".into()],
    };
    let door = answering(move |_| deny(reason.clone()));
    let reply = door.post(PATH, &fixture("claim-update")).await;
    assert_eq!(reply.response()["status"]["code"], 403);
}

#[tokio::test]
async fn a_refusal_names_the_claim_and_says_what_to_do() {
    let reason = Reason::ClaimInUse {
        claim: "etcd-main-etcd-main-2".to_owned(),
        members: vec!["etcd-main-2".into()],
    };
    let door = answering(move |_| deny(reason.clone()));
    let reply = door.post(PATH, &fixture("claim-delete")).await;
    let status = &reply.response()["status"];
    assert_eq!(
        (status["code"].as_i64(), &status["reason"]),
        (Some(403), &json!("Forbidden"))
    );
    let message = status["message"].as_str().unwrap();
    let begins = "persistentvolumeclaim shoot/etcd-main-etcd-main-2 cannot be deleted this way: etcd-main-2 serves from the volume of";
    assert!(message.starts_with(begins), "{message}");
    assert_eq!(status["details"]["kind"], "persistentvolumeclaims");
    assert_eq!(status["details"]["causes"][0]["reason"], "ClaimInUse");
    let [notice] = door.notices().try_into().unwrap();
    assert_eq!(notice.reason, "ClaimInUse");
    assert_eq!(notice.action, "Delete");
    assert_eq!(
        notice.regarding.kind.as_deref(),
        Some("PersistentVolumeClaim")
    );

    let door = answering(|_| wait(Reason::LastCopy(Count::default())));
    let reply = door.post(PATH, &fixture("claim-delete")).await;
    assert_eq!(reply.response()["status"]["code"], 429);
}

#[tokio::test]
async fn a_yes_says_on_which_ground() {
    let door = answering(|_| allow(Ground::DryRun(Basis::NotAMember)));
    let reply = door.post(PATH, &fixture("claim-delete")).await;
    assert!(reply.is_allowed());
    assert_eq!(reply.response()["auditAnnotations"]["reason"], "NotAMember");
}
