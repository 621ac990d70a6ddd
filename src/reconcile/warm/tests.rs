use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{BUDGET, budget_json};
use crate::quorum::ClusterRef;

const BY: &str = "one,other";

/// A warm ledger that was in force by [`BY`], with `change` laid over its status.
async fn ledger(change: &Value) -> (FakeApi, Ledger, Page) {
    let api = FakeApi::default();
    let mut status =
        json!({"ledger": {"warm": true, "budgetUID": "budget-1", "inForceBy": BY, "epoch": 3}});
    json_patch::merge(&mut status, change);
    api.put(BUDGET, budget_json(&json!({"status": status})));
    let ledger = Ledger::new(api.client(), Clock::frozen(Timestamp::UNIX_EPOCH).0);
    let page = ledger.read(&ClusterRef::new("db", "etcd")).await;
    (api, ledger, page.unwrap().unwrap())
}

/// In force by these webhook configurations, or not at all.
fn force(by: Option<&str>) -> Result<String, OutOfForce> {
    by.map(str::to_owned).ok_or(OutOfForce::NotGated)
}

#[tokio::test]
async fn nothing_is_written_of_a_gate_that_goes_on_being_in_force() {
    let (api, ledger, page) = ledger(&json!({})).await;
    api.take_requests();
    assert!(is_settled(&page, &force(Some(BY))));
    let page = note_force(&ledger, page, &force(Some(BY)), None)
        .await
        .unwrap();
    assert!(is_warm(&page));
    assert!(api.take_requests().is_empty());
}

#[tokio::test]
async fn a_gate_out_of_force_suspends_its_ledger_once() {
    let (api, ledger, page) = ledger(&json!({})).await;
    let out = force(None);
    assert!(!is_settled(&page, &out));
    let page = note_force(&ledger, page, &out, None).await.unwrap();
    assert!(is_settled(&page, &out) && !is_warm(&page));
    api.take_requests();
    note_force(&ledger, page, &out, None).await.unwrap();
    assert!(api.take_requests().is_empty());
}

#[tokio::test]
async fn a_lapse_that_is_over_already_leaves_the_ledger_cold_and_in_force() {
    let (_, ledger, page) = ledger(&json!({})).await;
    let lapse = OutOfForce::NotGated;
    let page = note_force(&ledger, page, &force(Some(BY)), Some(&lapse))
        .await
        .unwrap();
    let written = &page.status().unwrap().ledger;
    assert!(!written.warm && !written.suspended && written.epoch > 3);
    assert!(
        !is_settled(&page, &force(Some(BY))),
        "it has to be watched anew"
    );
}

#[tokio::test]
async fn webhook_configurations_that_were_made_anew_leave_the_ledger_cold() {
    let (_, ledger, page) = ledger(&json!({})).await;
    let others = force(Some("one,another"));
    assert!(!is_settled(&page, &others));
    let page = note_force(&ledger, page, &others, None).await.unwrap();
    assert!(!is_warm(&page));
}

#[tokio::test]
async fn a_warmth_copied_from_another_budget_is_none() {
    let (_, _, page) = ledger(&json!({"ledger": {"budgetUID": "budget-2"}})).await;
    assert!(!is_warm(&page) && !is_settled(&page, &force(Some(BY))));
}

#[tokio::test]
async fn a_cold_ledger_says_when_to_look_again_and_a_warm_one_is_written_down() {
    let (api, ledger, page) = ledger(&json!({"ledger": {"warm": false}})).await;
    let left = Duration::from_secs(17);
    let cold = Temperature::Cold {
        remaining: Some(left),
    };
    let next = note_temperature(&ledger, &page, cold).await.unwrap();
    assert_eq!(next, Some(left));
    let next = note_temperature(&ledger, &page, Temperature::Warm).await;
    assert_eq!(next.unwrap(), None);
    assert_eq!(
        api.get(BUDGET).unwrap()["status"]["ledger"]["warm"],
        json!(true)
    );
}
