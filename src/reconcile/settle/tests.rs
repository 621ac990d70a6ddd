use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::clock::{Clock, Hands};
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{BUDGET, budget_json, pod_json};
use crate::ledger::Witness;
use crate::quorum::{ClusterRef, Permitted};

const SETTLE: Duration = Duration::from_secs(120);
const POD: &str = "/api/v1/namespaces/db/pods/etcd-0";

async fn ledger() -> (FakeApi, Ledger, Hands, Page) {
    let api = FakeApi::default();
    api.put(BUDGET, budget_json(&json!({})));
    api.put(POD, pod_json(0, &json!({})));
    let (clock, hands) = Clock::frozen(Timestamp::UNIX_EPOCH);
    let ledger = Ledger::new(api.client(), clock);
    let page = ledger.read(&ClusterRef::new("db", "etcd")).await;
    (api, ledger, hands, page.unwrap().unwrap())
}

/// The same, with the delete of `etcd-0` permitted.
async fn granted() -> (FakeApi, Ledger, Hands, Page) {
    let (api, ledger, hands, page) = ledger().await;
    let delete = Permitted::Delete {
        uid: "u0".into(),
        rollout: false,
    };
    let grants = page
        .grants
        .issue(&"etcd-0".into(), delete, "anna".into(), "noon".into());
    let (page, _) = ledger
        .record(&page, &grants, Witness::default())
        .await
        .unwrap();
    (api, ledger, hands, page)
}

#[tokio::test]
async fn a_ledger_without_grants_is_looked_at_without_asking_for_any_pod() {
    let (api, ledger, _, page) = ledger().await;
    api.take_requests();
    let (_, next) = step(&ledger, page, SETTLE).await.unwrap();
    assert_eq!((next, api.take_requests()), (None, Vec::new()));
}

#[tokio::test]
async fn an_open_grant_is_looked_at_again_when_it_may_end_by_its_age() {
    let (_, ledger, hands, page) = granted().await;
    let (page, next) = step(&ledger, page, SETTLE).await.unwrap();
    assert_eq!(next, Some(SETTLE));
    hands.advance(Duration::from_secs(50));
    let (_, next) = step(&ledger, page, SETTLE).await.unwrap();
    assert_eq!(next, Some(Duration::from_secs(70)));
}

#[tokio::test]
async fn a_pod_that_terminates_for_long_is_looked_at_again_and_again() {
    let (api, ledger, hands, page) = granted().await;
    let going = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:01Z"}});
    api.put(POD, pod_json(0, &going));
    hands.advance(SETTLE * 10);
    let (page, next) = step(&ledger, page, SETTLE).await.unwrap();
    assert!(page.grants.holds(&"etcd-0".into()));
    assert_eq!(next, Some(WHILE_TERMINATING));
}

#[tokio::test]
async fn what_ended_is_taken_back_and_leaves_nothing_to_wait_for() {
    let (api, ledger, _, page) = granted().await;
    api.remove(POD);
    let (page, next) = step(&ledger, page, SETTLE).await.unwrap();
    assert!(!page.grants.holds(&"etcd-0".into()));
    assert_eq!(next, None);
}
