//! Tests of `/mutate/statefulsets`: the stored update strategy is the one that the gate keeps.

use quorumgate::features::Features;
use serde_json::{Value, json};

use super::door::{Door, OWN_USERNAME, World, fixture, with, without};
use super::mutations::patched;

const PATH: &str = "/mutate/statefulsets";
const ANNOTATION: &str = "quorumgate.io/previous-update-strategy";
const DESIRED: &str = r#"{"rollingUpdate":{"partition":0},"type":"RollingUpdate"}"#;
const EARLIER: &str = r#"{"rollingUpdate":{"partition":2},"type":"RollingUpdate"}"#;
const LABELS: &str = "/request/object/metadata/labels";
const STRATEGY: &str = "/request/object/spec/updateStrategy";
const ANNOTATIONS: &str = "/request/object/metadata/annotations";

fn world(on_delete: bool) -> World {
    World {
        features: Features {
            on_delete,
            ..Features::default()
        },
        ..World::default()
    }
}

fn switched(on_delete: bool) -> Door {
    Door::new(world(on_delete))
}

/// An update by an operator that writes its own strategy over the one that the gate keeps.
fn update() -> Value {
    let review = fixture("statefulset-create");
    let mut old = review["request"]["object"].clone();
    old["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    old["metadata"]["annotations"][ANNOTATION] = json!(EARLIER);
    let review = with(review, "/request/operation", json!("UPDATE"));
    with(review, "/request/oldObject", old)
}

fn strategy(object: &Value) -> (&Value, &Value) {
    let memory = &object["metadata"]["annotations"][ANNOTATION];
    (&object["spec"]["updateStrategy"], memory)
}

#[tokio::test]
async fn the_patch_of_a_creation_is_golden() {
    let review = fixture("statefulset-create");
    let reply = switched(true).post(PATH, &review).await;
    let bytes: k8s_openapi::ByteString =
        serde_json::from_value(reply.response()["patch"].clone()).unwrap();
    let patch: Value = serde_json::from_slice(&bytes.0).unwrap();
    assert_eq!(
        patch,
        json!([
            {"op": "add", "path": "/spec/updateStrategy", "value": {"type": "OnDelete"}},
            {
                "op": "add",
                "path": "/metadata/annotations/quorumgate.io~1previous-update-strategy",
                "value": DESIRED,
            },
        ])
    );
    let object = patched(&review, &reply);
    assert_eq!(
        object["metadata"]["annotations"]["checksum/etcd-configmap"],
        "7"
    );
    assert_eq!(object["spec"]["replicas"], 3);
    assert_eq!(reply.response()["auditAnnotations"]["change"], "patched");
}

#[tokio::test]
async fn a_set_without_annotations_or_strategy_is_kept_as_well() {
    let review = without(
        without(fixture("statefulset-create"), ANNOTATIONS),
        STRATEGY,
    );
    let object = patched(&review, &switched(true).post(PATH, &review).await);
    let (strategy, memory) = strategy(&object);
    assert_eq!(strategy, &json!({"type": "OnDelete"}));
    assert_eq!(memory, r#"{"type":"RollingUpdate"}"#);
}

#[tokio::test]
async fn an_operator_that_writes_its_strategy_back_and_drops_annotations_changes_only_the_memory() {
    let review = update();
    let object = patched(&review, &switched(true).post(PATH, &review).await);
    let mut expected = review["request"]["oldObject"].clone();
    expected["metadata"]["annotations"][ANNOTATION] = json!(DESIRED);
    assert_eq!(object, expected);
}

#[tokio::test]
async fn a_write_of_what_is_kept_is_not_changed_and_a_dropped_memory_is_carried_over() {
    let kept = with(update(), STRATEGY, json!({"type": "OnDelete"}));
    let memory = json!({"checksum/etcd-configmap": "7", ANNOTATION: EARLIER});
    let whole = with(kept.clone(), ANNOTATIONS, memory);
    let reply = switched(true).post(PATH, &whole).await;
    assert!(reply.is_allowed() && reply.response().get("patch").is_none());
    let reply = switched(true).post(PATH, &kept).await;
    assert_eq!(patched(&kept, &reply), kept["request"]["oldObject"]);
    // The feature was switched off meanwhile. The owner's strategy still must not get lost.
    let reply = switched(false).post(PATH, &kept).await;
    let object = patched(&kept, &reply);
    assert_eq!(
        strategy(&object).0,
        &serde_json::from_str::<Value>(EARLIER).unwrap()
    );
}

#[tokio::test]
async fn an_owners_own_on_delete_is_left_alone() {
    let own = with(
        fixture("statefulset-create"),
        STRATEGY,
        json!({"type": "OnDelete"}),
    );
    for on in [true, false] {
        let reply = switched(on).post(PATH, &own).await;
        assert!(reply.is_allowed() && reply.response().get("patch").is_none());
    }
}

#[tokio::test]
async fn switched_off_nothing_is_changed_but_what_was_kept_goes_back() {
    let door = switched(false);
    let reply = door.post(PATH, &fixture("statefulset-create")).await;
    assert!(reply.is_allowed() && reply.response().get("patch").is_none());

    // The controller's request: a write of the unchanged object.
    let touched = update();
    let old = touched["request"]["oldObject"].clone();
    let touched = with(touched, "/request/object", old);
    let object = patched(&touched, &door.post(PATH, &touched).await);
    let (strategy, memory) = strategy(&object);
    assert_eq!(strategy, &serde_json::from_str::<Value>(EARLIER).unwrap());
    assert!(memory.is_null());
}

/// During a rollout of the gate with another value of the feature gate, the leader and the
/// answering replica may disagree.
#[tokio::test]
async fn the_gates_own_writes_say_what_is_to_be_done() {
    let touched = update();
    let old = touched["request"]["oldObject"].clone();
    let touched = with(touched, "/request/object", old);
    let by = |review: Value, user: &str, manager: &str| {
        let review = with(review, "/request/userInfo/username", json!(user));
        with(review, "/request/options/fieldManager", json!(manager))
    };
    let (keeps, gives) = (
        "quorumgate-keeps-on-delete",
        "quorumgate-gives-strategy-back",
    );
    let review = by(touched.clone(), OWN_USERNAME, gives);
    let object = patched(&review, &switched(true).post(PATH, &review).await);
    assert!(strategy(&object).1.is_null(), "{object}");
    let review = by(fixture("statefulset-create"), OWN_USERNAME, keeps);
    let object = patched(&review, &switched(false).post(PATH, &review).await);
    assert_eq!(strategy(&object).1, DESIRED);
    // Every client can choose that field manager.
    let review = by(touched, "kubernetes-admin", gives);
    let reply = switched(true).post(PATH, &review).await;
    assert!(reply.response().get("patch").is_none());
}

#[tokio::test]
async fn a_budget_enrols_where_no_label_does() {
    let unlabelled = with(fixture("statefulset-create"), LABELS, json!({}));
    let reply = switched(true).post(PATH, &unlabelled).await;
    assert!(reply.is_allowed() && reply.response().get("patch").is_none());
    let door = Door::new(World {
        enrolled: ["shoot/etcd-main".to_owned()].into(),
        ..world(true)
    });
    let object = patched(&unlabelled, &door.post(PATH, &unlabelled).await);
    assert_eq!(strategy(&object).0, &json!({"type": "OnDelete"}));
}

#[tokio::test]
async fn what_cannot_be_found_out_stands_in_nobodys_way() {
    let door = Door::new(World {
        enrolment_fails: true,
        ..world(true)
    });
    let unlabelled = with(fixture("statefulset-create"), LABELS, json!({}));
    let reply = door.post(PATH, &unlabelled).await;
    assert!(reply.is_allowed() && reply.response().get("patch").is_none());
    // The strategy stays kept, since the StatefulSet was enrolled before.
    let update = with(update(), LABELS, json!({}));
    let object = patched(&update, &door.post(PATH, &update).await);
    assert_eq!(
        strategy(&object),
        (&json!({"type": "OnDelete"}), &json!(DESIRED))
    );
}

#[tokio::test]
async fn what_is_enrolled_no_more_gets_its_own_strategy_back() {
    let touched = update();
    let old = touched["request"]["oldObject"].clone();
    let touched = with(with(touched, "/request/object", old), LABELS, json!({}));
    let object = patched(&touched, &switched(true).post(PATH, &touched).await);
    assert_eq!(
        strategy(&object),
        (
            &serde_json::from_str::<Value>(EARLIER).unwrap(),
            &Value::Null
        )
    );
}
