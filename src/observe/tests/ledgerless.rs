use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{pod_json, set_json};
use crate::clock::Clock;
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{NAMESPACE, SET};
use crate::observe::Ledgerless;
use crate::quorum::pod::Node;
use crate::quorum::{ClusterRef, OverrideOn, Teardown};

const POD: &str = "/api/v1/namespaces/db/pods/etcd-0";

/// The reading of `etcd-0` in a namespace where budgets are not defined.
async fn seen(pod: &Value, set: Option<&Value>, settle_time: Duration) -> Ledgerless {
    let api = FakeApi::default();
    api.undefine("quorumdisruptionbudgets");
    api.put(NAMESPACE, json!({"metadata": {"name": "db"}}));
    api.put(POD, pod_json(0, pod));
    if let Some(set) = set {
        api.put(SET, set_json(set));
    }
    let (clock, _) = Clock::frozen(Timestamp::UNIX_EPOCH);
    let observer = api.observer(&clock, settle_time);
    let cluster = ClusterRef::new("db", "etcd");
    let found = observer
        .without_ledger(&cluster, &"etcd-0".into(), None)
        .await;
    found.unwrap().unwrap()
}

const LONG: Duration = Duration::from_secs(120);

#[tokio::test]
async fn a_cluster_that_lives_is_not_torn_down() {
    let alive = seen(&json!({}), Some(&json!({})), LONG).await;
    assert_eq!(alive.circumstances.teardown, None);
    assert_eq!(alive.circumstances.valid_override, None);
    assert_eq!(alive.pod.node, Node::Gone);
    assert!(!alive.goes_at_once);
}

#[tokio::test]
async fn rule_3_holds_without_a_ledger() {
    let deleted = json!({"metadata": {"deletionTimestamp": "1969-12-31T23:58:00Z"}});
    let going = seen(&json!({}), Some(&deleted), LONG).await;
    assert_eq!(going.circumstances.teardown, Some(Teardown::StatefulSet));
    // The owner of a lost StatefulSet is not recorded. So the StatefulSet has to be gone for a
    // settle time.
    let just_gone = seen(&json!({}), None, LONG).await;
    assert_eq!(just_gone.circumstances.teardown, None);
    let long_gone = seen(&json!({}), None, Duration::ZERO).await;
    assert_eq!(
        long_gone.circumstances.teardown,
        Some(Teardown::StatefulSet)
    );
}

#[tokio::test]
async fn rule_6_holds_without_a_ledger() {
    let overridden = json!({"metadata": {"annotations": {
        "quorumgate.io/override-until": "1970-01-01T01:00:00Z",
    }}});
    let on_pod = seen(&overridden, Some(&json!({})), LONG).await;
    assert_eq!(
        on_pod.circumstances.valid_override.unwrap().on,
        OverrideOn::Pod
    );
    let on_set = seen(&json!({}), Some(&overridden), LONG).await;
    assert_eq!(
        on_set.circumstances.valid_override.unwrap().on,
        OverrideOn::StatefulSet
    );
}

#[tokio::test]
async fn a_pod_that_asks_for_no_grace_or_has_ended_goes_at_once() {
    let none = json!({"spec": {"terminationGracePeriodSeconds": 0}});
    assert!(seen(&none, None, LONG).await.goes_at_once);
    let failed = json!({"status": {"phase": "Failed"}});
    assert!(seen(&failed, None, LONG).await.goes_at_once);
    let unbound = json!({"spec": {"nodeName": null, "terminationGracePeriodSeconds": 0}});
    assert!(!seen(&unbound, None, LONG).await.goes_at_once);
}
