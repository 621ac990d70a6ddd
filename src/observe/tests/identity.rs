use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{budget_json, pod, pod_json, set_json};
use crate::clock::Clock;
use crate::fake_api::FakeApi;
use crate::ledger::Ledger;
use crate::observe::{Identity, Observer};
use crate::quorum::ClusterRef;

const BUDGETS: &str = "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets";
const SET: &str = "/apis/apps/v1/namespaces/db/statefulsets/etcd";

fn observer(api: &FakeApi) -> Observer {
    let (clock, _) = Clock::frozen(Timestamp::UNIX_EPOCH);
    let ledger = Ledger::new(api.client(), clock.clone());
    Observer::new(api.client(), ledger, clock, Duration::from_secs(120))
}

async fn identify(api: &FakeApi, change: &Value) -> Identity {
    let pod = pod(change);
    observer(api)
        .identify("db", &"etcd-0".into(), Some(&pod))
        .await
        .unwrap()
}

fn orphan() -> Value {
    json!({"metadata": {"ownerReferences": null}})
}

#[tokio::test]
async fn rule_1_a_pod_of_a_cluster_with_a_budget_is_guarded() {
    let api = FakeApi::default();
    api.put(&format!("{BUDGETS}/etcd"), budget_json(&json!({})));
    let Identity::Guarded(found) = identify(&api, &json!({})).await else {
        panic!("not guarded");
    };
    assert_eq!(found.page.cluster, ClusterRef::new("db", "etcd"));
    assert_eq!(api.take_requests().len(), 1);
}

#[tokio::test]
async fn rule_1_pods_of_jobs_and_deployments_are_foreign_at_no_cost() {
    let api = FakeApi::default();
    for kind in ["Job", "ReplicaSet", "DaemonSet"] {
        let owner = json!({"apiVersion": "batch/v1", "kind": kind, "name": "x", "uid": "x", "controller": true});
        let identity = identify(&api, &json!({"metadata": {"ownerReferences": [owner]}})).await;
        assert!(matches!(identity, Identity::Foreign), "{identity:?}");
    }
    assert_eq!(api.take_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn rule_1_a_pod_of_another_stateful_set_is_foreign_for_two_readings() {
    let api = FakeApi::default();
    api.put(SET, set_json(&json!({})));
    let identity = identify(&api, &json!({})).await;
    assert!(matches!(identity, Identity::Foreign), "{identity:?}");
    assert_eq!(api.take_requests().len(), 2);
}

#[tokio::test]
async fn rule_1_enrolled_without_a_budget_has_no_ledger() {
    let druid = json!({
        "app.kubernetes.io/managed-by": "etcd-druid", "app.kubernetes.io/component": "etcd-statefulset",
    });
    for (set_labels, pod_labels) in [
        (json!({"quorumgate.io/enroll": "true"}), Value::Null),
        (druid.clone(), Value::Null),
        (Value::Null, druid),
    ] {
        let api = FakeApi::default();
        api.put(SET, set_json(&json!({"metadata": {"labels": set_labels}})));
        let identity = identify(&api, &json!({"metadata": {"labels": pod_labels}})).await;
        let Identity::NoLedger(cluster) = identity else {
            panic!("{set_labels} {identity:?}");
        };
        assert_eq!(cluster, ClusterRef::new("db", "etcd"));
    }
}

#[tokio::test]
async fn rule_1_labels_that_do_not_enrol() {
    for labels in [
        json!({"quorumgate.io/enroll": "false"}),
        json!({"app.kubernetes.io/managed-by": "etcd-druid"}),
        json!({"app.kubernetes.io/managed-by": "etcd-druid", "app.kubernetes.io/component": "etcd-snapshot-compaction-job"}),
    ] {
        let api = FakeApi::default();
        api.put(SET, set_json(&json!({"metadata": {"labels": labels}})));
        let identity = identify(&api, &json!({})).await;
        assert!(
            matches!(identity, Identity::Foreign),
            "{labels} {identity:?}"
        );
    }
}

#[tokio::test]
async fn rule_1_without_the_definition_nobody_can_say() {
    let api = FakeApi::default();
    api.undefine("quorumdisruptionbudgets");
    for change in [json!({}), orphan()] {
        let identity = identify(&api, &change).await;
        assert!(matches!(identity, Identity::NoDefinition), "{identity:?}");
    }
}

#[tokio::test]
async fn rule_1_an_orphan_belongs_where_a_recorded_selector_matches_it() {
    let api = FakeApi::default();
    let selecting = |name: &str, selector: &str| {
        let budget = budget_json(&json!({
            "metadata": {"name": name}, "spec": {"statefulSetName": name}, "status": {"selector": selector},
        }));
        api.put(&format!("{BUDGETS}/{name}"), budget);
    };
    selecting("etcd", "app=other");
    let identity = identify(&api, &orphan()).await;
    assert!(matches!(identity, Identity::Foreign), "{identity:?}");
    selecting("etcd", "app=etcd");
    let identity = identify(&api, &orphan()).await;
    assert!(matches!(identity, Identity::Guarded(_)), "{identity:?}");
    selecting("copy", "app in (db,etcd)");
    let Identity::Ambiguous(budgets) = identify(&api, &orphan()).await else {
        panic!("two selectors match");
    };
    assert_eq!(budgets.len(), 2);
}

#[tokio::test]
async fn rule_1_an_orphan_belongs_by_its_name_while_no_selector_is_recorded() {
    let api = FakeApi::default();
    api.put(&format!("{BUDGETS}/etcd"), budget_json(&json!({})));
    let identity = identify(&api, &orphan()).await;
    assert!(matches!(identity, Identity::Guarded(_)), "{identity:?}");
}

#[tokio::test]
async fn a_pod_that_no_request_showed_is_read() {
    let api = FakeApi::default();
    let observer = observer(&api);
    let missing = observer
        .identify("db", &"etcd-0".into(), None)
        .await
        .unwrap();
    assert!(matches!(missing, Identity::NoSuchPod), "{missing:?}");
    api.put("/api/v1/namespaces/db/pods/etcd-0", pod_json(0, &json!({})));
    api.put(&format!("{BUDGETS}/etcd"), budget_json(&json!({})));
    let found = observer
        .identify("db", &"etcd-0".into(), None)
        .await
        .unwrap();
    assert!(matches!(found, Identity::Guarded(_)), "{found:?}");
}
