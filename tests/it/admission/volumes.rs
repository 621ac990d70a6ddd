//! Tests of `/validate/volumes`: its questions and its answers.

use quorumgate::judge::{ClaimChange, ClaimQuestion};
use quorumgate::quorum::{Reason, Waiver};
use serde_json::{Value, json};

use super::door::{Door, World, deny, fixture, with, without, yes};

const PATH: &str = "/validate/volumes";

fn passing() -> Door {
    Door::new(World {
        claim_judgement: Box::new(|_| yes(Waiver::Foreign)),
        ..World::default()
    })
}

/// The question about a review.
async fn asked(review: &Value) -> ClaimQuestion {
    let door = passing();
    assert!(door.post(PATH, review).await.is_allowed());
    let [question] = door.claim_questions().try_into().unwrap();
    question
}

/// The reason for which a review passes unasked.
async fn waived(review: &Value) -> Value {
    let reply = Door::open().post(PATH, review).await;
    assert!(reply.is_allowed());
    reply.response()["auditAnnotations"]["reason"].clone()
}

#[tokio::test]
async fn a_volume_that_is_taken_from_its_claim_is_asked_about_as_the_claim() {
    let update = fixture("volume-update");
    let released = without(update.clone(), "/request/object/spec/claimRef");
    let same = with(
        update.clone(),
        "/request/object/spec/claimRef",
        update["request"]["oldObject"]["spec"]["claimRef"].clone(),
    );
    let finalizers = "/request/object/metadata/finalizers";
    let unprotected = with(same, finalizers, json!([]));
    let deleted = with(update.clone(), "/request/operation", json!("DELETE"));
    let deleted = with(deleted, "/request/object", Value::Null);
    for review in [update, released, unprotected, deleted] {
        let question = asked(&review).await;
        assert_eq!(question.namespace, "shoot");
        assert_eq!(question.claim, "etcd-main-etcd-main-2");
        assert_eq!(question.change, ClaimChange::TakeVolume("pv-7".to_owned()));
    }
}

#[tokio::test]
async fn a_volume_that_stays_with_its_claim_or_has_none_passes_unasked() {
    let update = fixture("volume-update");
    let old = update["request"]["oldObject"]["spec"]["claimRef"].clone();
    let same = with(update.clone(), "/request/object/spec/claimRef", old);
    let version = "/request/object/spec/claimRef/resourceVersion";
    let newer = with(same, version, json!("813"));
    assert_eq!(waived(&newer).await, "StaysProtected");
    let unbound = without(update, "/request/oldObject/spec/claimRef");
    assert_eq!(waived(&unbound).await, "Foreign");
}

#[tokio::test]
async fn a_refusal_names_the_volume_and_its_claim() {
    let reason = Reason::VolumeInUse {
        volume: "pv-7".to_owned(),
        claim: "etcd-main-etcd-main-2".to_owned(),
        pods: vec!["etcd-main-2".into()],
    };
    let door = Door::new(World {
        claim_judgement: Box::new(move |_| deny(reason.clone())),
        ..World::default()
    });
    let reply = door.post(PATH, &fixture("volume-update")).await;
    let status = &reply.response()["status"];
    assert_eq!(status["code"], 403);
    let message = status["message"].as_str().unwrap();
    assert!(
        message.contains("pv-7 is the volume of etcd-main-etcd-main-2"),
        "{message}"
    );
}
