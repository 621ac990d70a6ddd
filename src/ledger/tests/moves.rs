//! Two replicas that want to move leadership in one cluster.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::{cluster, ledger_with, read, yes};
use crate::clock::Clock;
use crate::ledger::{Ledger, StatusUpdate};
use crate::quorum::{LeaderMove, MemberId, Observation, Snapshot};

const MOVE: LeaderMove = LeaderMove {
    from: MemberId(1),
    to: MemberId(0x8e9e_05c5_2164_694d),
    term: 7,
};

fn with(leader_move: LeaderMove) -> StatusUpdate {
    StatusUpdate {
        leader_move: Some(leader_move),
        ..StatusUpdate::default()
    }
}

fn led_by(leader: MemberId, term: u64) -> Snapshot {
    let mut snapshot = Snapshot::assemble(&Observation::before_any_look(cluster(), 3));
    snapshot.leader = Some(leader);
    snapshot.term = Some(term);
    snapshot
}

/// The replicas' clocks show different days. Neither reads what the other's shows.
#[tokio::test]
async fn of_two_replicas_that_begin_a_move_at_once_one_finds_the_others() {
    let (api, one, _) = ledger_with(&json!({}));
    let (clock, hand) = Clock::frozen("2031-05-01T00:00:00Z".parse::<Timestamp>().unwrap());
    let other = Ledger::new(api.client(), clock);
    let (mine, theirs) = (read(&one).await, read(&other).await);
    let (_, _proof) = one
        .record(&mine, &yes(&mine.grants, 0), with(MOVE))
        .await
        .unwrap();

    let to_another = LeaderMove {
        to: MemberId(3),
        ..MOVE
    };
    let lost = other
        .record(&theirs, &yes(&theirs.grants, 0), with(to_another))
        .await;
    assert!(lost.unwrap_err().begin_again());

    let page = read(&other).await;
    let new_leader = led_by(MOVE.to, 8);
    let open = || other.seen().open_move(&page, &new_leader).unwrap();
    assert_eq!(open().begun, MOVE);
    assert_eq!(open().recorded_for, Duration::ZERO, "seen only now");
    assert_eq!(open().leads_for, Duration::ZERO);

    other.seen().note_leader(&cluster(), &new_leader);
    hand.advance(Duration::from_secs(5));
    other.seen().note_leader(&cluster(), &new_leader);
    read(&other).await;
    assert_eq!(open().recorded_for, Duration::from_secs(5));
    assert_eq!(open().leads_for, Duration::from_secs(5));

    // An election in between: the same member leads anew.
    let elected = led_by(MOVE.to, 9);
    other.seen().note_leader(&cluster(), &elected);
    let open = other.seen().open_move(&page, &elected).unwrap();
    assert_eq!(open.leads_for, Duration::ZERO);
}

#[tokio::test]
async fn a_move_stays_on_record_until_the_next_one_begins() {
    let (_, ledger, hand) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    assert_eq!(page.leader_move(), None);
    let (page, _) = ledger
        .record(&page, &yes(&page.grants, 0), with(MOVE))
        .await
        .unwrap();
    hand.advance(Duration::from_secs(3));
    let forgets = |status: &mut crate::api::QuorumDisruptionBudgetStatus| {
        status.leader_move = None;
        status.leader = Some("etcd-1".into());
    };
    let page = ledger.write_status(&page, forgets).await.unwrap().unwrap();
    assert_eq!(page.leader_move(), Some(MOVE), "a report is no move");
    let (page, _) = ledger
        .record(&page, &yes(&page.grants, 1), StatusUpdate::default())
        .await
        .unwrap();
    assert_eq!(page.leader_move(), Some(MOVE));
    let seen = |page| ledger.seen().open_move(page, &led_by(MOVE.to, 8));
    assert_eq!(seen(&page).unwrap().recorded_for, Duration::from_secs(3));

    let next = LeaderMove {
        from: MOVE.to,
        to: MOVE.from,
        term: 8,
    };
    let (page, _) = ledger
        .record(&page, &yes(&page.grants, 2), with(next))
        .await
        .unwrap();
    assert_eq!(page.leader_move(), Some(next));
    assert_eq!(seen(&page).unwrap().recorded_for, Duration::ZERO);
}
