use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use super::{SETTLE, cluster, ledger_with, put_budget, read};
use crate::api::ScaleOutStatus;
use crate::ledger::{Ledger, Page};
use crate::quorum::{Trust, TrustEvent};

const UNGRANTED: &[TrustEvent<'_>] = &[TrustEvent::Ungranted];
const WATCHED: &[TrustEvent<'_>] = &[TrustEvent::Watched];

/// The page after the events are recorded.
async fn after(ledger: &Ledger, page: &Page, events: &[TrustEvent<'_>]) -> Page {
    ledger.note_trust(page, events).await.unwrap().unwrap()
}

fn remaining(seconds: u64) -> Trust {
    Trust::Untrusted {
        remaining: Some(Duration::from_secs(seconds)),
    }
}

fn of(ledger: &Ledger, page: &Page) -> Trust {
    ledger.trust(page, SETTLE)
}

#[tokio::test]
async fn rule_9_a_new_ledger_is_untrusted_until_it_was_seen_for_a_settle_time() {
    let (_, ledger, hand) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    assert_eq!(of(&ledger, &page), remaining(120));
    hand.advance(Duration::from_secs(119));
    assert_eq!(of(&ledger, &read(&ledger).await), remaining(1));
    hand.advance(Duration::from_secs(1));
    assert_eq!(of(&ledger, &read(&ledger).await), Trust::Trusted);
}

#[tokio::test]
async fn a_ledger_that_was_recorded_as_trusted_is_trusted_by_a_replica_that_never_saw_it() {
    let (_, ledger, _) = ledger_with(&json!({"ledger": {"trusted": true, "budgetUID": "uid-a"}}));
    assert_eq!(of(&ledger, &read(&ledger).await), Trust::Trusted);
}

#[tokio::test]
async fn a_status_copied_from_another_budget_is_no_trust() {
    let (_, ledger, _) = ledger_with(&json!({"ledger": {"trusted": true, "budgetUID": "uid-z"}}));
    assert_eq!(of(&ledger, &read(&ledger).await), remaining(120));
}

#[tokio::test]
async fn a_recreated_budget_is_watched_anew() {
    let (api, ledger, hand) = ledger_with(&json!({}));
    read(&ledger).await;
    hand.advance(SETTLE);
    put_budget(&api, "uid-b", &json!({}));
    assert_eq!(of(&ledger, &read(&ledger).await), remaining(120));
}

#[tokio::test]
async fn a_ledger_that_lost_its_trust_is_watched_anew_and_says_why() {
    let (_, ledger, hand) = ledger_with(&json!({}));
    let page = after(&ledger, &read(&ledger).await, WATCHED).await;
    hand.advance(SETTLE * 2);
    let lost = after(&ledger, &page, UNGRANTED).await;
    assert_eq!(of(&ledger, &lost), remaining(120));
    let status = lost.status().unwrap();
    assert_eq!(
        status.ledger.untrusted_because.as_deref(),
        Some("a disruption passed without a grant")
    );
    hand.advance(SETTLE);
    let page = read(&ledger).await;
    assert_eq!(of(&ledger, &page), Trust::Trusted);
    let trusted = after(&ledger, &page, WATCHED).await;
    assert_eq!(trusted.status().unwrap().ledger.untrusted_because, None);
}

#[tokio::test]
async fn losing_trust_again_while_untrusted_begins_anew() {
    let (_, ledger, hand) = ledger_with(&json!({}));
    let page = after(&ledger, &read(&ledger).await, UNGRANTED).await;
    hand.advance(Duration::from_secs(100));
    let page = after(&ledger, &page, UNGRANTED).await;
    assert_eq!(of(&ledger, &page), remaining(120));
}

#[tokio::test]
async fn a_budget_that_was_gone_in_between_is_watched_anew() {
    let (api, ledger, hand) = ledger_with(&json!({}));
    read(&ledger).await;
    hand.advance(SETTLE);
    api.remove(super::BUDGET);
    assert!(ledger.read(&cluster()).await.unwrap().is_none());
    put_budget(&api, "uid-a", &json!({}));
    assert_eq!(of(&ledger, &read(&ledger).await), remaining(120));
}

#[tokio::test]
async fn a_scale_out_is_timed_by_what_this_replica_saw_of_it() {
    let (_, ledger, hand) = ledger_with(&json!({"scaleOut": {"to": 5}}));
    let page = read(&ledger).await;
    hand.advance(Duration::from_secs(60));
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
async fn webhooks_that_were_made_anew_while_nobody_looked_end_the_trust_before_anybody_writes_so() {
    let status = json!({"ledger": {"trusted": true, "budgetUID": "uid-a", "inForceBy": "v,m"}});
    for (now, expected) in [
        (None, Trust::Untrusted { remaining: None }),
        (Some("v,m"), Trust::Trusted),
        (Some("v,m2"), Trust::Untrusted { remaining: None }),
    ] {
        let (_, ledger, _) = ledger_with(&status);
        ledger
            .seen()
            .watch_webhooks(Box::new(move || now.map(str::to_owned)));
        assert_eq!(of(&ledger, &read(&ledger).await), expected);
    }
}

#[tokio::test]
async fn a_new_generation_of_the_webhooks_ends_the_trust_unless_each_was_seen_in_force() {
    let status = json!({"ledger": {"trusted": true, "budgetUID": "uid-a", "inForceBy": "v@5,m@3"}});
    let (followed, missed) = (["v@5,m@3", "v@6,m@3", "v@7,m@3"], ["v@7,m@3"; 3]);
    for (shown, stays_trusted) in [(followed, true), (missed, false)] {
        let (_, ledger, _) = ledger_with(&status);
        let now = Arc::new(Mutex::new(""));
        let tells = Arc::clone(&now);
        let tell = move || Some(tells.lock().unwrap().to_string());
        ledger.seen().watch_webhooks(Box::new(tell));
        for generation in shown {
            *now.lock().unwrap() = generation;
            ledger.seen().note_webhooks();
        }
        let page = read(&ledger).await;
        assert_eq!(of(&ledger, &page) == Trust::Trusted, stays_trusted);
        let history = &ledger.seen().webhook_history();
        let by = shown[2];
        let page = after(&ledger, &page, &[TrustEvent::InForce { by, history }]).await;
        let written = &page.status().unwrap().ledger;
        assert_eq!(written.in_force_by.as_deref(), Some(shown[2]));
        assert_eq!(written.trusted, stays_trusted);
        assert_eq!(of(&ledger, &page) == Trust::Trusted, stays_trusted);
    }
}

#[tokio::test]
async fn a_namespace_that_is_gated_again_is_not_trusted_for_a_settle_time_from_then() {
    let status = json!({"ledger": {"trusted": true, "budgetUID": "uid-a"}});
    let (_, ledger, hand) = ledger_with(&status);
    let page = read(&ledger).await;
    let namespace = cluster().namespace;
    ledger.seen().note_namespace(&namespace, true);
    assert_eq!(of(&ledger, &page), Trust::Trusted, "nothing ended");
    ledger.seen().note_namespace(&namespace, false);
    // Nobody could write it down for that long.
    hand.advance(SETTLE * 2);
    let page = read(&ledger).await;
    assert_eq!(of(&ledger, &page), untrusted(None), "it lasts");
    ledger.seen().note_namespace(&namespace, true);
    assert_eq!(of(&ledger, &page), untrusted(Some(SETTLE)));
    let last = Duration::from_secs(1);
    hand.advance(SETTLE.saturating_sub(last));
    // Another event of the namespace ends nothing.
    ledger.seen().note_namespace(&namespace, true);
    assert_eq!(of(&ledger, &page), untrusted(Some(last)));
    hand.advance(last);
    assert_eq!(of(&ledger, &page), Trust::Trusted);
}

#[tokio::test]
async fn an_outage_ends_the_trust_before_anybody_has_written_so_and_for_a_settle_time() {
    let status = json!({"ledger": {"trusted": true, "budgetUID": "uid-a", "inForceBy": "v,m"}});
    let (_, ledger, hand) = ledger_with(&status);
    let page = read(&ledger).await;
    assert_eq!(of(&ledger, &page), Trust::Trusted);
    ledger.seen().note_namespace("another", false);
    assert_eq!(of(&ledger, &page), Trust::Trusted, "it is another's");
    ledger.seen().note_outage();
    assert_eq!(of(&ledger, &page), untrusted(Some(SETTLE)));
    let last = Duration::from_secs(1);
    hand.advance(SETTLE.saturating_sub(last));
    // Another reading is no reason to forget it.
    assert_eq!(of(&ledger, &read(&ledger).await), untrusted(Some(last)));
    hand.advance(last);
    assert_eq!(of(&ledger, &page), Trust::Trusted);
}

fn untrusted(remaining: Option<Duration>) -> Trust {
    Trust::Untrusted { remaining }
}

#[tokio::test]
async fn an_outage_of_an_earlier_budget_says_nothing_of_the_next() {
    let status = json!({"ledger": {"trusted": true, "budgetUID": "uid-b"}});
    let (api, ledger, _) = ledger_with(&json!({}));
    read(&ledger).await;
    ledger.seen().note_outage();
    put_budget(&api, "uid-b", &status);
    assert_eq!(of(&ledger, &read(&ledger).await), Trust::Trusted);
}
