use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::{SETTLE, cluster, ledger_with, put_budget, read};
use crate::api::ScaleOutStatus;
use crate::ledger::{Page, temperature};
use crate::quorum::Temperature;

fn remaining(seconds: u64) -> Temperature {
    Temperature::Cold {
        remaining: Some(Duration::from_secs(seconds)),
    }
}

fn of(ledger: &crate::ledger::Ledger, page: &Page) -> Temperature {
    temperature(page, ledger.seen(), SETTLE)
}

#[tokio::test]
async fn rule_9_a_new_ledger_is_cold_until_it_was_seen_for_a_settle_time() {
    let (_, ledger, hands) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    assert_eq!(of(&ledger, &page), remaining(120));
    hands.advance(Duration::from_secs(119));
    assert_eq!(of(&ledger, &read(&ledger).await), remaining(1));
    hands.advance(Duration::from_secs(1));
    assert_eq!(of(&ledger, &read(&ledger).await), Temperature::Warm);
}

#[tokio::test]
async fn a_ledger_that_was_written_warm_is_warm_for_a_replica_that_never_saw_it() {
    let (_, ledger, _) = ledger_with(&json!({"ledger": {"warm": true, "budgetUID": "uid-a"}}));
    assert_eq!(of(&ledger, &read(&ledger).await), Temperature::Warm);
}

#[tokio::test]
async fn a_status_copied_from_another_budget_warms_nothing() {
    let (_, ledger, _) = ledger_with(&json!({"ledger": {"warm": true, "budgetUID": "uid-z"}}));
    assert_eq!(of(&ledger, &read(&ledger).await), remaining(120));
}

#[tokio::test]
async fn a_recreated_budget_is_watched_anew() {
    let (api, ledger, hands) = ledger_with(&json!({}));
    read(&ledger).await;
    hands.advance(SETTLE);
    put_budget(&api, "uid-b", &json!({}));
    assert_eq!(of(&ledger, &read(&ledger).await), remaining(120));
}

#[tokio::test]
async fn a_ledger_that_turned_cold_is_watched_anew_and_says_why() {
    let (_, ledger, hands) = ledger_with(&json!({}));
    let page = ledger.warm(&read(&ledger).await).await.unwrap().unwrap();
    hands.advance(SETTLE * 2);
    let cold = ledger
        .cool(&page, "the namespace label was missing")
        .await
        .unwrap();
    assert_eq!(of(&ledger, &cold), remaining(120));
    let status = cold.status().unwrap();
    assert_eq!(
        status.ledger.cold_because.as_deref(),
        Some("the namespace label was missing")
    );
    hands.advance(SETTLE);
    let page = read(&ledger).await;
    assert_eq!(of(&ledger, &page), Temperature::Warm);
    let warm = ledger.warm(&page).await.unwrap().unwrap();
    assert_eq!(warm.status().unwrap().ledger.cold_because, None);
}

#[tokio::test]
async fn turning_cold_again_while_cold_begins_anew() {
    let (_, ledger, hands) = ledger_with(&json!({}));
    let page = ledger.cool(&read(&ledger).await, "once").await.unwrap();
    hands.advance(Duration::from_secs(100));
    let page = ledger.cool(&page, "twice").await.unwrap();
    assert_eq!(of(&ledger, &page), remaining(120));
}

#[tokio::test]
async fn a_budget_that_was_gone_in_between_is_watched_anew() {
    let (api, ledger, hands) = ledger_with(&json!({}));
    read(&ledger).await;
    hands.advance(SETTLE);
    api.remove(super::BUDGET);
    assert!(ledger.read(&cluster()).await.unwrap().is_none());
    put_budget(&api, "uid-a", &json!({}));
    assert_eq!(of(&ledger, &read(&ledger).await), remaining(120));
}

#[tokio::test]
async fn a_scale_out_is_timed_by_what_this_replica_saw_of_it() {
    let (_, ledger, hands) = ledger_with(&json!({"scaleOut": {"to": 5}}));
    let page = read(&ledger).await;
    hands.advance(Duration::from_secs(60));
    let page_again = read(&ledger).await;
    let seen = |to| ledger.seen().scale_out_for(&cluster(), &page.uid, to);
    assert_eq!(seen(5), Duration::from_secs(60));
    assert_eq!(seen(7), Duration::ZERO);
    let grown = |status: &mut crate::api::QuorumDisruptionBudgetStatus| {
        status.scale_out = Some(ScaleOutStatus {
            to: 7,
            settled: false,
        });
    };
    ledger.write_status(&page_again, grown).await.unwrap();
    assert_eq!(seen(7), Duration::ZERO, "another scale-out, another time");
}

#[tokio::test]
async fn webhooks_that_were_made_anew_while_nobody_looked_make_it_cold_before_anybody_writes_so() {
    let status = json!({"ledger": {"warm": true, "budgetUID": "uid-a", "inForceBy": "v,m"}});
    for (now, expected) in [
        (None, Temperature::Cold { remaining: None }),
        (Some("v,m"), Temperature::Warm),
        (Some("v,m2"), Temperature::Cold { remaining: None }),
    ] {
        let (_, ledger, _) = ledger_with(&status);
        ledger
            .seen()
            .hear_of_webhooks(Box::new(move || now.map(str::to_owned)));
        assert_eq!(of(&ledger, &read(&ledger).await), expected);
    }
}

#[tokio::test]
async fn a_new_generation_of_the_webhooks_makes_it_cold_unless_each_was_seen_in_force() {
    let status = json!({"ledger": {"warm": true, "budgetUID": "uid-a", "inForceBy": "v@5,m@3"}});
    let (followed, missed) = (["v@5,m@3", "v@6,m@3", "v@7,m@3"], ["v@7,m@3"; 3]);
    for (shown, stays_warm) in [(followed, true), (missed, false)] {
        let (_, ledger, _) = ledger_with(&status);
        let now = Arc::new(Mutex::new(""));
        let tells = Arc::clone(&now);
        let tell = move || Some(tells.lock().unwrap().to_string());
        ledger.seen().hear_of_webhooks(Box::new(tell));
        for generation in shown {
            *now.lock().unwrap() = generation;
            ledger.seen().note_webhooks();
        }
        let page = read(&ledger).await;
        assert_eq!(of(&ledger, &page) == Temperature::Warm, stays_warm);
        let page = ledger.in_force(&page, shown[2]).await.unwrap().unwrap();
        let written = &page.status().unwrap().ledger;
        assert_eq!(written.in_force_by.as_deref(), Some(shown[2]));
        assert_eq!(written.warm, stays_warm);
        assert_eq!(of(&ledger, &page) == Temperature::Warm, stays_warm);
    }
}

#[tokio::test]
async fn a_namespace_that_is_gated_again_makes_it_cold_for_a_settle_time_from_then() {
    let status = json!({"ledger": {"warm": true, "budgetUID": "uid-a"}});
    let (_, ledger, hands) = ledger_with(&status);
    let page = read(&ledger).await;
    let namespace = cluster().namespace;
    ledger.seen().note_end_of_lapse(&namespace);
    assert_eq!(of(&ledger, &page), Temperature::Warm, "nothing ended");
    ledger.seen().note_lapse(Some(&namespace));
    // Nobody could write it down for that long.
    hands.advance(SETTLE * 2);
    let page = read(&ledger).await;
    ledger.seen().note_end_of_lapse(&namespace);
    let cold = Temperature::Cold { remaining: None };
    assert_eq!(of(&ledger, &page), cold);
    hands.advance(SETTLE.saturating_sub(Duration::from_secs(1)));
    // Another event of the namespace ends nothing.
    ledger.seen().note_end_of_lapse(&namespace);
    assert_eq!(of(&ledger, &page), cold);
    hands.advance(Duration::from_secs(1));
    assert_eq!(of(&ledger, &page), Temperature::Warm);
}

#[tokio::test]
async fn an_outage_makes_it_cold_before_anybody_has_written_so_and_for_a_settle_time() {
    let status = json!({"ledger": {"warm": true, "budgetUID": "uid-a", "inForceBy": "v,m"}});
    let cold = Temperature::Cold { remaining: None };
    for (namespace, expected) in [
        (Some(cluster().namespace), cold),
        (None, cold),
        (Some("another".to_owned()), Temperature::Warm),
    ] {
        let (_, ledger, hands) = ledger_with(&status);
        let page = read(&ledger).await;
        assert_eq!(of(&ledger, &page), Temperature::Warm);
        ledger.seen().note_lapse(namespace.as_deref());
        assert_eq!(of(&ledger, &page), expected, "{namespace:?}");
        hands.advance(SETTLE.saturating_sub(Duration::from_secs(1)));
        // Another reading is no reason to forget it.
        assert_eq!(of(&ledger, &read(&ledger).await), expected, "{namespace:?}");
        hands.advance(Duration::from_secs(1));
        assert_eq!(of(&ledger, &page), Temperature::Warm, "{namespace:?}");
    }
}

#[tokio::test]
async fn an_outage_of_an_earlier_budget_says_nothing_of_the_next() {
    let status = json!({"ledger": {"warm": true, "budgetUID": "uid-b"}});
    let (api, ledger, _) = ledger_with(&json!({}));
    read(&ledger).await;
    ledger.seen().note_lapse(None);
    put_budget(&api, "uid-b", &status);
    assert_eq!(of(&ledger, &read(&ledger).await), Temperature::Warm);
}
