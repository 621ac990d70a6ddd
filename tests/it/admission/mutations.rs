//! Tests of `/mutate/evictions` and `/mutate/pods`.

use serde_json::{Value, json};

use super::door::{Door, Reply, World, fixture, with};

const EVICTIONS: &str = "/mutate/evictions";
const PODS: &str = "/mutate/pods";

/// The object of the review as the API server would have it after the answer.
pub(crate) fn patched(review: &Value, reply: &Reply) -> Value {
    let response = reply.response();
    assert_eq!(response["allowed"], true);
    let mut object = review["request"]["object"].clone();
    if let Some(patch) = response.get("patch") {
        assert_eq!(response["patchType"], "JSONPatch");
        let bytes: k8s_openapi::ByteString = serde_json::from_value(patch.clone()).unwrap();
        let patch: json_patch::Patch = serde_json::from_slice(&bytes.0).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
    }
    object
}

fn finding(uid: Option<&str>) -> Door {
    Door::new(World {
        incarnation: Ok(uid.map(Into::into)),
        ..World::default()
    })
}

#[tokio::test]
async fn an_eviction_is_tied_to_the_incarnation_there_is() {
    let door = finding(Some("u-1"));
    let review = fixture("eviction");
    let object = patched(&review, &door.post(EVICTIONS, &review).await);
    assert_eq!(
        object["deleteOptions"],
        json!({"preconditions": {"uid": "u-1"}})
    );
    assert_eq!(door.lookups(), ["shoot/etcd-main-1"]);
}

/// The API server never overwrites an audit annotation, and both webhooks for evictions have one
/// name. The second one decides, so the first one must leave the annotations to it.
#[tokio::test]
async fn a_change_leaves_verdict_and_reason_in_the_audit_log_to_who_judges() {
    let door = finding(Some("u-1"));
    let review = fixture("eviction");
    let changed = door.post(EVICTIONS, &review).await;
    assert_eq!(
        changed.response()["auditAnnotations"],
        json!({"change": "patched"})
    );
}

/// The API server refuses such a request itself, right after this webhook, and with a better code
/// than the webhook could give.
#[tokio::test]
async fn p3_a_name_that_differs_from_the_paths_is_left_to_the_api_server() {
    let door = finding(Some("u-1"));
    let review = with(
        fixture("eviction"),
        "/request/object/metadata/name",
        json!("etcd-main-2"),
    );
    let object = patched(&review, &door.post(EVICTIONS, &review).await);
    assert_eq!(object["metadata"]["name"], "etcd-main-2");
    assert_eq!(door.lookups(), ["shoot/etcd-main-1"]);
}

#[tokio::test]
async fn s9_what_an_eviction_has_stays_as_it_is() {
    let door = finding(Some("u-1"));
    let options = json!({"gracePeriodSeconds": 7, "dryRun": ["All"], "preconditions": {"resourceVersion": "9"}});
    let review = with(
        fixture("eviction"),
        "/request/object/deleteOptions",
        options,
    );
    let object = patched(&review, &door.post(EVICTIONS, &review).await);
    assert_eq!(
        object["deleteOptions"],
        json!({"gracePeriodSeconds": 7, "dryRun": ["All"], "preconditions": {"resourceVersion": "9", "uid": "u-1"}})
    );
}

#[tokio::test]
async fn a_precondition_that_is_there_is_never_changed_nor_looked_up() {
    let door = finding(Some("u-1"));
    let options = json!({"preconditions": {"uid": "u-0"}});
    let review = with(
        fixture("eviction"),
        "/request/object/deleteOptions",
        options.clone(),
    );
    let reply = door.post(EVICTIONS, &review).await;
    assert_eq!(patched(&review, &reply)["deleteOptions"], options);
    assert!(reply.response().get("patch").is_none());
    assert!(door.lookups().is_empty());
}

#[tokio::test]
async fn an_eviction_of_a_pod_that_does_not_exist_is_left_to_the_validating_webhook() {
    let door = finding(None);
    let reply = door.post(EVICTIONS, &fixture("eviction")).await;
    assert!(reply.is_allowed());
    assert!(reply.response().get("patch").is_none());
    assert!(reply.response().get("patchType").is_none());
}

#[tokio::test]
async fn an_eviction_waits_while_its_pod_cannot_be_read() {
    let door = Door::new(World {
        incarnation: Err("the API server is away".to_owned()),
        ..World::default()
    });
    let reply = door.post(EVICTIONS, &fixture("eviction")).await;
    assert!(!reply.is_allowed());
    assert_eq!(reply.response()["status"]["code"], 429);
}

#[tokio::test]
async fn members_tell_cluster_autoscaler_to_leave_them() {
    let door = Door::new(World {
        enrolled: ["shoot/etcd-main".to_owned()].into(),
        ..World::default()
    });
    let review = fixture("pod-create");
    let object = patched(&review, &door.post(PODS, &review).await);
    assert_eq!(
        object["metadata"]["annotations"],
        json!({
            "checksum/config": "7", "quorumgate.io/asked": "true",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        })
    );
}

#[tokio::test]
async fn an_owners_own_word_and_s11_pods_of_others_are_left_alone() {
    let door = Door::new(World {
        enrolled: ["shoot/etcd-main".to_owned()].into(),
        ..World::default()
    });
    let autoscaler = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    let annotations = "/request/object/metadata/annotations";
    let own = with(
        fixture("pod-create"),
        annotations,
        json!({autoscaler: "true"}),
    );
    let object = patched(&own, &door.post(PODS, &own).await);
    assert_eq!(object["metadata"]["annotations"][autoscaler], "true");
    let owners = "/request/object/metadata/ownerReferences";
    for review in [
        with(
            fixture("pod-create"),
            "/request/namespace",
            json!("elsewhere"),
        ),
        with(
            fixture("pod-create"),
            owners,
            json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "other", "controller": true}]),
        ),
        with(
            fixture("pod-create"),
            owners,
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "etcd-main", "controller": true}]),
        ),
        with(
            fixture("pod-create"),
            owners,
            json!([{"apiVersion": "apps.kruise.io/v1", "kind": "StatefulSet", "name": "etcd-main", "controller": true}]),
        ),
    ] {
        let reply = door.post(PODS, &review).await;
        assert!(reply.is_allowed());
        assert!(reply.response().get("patch").is_none(), "{review}");
    }
}

/// A pod that is made by hand starts as the member whose name it has.
#[tokio::test]
async fn a_pod_of_a_members_name_that_nothing_controls_is_guarded_like_one_of_the_set() {
    let door = Door::new(World {
        enrolled: ["shoot/etcd-main".to_owned()].into(),
        ..World::default()
    });
    for owners in [
        json!([]),
        json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd-main"}]),
    ] {
        let review = with(
            fixture("pod-create"),
            "/request/object/metadata/ownerReferences",
            owners,
        );
        let reply = door.post(PODS, &review).await;
        assert!(reply.response().get("patch").is_some(), "{review}");
    }
}
