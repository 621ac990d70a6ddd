use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{budget_json, pod, pod_json, set_json};
use crate::clock::Clock;
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::SET;
use crate::ledger::LedgerError;
use crate::observe::{Identity, Observer, SetSeen, Sights};
use crate::quorum::ClusterRef;

const BUDGETS: &str = "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets";

fn observer(api: &FakeApi) -> Observer {
    let (clock, _) = Clock::frozen(Timestamp::UNIX_EPOCH);
    api.observer(&clock, Duration::from_secs(120))
}

async fn identify(api: &FakeApi, change: &Value) -> Identity {
    let pod = pod(change);
    observer(api)
        .identify("db", &"etcd-0".into(), Some(&pod.metadata))
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
    let Identity::Guarded(page) = identify(&api, &json!({})).await else {
        panic!("not guarded");
    };
    assert_eq!(page.cluster, ClusterRef::new("db", "etcd"));
    assert_eq!(api.take_requests().len(), 1);
}

/// An eviction does not show its pod.
#[tokio::test]
async fn rule_1_a_member_that_is_not_shown_is_known_by_its_name() {
    let api = FakeApi::default();
    api.put(&format!("{BUDGETS}/etcd"), budget_json(&json!({})));
    api.put(SET, set_json(&json!({})));
    let owned = json!({"metadata": {"name": "member", "labels": Value::Null}});
    api.put("/api/v1/namespaces/db/pods/member", pod_json(0, &owned));
    let asked = async |pod: &str| {
        let identity = observer(&api).identify("db", &pod.into(), None).await;
        (identity.unwrap(), api.take_requests())
    };
    let (identity, requests) = asked("etcd-7").await;
    assert!(matches!(identity, Identity::Guarded(_)), "{identity:?}");
    assert_eq!(requests.len(), 1, "{requests:?}");
    // A StatefulSet gives no such name, whatever the pod's owner says. The match conditions of the
    // webhooks leave it out as well.
    let (identity, requests) = asked("member").await;
    assert!(matches!(identity, Identity::Foreign), "{identity:?}");
    assert!(requests.is_empty(), "{requests:?}");
    // A number that is no ordinal passes the match conditions: the pod's owner counts.
    let odd = json!({"metadata": {"name": "etcd-007", "labels": Value::Null}});
    api.put("/api/v1/namespaces/db/pods/etcd-007", pod_json(0, &odd));
    let (identity, _) = asked("etcd-007").await;
    assert!(matches!(identity, Identity::Guarded(_)), "{identity:?}");
    let (identity, _) = asked("web-99999999999").await;
    assert!(matches!(identity, Identity::NoSuchPod), "{identity:?}");
    let (identity, requests) = asked("web-0").await;
    assert!(matches!(identity, Identity::NoSuchPod), "{identity:?}");
    // The budget, and then the pod and the StatefulSet at once.
    assert_eq!(requests.len(), 3, "{requests:?}");
}

#[tokio::test]
async fn rule_1_pods_of_jobs_and_deployments_are_foreign_at_no_cost() {
    let api = FakeApi::default();
    for kind in ["Job", "ReplicaSet", "DaemonSet"] {
        let owner = json!({"apiVersion": "batch/v1", "kind": kind, "name": "x", "uid": "x", "controller": true});
        let pod = json!({"metadata": {"name": "etcd-x7k2p", "ownerReferences": [owner]}});
        let identity = identify(&api, &pod).await;
        assert!(matches!(identity, Identity::Foreign), "{identity:?}");
    }
    assert_eq!(api.take_requests(), Vec::<String>::new());
}

#[tokio::test]
async fn rule_1_a_member_stays_one_whoever_is_made_its_owner() {
    let api = FakeApi::default();
    api.put(&format!("{BUDGETS}/etcd"), budget_json(&json!({})));
    for api_version in ["batch/v1", "apps.kruise.io/v1beta1", "apps/v1"] {
        let owner = json!({"apiVersion": api_version, "kind": "StatefulSet", "name": "x", "uid": "x", "controller": true});
        let identity = identify(&api, &json!({"metadata": {"ownerReferences": [owner]}})).await;
        assert!(matches!(identity, Identity::Guarded(_)), "{identity:?}");
    }
}

#[tokio::test]
async fn rule_1_a_pod_of_another_stateful_set_is_foreign_for_two_readings() {
    let api = FakeApi::default();
    api.put(SET, set_json(&json!({})));
    let identity = identify(&api, &json!({})).await;
    assert!(matches!(identity, Identity::Foreign), "{identity:?}");
    assert_eq!(api.take_requests().len(), 2);
}

/// Watches that show this of every StatefulSet, and whether pods are etcd-druid's.
fn seeing(api: &FakeApi, set: Option<SetSeen>, is_druids: Option<bool>) -> Observer {
    let observer = observer(api);
    observer.see_by(Sights {
        is_gated: Box::new(|_| None),
        set: Box::new(move |_| set),
        is_druids: Box::new(move |_, _| is_druids),
    });
    observer
}

#[tokio::test]
async fn a_pod_that_watches_show_to_be_foreign_costs_one_reading() {
    let api = FakeApi::default();
    let shown = pod(&json!({}));
    for seen in [SetSeen::Missing, SetSeen::Plain, SetSeen::OptedOut] {
        for shown in [None, Some(&shown.metadata)] {
            let observer = seeing(&api, Some(seen), Some(false));
            let identity = observer.identify("db", &"etcd-0".into(), shown).await;
            let identity = identity.unwrap();
            assert!(matches!(identity, Identity::Foreign), "{identity:?}");
            let requests = api.take_requests();
            assert_eq!(requests, [format!("GET {BUDGETS}/etcd")], "{seen:?}");
        }
    }
}

#[tokio::test]
async fn what_watches_cannot_tell_or_show_enrolled_is_read() {
    let api = FakeApi::default();
    let labels = json!({"metadata": {"labels": {"quorumgate.io/enroll": "true"}}});
    api.put(SET, set_json(&labels));
    api.put("/api/v1/namespaces/db/pods/etcd-0", pod_json(0, &json!({})));
    let shown = pod(&json!({}));
    for (set, is_druids, shown) in [
        (None, Some(false), Some(&shown.metadata)),
        (None, Some(false), None),
        (Some(SetSeen::Enrolled), Some(false), None),
        (Some(SetSeen::Enrolled), Some(false), Some(&shown.metadata)),
        (Some(SetSeen::Plain), None, None),
        (Some(SetSeen::Missing), Some(true), None),
    ] {
        let observer = seeing(&api, set, is_druids);
        let identity = observer.identify("db", &"etcd-0".into(), shown).await;
        let identity = identity.unwrap();
        let is_unrecorded = matches!(identity, Identity::Unrecorded(_, None));
        assert!(is_unrecorded, "{set:?} {is_druids:?}: {identity:?}");
    }
}

/// A watch may be behind the budget.
#[tokio::test]
async fn a_budget_counts_whatever_watches_show() {
    let api = FakeApi::default();
    api.put(&format!("{BUDGETS}/etcd"), budget_json(&json!({})));
    let observer = seeing(&api, Some(SetSeen::Missing), Some(false));
    let identity = observer
        .identify("db", &"etcd-0".into(), None)
        .await
        .unwrap();
    assert!(matches!(identity, Identity::Guarded(_)), "{identity:?}");
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
        let Identity::Unrecorded(cluster, None) = identity else {
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
        assert!(
            matches!(
                identity,
                Identity::Unrecorded(_, Some(LedgerError::NoDefinition))
            ),
            "{identity:?}"
        );
    }
}

#[tokio::test]
async fn rule_1_an_orphan_belongs_by_its_name_whatever_its_labels_say_by_now() {
    let api = FakeApi::default();
    let budget = budget_json(&json!({"status": {"selector": "app=etcd"}}));
    api.put(&format!("{BUDGETS}/etcd"), budget);
    for labels in [json!({"app": "etcd"}), json!({"app": "other"}), Value::Null] {
        let orphan = json!({"metadata": {"ownerReferences": null, "labels": labels}});
        let identity = identify(&api, &orphan).await;
        assert!(matches!(identity, Identity::Guarded(_)), "{identity:?}");
    }
}

#[tokio::test]
async fn rule_1_a_bare_pod_with_the_members_labels_and_a_name_of_its_own_is_foreign() {
    let api = FakeApi::default();
    api.put(
        &format!("{BUDGETS}/etcd"),
        budget_json(&json!({"status": {"selector": "app=etcd"}})),
    );
    for name in ["tool", "tool-0", "etcd-main-0"] {
        let bare = json!({"metadata": {"name": name, "ownerReferences": null}});
        let identity = identify(&api, &bare).await;
        assert!(
            matches!(identity, Identity::Foreign),
            "{name}: {identity:?}"
        );
    }
}

#[tokio::test]
async fn rule_1_a_budget_that_cannot_be_read_is_no_reason_to_think_a_pod_foreign() {
    let api = FakeApi::default();
    let grants = json!([{"member": "etcd-0", "causes": [{"type": "FromTheFuture", "seq": 1}]}]);
    api.put(
        &format!("{BUDGETS}/etcd"),
        budget_json(&json!({"status": {"grants": grants}})),
    );
    let identity = identify(&api, &json!({})).await;
    let Identity::Unrecorded(_, Some(error)) = identity else {
        panic!("{identity:?}");
    };
    let what = error.to_string();
    assert!(what.contains("cannot be read as a ledger"), "{what}");
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
