use std::time::Duration;

use proptest::prelude::*;

use super::{Trust, TrustEvent, TrustRecord, TrustWatch, WebhookHistory};

const SETTLE: Duration = Duration::from_secs(120);
const NOW: Duration = Duration::from_secs(10_000);
const BY: &str = "v@5,m@3";
const OUT: TrustEvent<'_> = TrustEvent::OutOfForce {
    because: "no webhooks",
};

fn new() -> TrustRecord {
    TrustRecord {
        budget: "uid-1".into(),
        ..TrustRecord::default()
    }
}

/// The record of a ledger that is trusted, and in force by [`BY`].
fn trusted() -> TrustRecord {
    in_force(&new(), BY).after(TrustEvent::Watched)
}

/// The record after a replica that has seen nothing before says by what the gate is in force.
fn in_force(record: &TrustRecord, by: &str) -> TrustRecord {
    let history = &WebhookHistory::default();
    record.after(TrustEvent::InForce { by, history })
}

fn warning(record: &TrustRecord) -> TrustRecord {
    TrustRecord {
        only_warns: true,
        ..record.clone()
    }
}

/// The trust of a replica that has watched the record's epoch for so many seconds.
fn trust(record: &TrustRecord, seconds: u64) -> Trust {
    let watch = TrustWatch::new(record.epoch, NOW.saturating_sub(secs(seconds)));
    record.trust(&watch, &WebhookHistory::default(), NOW, SETTLE)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn remaining(seconds: u64) -> Trust {
    Trust::Untrusted {
        remaining: Some(secs(seconds)),
    }
}

const UNTRUSTED: Trust = Trust::Untrusted { remaining: None };

#[test]
fn a_new_ledger_is_trusted_after_a_settle_time() {
    assert_eq!(trust(&new(), 0), remaining(120));
    assert_eq!(trust(&new(), 119), remaining(1));
    assert_eq!(trust(&new(), 120), Trust::Trusted);
    assert_eq!(trust(&trusted(), 0), Trust::Trusted);
}

#[test]
fn a_record_of_another_budget_is_no_trust() {
    let copied = TrustRecord {
        budget: "uid-2".into(),
        ..trusted()
    };
    assert!(!copied.is_trusted());
    assert_eq!(trust(&copied, 0), remaining(120));
    assert!(copied.after(TrustEvent::Watched).is_trusted());
}

#[test]
fn a_disruption_without_a_grant_begins_a_new_epoch_each_time() {
    let once = trusted().after(TrustEvent::Ungranted);
    assert_eq!(trust(&once, 0), remaining(120));
    assert_eq!(
        once.because.as_deref(),
        Some("a disruption passed without a grant")
    );
    let twice = once.after(TrustEvent::Ungranted);
    assert_eq!((once.epoch, twice.epoch), (1, 2));
    let watched = twice.after(TrustEvent::Watched);
    assert!(watched.is_trusted() && watched.because.is_none());
    assert_eq!(watched.epoch, 2);
}

#[test]
fn an_outage_suspends_the_ledger_until_it_is_over_and_a_settle_time_longer() {
    let out = trusted().after(OUT);
    assert!(out.suspended && !out.is_trusted());
    assert_eq!(trust(&out, 10_000), UNTRUSTED);
    assert_eq!(
        out.after(TrustEvent::Watched),
        out,
        "watching does not count"
    );
    let again = out.after(TrustEvent::OutOfForce {
        because: "no label",
    });
    assert_eq!(again, out, "the first reason stays");
    let over = in_force(&out, BY);
    assert_eq!((over.suspended, over.epoch), (false, 2));
    assert_eq!(over.because.as_deref(), Some("no webhooks"));
    assert_eq!(trust(&over, 119), remaining(1));
    assert_eq!(trust(&over, 120), Trust::Trusted);
}

#[test]
fn other_webhook_configurations_end_the_trust_unless_every_one_was_seen_in_force() {
    assert_eq!(in_force(&trusted(), BY), trusted());
    let others = in_force(&trusted(), "v@6,m@3");
    assert!(!others.is_trusted() && others.epoch == 1);
    assert!(others.because.unwrap().contains("made anew"));

    let mut history = WebhookHistory::default();
    history.note(Some(BY.into()));
    history.note(Some("v@6,m@3".into()));
    let followed = trusted().after(TrustEvent::InForce {
        by: "v@6,m@3",
        history: &history,
    });
    assert!(followed.is_trusted() && followed.epoch == 0);
    assert_eq!(followed.in_force_by.as_deref(), Some("v@6,m@3"));
}

#[test]
fn a_replica_goes_by_the_webhook_configurations_that_it_sees() {
    let watch = TrustWatch::new(0, NOW);
    for (seen, expected) in [
        (None, UNTRUSTED),
        (Some(BY), Trust::Trusted),
        (Some("v@7,m@3"), UNTRUSTED),
    ] {
        let mut history = WebhookHistory::default();
        history.note(seen.map(str::to_owned));
        let found = trusted().trust(&watch, &history, NOW, SETTLE);
        assert_eq!(found, expected, "{seen:?}");
    }
}

#[test]
fn a_replica_goes_by_what_it_saw_pass_for_a_settle_time() {
    let history = WebhookHistory::default();
    let mut watch = TrustWatch::new(0, NOW);
    let trust = |watch: &TrustWatch, now| trusted().trust(watch, &history, now, SETTLE);
    watch.note_namespace(true, NOW);
    assert_eq!(trust(&watch, NOW), Trust::Trusted, "no outage has ended");
    watch.note_ungranted(NOW);
    assert_eq!(trust(&watch, NOW + secs(119)), remaining(1));
    assert_eq!(trust(&watch, NOW + SETTLE), Trust::Trusted);

    watch.note_namespace(false, NOW);
    assert_eq!(trust(&watch, NOW), UNTRUSTED);
    let end = NOW + SETTLE * 2;
    assert_eq!(trust(&watch, end), UNTRUSTED, "however long it lasts");
    watch.note_namespace(true, end);
    assert_eq!(trust(&watch, end + secs(119)), remaining(1));
    // Another event of the namespace ends nothing.
    watch.note_namespace(true, end + secs(60));
    assert_eq!(trust(&watch, end + SETTLE), Trust::Trusted);
}

#[test]
fn only_the_time_in_the_present_epoch_counts() {
    let record = new().after(TrustEvent::Ungranted);
    let history = WebhookHistory::default();
    let mut watch = TrustWatch::new(0, NOW);
    let late = NOW + SETTLE * 2;
    let trust = |watch: &TrustWatch, now| record.trust(watch, &history, now, SETTLE);
    assert_eq!(trust(&watch, late), remaining(120));
    watch.note_epoch(record.epoch, late);
    watch.note_epoch(record.epoch, late + secs(50));
    assert_eq!(trust(&watch, late + secs(100)), remaining(20));
}

#[test]
fn the_time_that_remains_is_the_longer_one_of_the_epoch_and_of_what_passed() {
    let record = new().after(TrustEvent::Ungranted);
    let history = WebhookHistory::default();
    let mut watch = TrustWatch::new(record.epoch, NOW);
    let trust = |watch: &TrustWatch, now| record.trust(watch, &history, now, SETTLE);
    watch.note_ungranted(NOW + secs(50));
    assert_eq!(trust(&watch, NOW + secs(60)), remaining(110));
    // The epoch begins when the event is recorded, which is a moment later.
    watch.note_epoch(record.epoch + 1, NOW + secs(51));
    watch.note_epoch(record.epoch, NOW + secs(52));
    assert_eq!(trust(&watch, NOW + secs(60)), remaining(112));
}

#[test]
fn while_refusals_are_only_reported_the_ledger_is_suspended_and_judged_as_if_trusted() {
    for event in [
        TrustEvent::Ungranted,
        TrustEvent::InForce {
            by: BY,
            history: &WebhookHistory::default(),
        },
    ] {
        let warns = warning(&trusted()).after(event);
        assert!(warns.suspended && !warns.is_trusted());
        assert_eq!(trust(&warns, 0), Trust::Trusted);
        assert_eq!(warns.after(event), warns);
        assert!(warns.is_settled(Some(BY)));
        let out = warning(&trusted()).after(OUT).after(event);
        assert!(out.because.unwrap().contains("enforcement: Warn"));

        let enforced = TrustRecord {
            only_warns: false,
            ..warns
        };
        assert_eq!(trust(&enforced, 10_000), UNTRUSTED);
        let resumed = in_force(&enforced, BY);
        assert_eq!(trust(&resumed, 0), remaining(120));
    }
    let warns = warning(&new());
    assert_eq!(warns.after(TrustEvent::Watched), warns);
}

#[test]
fn a_record_is_settled_if_it_is_trusted_in_force_or_suspended_out_of_force() {
    assert!(trusted().is_settled(Some(BY)));
    assert!(!trusted().is_settled(Some("v@6,m@3")));
    assert!(!trusted().is_settled(None));
    assert!(!in_force(&new(), BY).is_settled(Some(BY)), "not trusted");
    let out = trusted().after(OUT);
    assert!(out.is_settled(None) && !out.is_settled(Some(BY)));
    let warns = warning(&trusted());
    assert!(!warns.is_settled(Some(BY)) && !warns.is_settled(None));
    let warns_outside = warns.after(OUT);
    assert!(warns_outside.is_settled(None));
    assert!(!warns_outside.is_settled(Some(BY)), "the reason is another");
}

/// An event by number, for a property.
fn event(number: u8, history: &WebhookHistory) -> TrustEvent<'_> {
    match number {
        0 => TrustEvent::Watched,
        1 => TrustEvent::Ungranted,
        2 => OUT,
        3 => TrustEvent::InForce { by: BY, history },
        _ => TrustEvent::InForce {
            by: "w@1,m@3",
            history,
        },
    }
}

proptest! {
    #[test]
    fn trust_comes_by_watching_alone_and_is_never_lost_without_a_new_epoch(
        events in proptest::collection::vec((0_u8..5, any::<bool>()), 0..20),
    ) {
        let history = WebhookHistory::default();
        let mut before = new();
        for (number, only_warns) in events {
            before.only_warns = only_warns;
            let after = before.after(event(number, &history));
            let gained = after.is_trusted() && !before.is_trusted();
            prop_assert!(!gained || (number == 0 && !before.suspended && !only_warns));
            let lost = before.is_trusted() && !after.is_trusted();
            let resumed = before.suspended && !after.suspended;
            prop_assert!(!(lost || resumed) || after.epoch > before.epoch);
            prop_assert!(after.epoch >= before.epoch);
            prop_assert!(!(after.suspended && after.is_trusted()));
            before = after;
        }
    }
}
