use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::clock::{Clock, ClockHand};
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{BUDGET, budget_json, pod_json};
use crate::ledger::StatusUpdate;
use crate::quorum::GrantKind;
use crate::telemetry::metrics::Metrics;

const SETTLE: Duration = Duration::from_secs(120);
const POD: &str = "/api/v1/namespaces/db/pods/etcd-0";
const BY: &str = "one,other";

/// A ledger with this status, and the pod `etcd-0`.
async fn ledger_with(status: &Value) -> (FakeApi, Ledger, ClockHand, Page) {
    let api = FakeApi::default();
    api.put(BUDGET, budget_json(&json!({"status": status})));
    api.put(POD, pod_json(0, &json!({})));
    let (clock, hand) = Clock::frozen(Timestamp::UNIX_EPOCH);
    let ledger = Ledger::new(api.client(), clock);
    let page = ledger.read(&ClusterRef::new("db", "etcd")).await;
    (api, ledger, hand, page.unwrap().unwrap())
}

/// A trusted ledger that was in force by [`BY`], with `change` laid over its status.
async fn trusted(change: &Value) -> (FakeApi, Ledger, Page) {
    let mut status =
        json!({"ledger": {"trusted": true, "budgetUID": "budget-1", "inForceBy": BY, "epoch": 3}});
    json_patch::merge(&mut status, change);
    let (api, ledger, _, page) = ledger_with(&status).await;
    (api, ledger, page)
}

#[tokio::test]
async fn whoever_queues_at_a_busy_ledger_keeps_nobody_from_reading_another() {
    let (reading, locks) = (Turns::new(1, 1), LedgerLocks::default());
    let busy = ClusterRef::new("db", "busy");
    let free = ClusterRef::new("other", "free");
    let judged = locks.enter(&busy).await;
    let mut queues = pin!(pass(&reading, &locks, &busy));
    assert!(
        queues.as_mut().now_or_never().is_none(),
        "it jumps the queue"
    );
    let reads = pass(&reading, &locks, &free).now_or_never();
    let reads = reads.expect("the other cluster waits as well");
    assert_eq!(reading.left(), 0, "what is read is not counted");

    // Those who are judged next wait for this turn to end, so that waits for no permit.
    drop(judged);
    let passed = queues.as_mut().now_or_never();
    let passed = passed.expect("it waits for a permit in front of judgements");
    assert_eq!(locks.pending(&busy), 1);
    drop((passed, reads));
    assert_eq!(reading.left(), 1);
}

/// The same, with the delete of `etcd-0` permitted.
async fn granted() -> (FakeApi, Ledger, ClockHand, Page) {
    let (api, ledger, hand, page) = ledger_with(&json!({})).await;
    let delete = GrantKind::Delete {
        uid: "u0".into(),
        rollout: false,
    };
    let grants = page
        .grants
        .issue(&"etcd-0".into(), delete, "anna".into(), "noon".into());
    let (page, _) = ledger
        .record(&page, &grants, StatusUpdate::default())
        .await
        .unwrap();
    (api, ledger, hand, page)
}

#[tokio::test]
async fn a_ledger_without_grants_is_looked_at_without_asking_for_any_pod() {
    let (api, ledger, _, page) = ledger_with(&json!({})).await;
    api.take_requests();
    let (_, next) = settle::deletes(&ledger, &Metrics::new(), page, SETTLE)
        .await
        .unwrap();
    assert_eq!((next, api.take_requests()), (None, Vec::new()));
}

#[tokio::test]
async fn an_open_grant_is_looked_at_again_when_it_may_end_by_its_age() {
    let (_, ledger, hand, page) = granted().await;
    let (page, next) = settle::deletes(&ledger, &Metrics::new(), page, SETTLE)
        .await
        .unwrap();
    assert_eq!(next, Some(SETTLE));
    hand.advance(Duration::from_secs(50));
    let (_, next) = settle::deletes(&ledger, &Metrics::new(), page, SETTLE)
        .await
        .unwrap();
    assert_eq!(next, Some(Duration::from_secs(70)));
}

#[tokio::test]
async fn a_pod_that_terminates_for_long_is_looked_at_again_and_again() {
    let (api, ledger, hand, page) = granted().await;
    let going = json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:01Z"}});
    api.put(POD, pod_json(0, &going));
    hand.advance(SETTLE * 10);
    let (page, next) = settle::deletes(&ledger, &Metrics::new(), page, SETTLE)
        .await
        .unwrap();
    assert!(page.grants.holds(&"etcd-0".into()));
    assert_eq!(next, Some(settle::WHILE_TERMINATING));
}

#[tokio::test]
async fn what_ended_is_taken_back_and_leaves_nothing_to_wait_for() {
    let (api, ledger, _, page) = granted().await;
    api.remove(POD);
    let (page, next) = settle::deletes(&ledger, &Metrics::new(), page, SETTLE)
        .await
        .unwrap();
    assert!(!page.grants.holds(&"etcd-0".into()));
    assert_eq!(next, None);
}

/// In force by these webhook configurations, or not at all.
fn force(by: Option<&str>) -> Result<String, OutOfForce> {
    by.map(str::to_owned).ok_or(OutOfForce::NotGated)
}

fn is_settled(page: &Page, force: &Result<String, OutOfForce>) -> bool {
    page.trust_record().is_settled(force.as_deref().ok())
}

#[tokio::test]
async fn nothing_is_written_of_a_gate_that_goes_on_being_in_force() {
    let (api, ledger, page) = trusted(&json!({})).await;
    api.take_requests();
    assert!(is_settled(&page, &force(Some(BY))));
    let page = note_force(&ledger, page, &force(Some(BY)), None)
        .await
        .unwrap();
    assert!(page.trust_record().is_trusted());
    assert!(api.take_requests().is_empty());
}

#[tokio::test]
async fn a_gate_out_of_force_suspends_its_ledger_once() {
    let (api, ledger, page) = trusted(&json!({})).await;
    let out = force(None);
    assert!(!is_settled(&page, &out));
    let page = note_force(&ledger, page, &out, None).await.unwrap();
    assert!(is_settled(&page, &out) && !page.trust_record().is_trusted());
    api.take_requests();
    note_force(&ledger, page, &out, None).await.unwrap();
    assert!(api.take_requests().is_empty());
}

#[tokio::test]
async fn an_outage_that_is_over_already_leaves_the_ledger_untrusted_and_in_force() {
    let (_, ledger, page) = trusted(&json!({})).await;
    let outage = OutOfForce::NotGated;
    let page = note_force(&ledger, page, &force(Some(BY)), Some(&outage))
        .await
        .unwrap();
    let written = &page.status().unwrap().ledger;
    assert!(!written.trusted && !written.suspended && written.epoch > 3);
    assert!(
        !is_settled(&page, &force(Some(BY))),
        "it has to be watched anew"
    );
}

#[tokio::test]
async fn webhook_configurations_that_were_made_anew_leave_the_ledger_untrusted() {
    let (_, ledger, page) = trusted(&json!({})).await;
    let others = force(Some("one,another"));
    assert!(!is_settled(&page, &others));
    let page = note_force(&ledger, page, &others, None).await.unwrap();
    assert!(!page.trust_record().is_trusted());
}

#[tokio::test]
async fn a_trust_copied_from_another_budget_is_none() {
    let (_, _, page) = trusted(&json!({"ledger": {"budgetUID": "budget-2"}})).await;
    assert!(!page.trust_record().is_trusted() && !is_settled(&page, &force(Some(BY))));
}

#[tokio::test]
async fn an_untrusted_ledger_says_when_to_look_again_and_trust_is_recorded() {
    let (api, ledger, hand, page) = ledger_with(&json!({})).await;
    let left = Duration::from_secs(17);
    hand.advance(SETTLE.saturating_sub(left));
    let next = note_watched(&ledger, &page, SETTLE).await.unwrap();
    assert_eq!(next, Some(left));
    hand.advance(left);
    let next = note_watched(&ledger, &page, SETTLE).await.unwrap();
    assert_eq!(next, None);
    assert_eq!(
        api.get(BUDGET).unwrap()["status"]["ledger"]["trusted"],
        json!(true)
    );
}
