//! The ledger of the release before this one against this one's, and back, while grants are open.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{BUDGET, ledger_with, read, yes};
use crate::ledger::{LedgerError, StatusUpdate};
use crate::quorum::{LeaderMove, MemberId};

const MOVE: LeaderMove = LeaderMove {
    from: MemberId(1),
    to: MemberId(2),
    term: 7,
};

/// A budget's status as the release before this one wrote it: five members, after a scale-in, with
/// open permissions of a rollout's step and of somebody's delete.
fn of_the_release_before() -> Value {
    serde_json::from_str(include_str!("release_before.json")).unwrap()
}

/// The part of a status that the release before this one knew, which it read and wrote.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Before {
    #[serde(default)]
    ledger: LedgerBefore,
    #[serde(default)]
    grants: Vec<GrantBefore>,
    #[serde(default)]
    expected_members: Option<i32>,
    #[serde(default)]
    observed_replicas: Option<i32>,
    #[serde(default)]
    recorded_deletes: Value,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LedgerBefore {
    #[serde(default)]
    trusted: bool,
    #[serde(default, rename = "budgetUID")]
    budget_uid: Option<String>,
    #[serde(default)]
    epoch: i64,
    #[serde(default)]
    suspended: bool,
    #[serde(default)]
    in_force_by: Option<String>,
    #[serde(default)]
    untrusted_because: Option<String>,
    #[serde(default)]
    last_seq: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GrantBefore {
    member: String,
    causes: Vec<CauseBefore>,
    /// Other fields. That release took no grant that had any.
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CauseBefore {
    kind: String,
    uid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rollout: Option<bool>,
    seq: i64,
    by: String,
    time: String,
    #[serde(flatten)]
    unknown: BTreeMap<String, Value>,
}

#[tokio::test]
async fn what_the_release_before_granted_is_kept_and_what_this_one_grants_it_reads() {
    let (api, ledger, _) = ledger_with(&of_the_release_before());
    let page = read(&ledger).await;
    assert!(page.grants.holds(&"etcd-0".into()) && page.grants.holds(&"etcd-4".into()));
    assert_eq!(page.grants.last_seq(), 4);

    let grants = yes(&page.grants, 1);
    let moving = StatusUpdate {
        leader_move: Some(MOVE),
        ..StatusUpdate::default()
    };
    let (_, proof) = ledger.record(&page, &grants, moving).await.unwrap();
    assert_eq!(proof.seq(), 5);
    let stored = api.get(BUDGET).unwrap();
    assert_eq!(stored["status"]["ledger"]["schemaVersion"], 3);
    assert_eq!(read(&ledger).await.leader_move(), Some(MOVE));

    // Back: the release before reads all three, says yes again, and writes what it knows, which is
    // neither the version nor the move of leadership.
    let mut seen: Before = serde_json::from_value(stored["status"].clone()).unwrap();
    assert!(seen.ledger.trusted);
    let members: Vec<&str> = seen.grants.iter().map(|g| g.member.as_str()).collect();
    assert_eq!(members, ["etcd-0", "etcd-1", "etcd-4"]);
    for grant in &seen.grants {
        assert!(grant.unknown.is_empty(), "{grant:?}");
        assert!(grant.causes.iter().all(|cause| cause.unknown.is_empty()));
    }
    assert_eq!(seen.ledger.last_seq, 5);
    seen.ledger.last_seq = 6;
    seen.grants[0].causes[0].seq = 6;
    let mut budget = stored;
    budget["status"] = serde_json::to_value(&seen).unwrap();
    api.put(BUDGET, budget);

    // And forth again: no permission is lost, and the version is written anew. A move that nobody
    // remembers holds nobody up.
    let page = read(&ledger).await;
    assert_eq!(page.leader_move(), None);
    assert_eq!(page.grants.last_seq(), 6);
    for member in ["etcd-0", "etcd-1", "etcd-4"] {
        assert!(page.grants.holds(&member.into()), "{member} was lost");
    }
    let grants = yes(&page.grants, 1);
    let recorded = ledger.record(&page, &grants, StatusUpdate::default()).await;
    let (_, proof) = recorded.unwrap();
    assert_eq!(proof.seq(), 7);
    let stored = api.get(BUDGET).unwrap();
    assert_eq!(stored["status"]["ledger"]["schemaVersion"], 3);
    let recorded = &of_the_release_before()["recordedDeletes"];
    assert!(recorded["scaleIn"].is_object());
    assert_eq!(&stored["status"]["recordedDeletes"], recorded);
}

/// A rollback may have brought the older definition and not yet the older replicas, or an upgrade
/// the newer replicas alone.
#[tokio::test]
async fn under_the_definition_of_the_release_before_nothing_is_permitted_and_no_grant_is_lost() {
    let (api, ledger, _) = ledger_with(&of_the_release_before());
    api.prune("leaderMove");
    api.prune("ledger.schemaVersion");
    let page = read(&ledger).await;
    let grants = yes(&page.grants, 1);
    let refused = ledger.record(&page, &grants, StatusUpdate::default()).await;
    assert!(matches!(refused, Err(LedgerError::NotKept)), "{refused:?}");

    // The grant was stored but for the version. So it counts until it settles, like every
    // permission that nobody uses.
    let page = read(&ledger).await;
    assert_eq!(page.grants.last_seq(), 5);
    for member in ["etcd-0", "etcd-1", "etcd-4"] {
        assert!(page.grants.holds(&member.into()), "{member} was lost");
    }
}

#[tokio::test]
async fn a_ledger_of_a_newer_release_is_not_written() {
    for (change, words) in [
        (json!({"ledger": {"schemaVersion": 4}}), "schema version 4"),
        (json!({"reservations": []}), "status.reservations"),
        (json!({"ledger": {"lease": "x"}}), "status.ledger.lease"),
        (
            json!({"recordedDeletes": {"claims": []}}),
            "status.recordedDeletes.claims",
        ),
    ] {
        let mut status = of_the_release_before();
        json_patch::merge(&mut status, &change);
        let (api, ledger, _) = ledger_with(&status);
        let before = api.get(BUDGET).unwrap();
        let problem = ledger.read(&super::cluster()).await;
        let Err(LedgerError::Unreadable { problem, .. }) = problem else {
            panic!("{change}: {problem:?}")
        };
        for part in [words, "newer release"] {
            assert!(problem.contains(part), "{problem}");
        }
        assert_eq!(api.get(BUDGET).unwrap(), before);
    }
}
