use std::time::Duration;

use serde_json::json;

use super::{BUDGET, SETTLE, ledger_with, read, yes};
use crate::api::{DefragmentationStatus, ReplacementStatus};
use crate::fake_api::FakeApi;
use crate::ledger::{Due, Ledger, LedgerError, Page, StatusUpdate};
use crate::quorum::{DefragmentationProgress, GrantKind, ReplacementProgress};

const POD: &str = "/api/v1/namespaces/db/pods/etcd-0";

fn put_pod(api: &FakeApi, uid: &str, terminating: bool) {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "etcd-0", "namespace": "db", "uid": uid},
    });
    if terminating {
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    api.put(POD, pod);
}

/// A ledger with an open grant for the incarnation `u0` of `etcd-0`.
async fn granted() -> (FakeApi, Ledger, crate::clock::ClockHand, Page) {
    let (api, ledger, hand) = ledger_with(&json!({}));
    put_pod(&api, "u0", false);
    let page = read(&ledger).await;
    let grants = yes(&page.grants, 0);
    let (page, _) = ledger
        .record(&page, &grants, StatusUpdate::default())
        .await
        .unwrap();
    (api, ledger, hand, page)
}

#[tokio::test]
async fn a_delete_settles_when_its_incarnation_is_gone() {
    let (api, ledger, _, page) = granted().await;
    assert!(ledger.settle_due(&page, SETTLE).await.unwrap().is_none());
    api.remove(POD);
    let settled = ledger.settle_due(&page, SETTLE).await.unwrap().unwrap();
    assert_eq!(settled.unused, 0);
    let after = settled.page;
    assert!(!after.grants.holds(&"etcd-0".into()));
    assert_eq!(after.grants.last_seq(), 1, "numbers are never given again");
}

#[tokio::test]
async fn a_delete_settles_when_another_incarnation_stands_there() {
    let (api, ledger, _, page) = granted().await;
    put_pod(&api, "u1", false);
    assert!(ledger.settle_due(&page, SETTLE).await.unwrap().is_some());
}

#[tokio::test]
async fn a_delete_that_never_happened_settles_after_the_settle_time_and_not_before() {
    let (_, ledger, hand, page) = granted().await;
    hand.advance(SETTLE.checked_sub(Duration::from_millis(1)).unwrap());
    assert!(ledger.settle_due(&page, SETTLE).await.unwrap().is_none());
    hand.advance(Duration::from_millis(1));
    let settled = ledger.settle_due(&page, SETTLE).await.unwrap().unwrap();
    assert_eq!(settled.unused, 1);
}

#[tokio::test]
async fn a_settle_time_begins_when_this_replica_first_saw_the_yes() {
    let (api, _, _, _) = granted().await;
    let (clock, hand) = crate::clock::Clock::frozen(jiff::Timestamp::UNIX_EPOCH);
    hand.advance(SETTLE * 10);
    let other = Ledger::new(api.client(), clock);
    let page = read(&other).await;
    assert!(other.settle_due(&page, SETTLE).await.unwrap().is_none());
}

#[tokio::test]
async fn a_repeated_yes_begins_a_settle_time_of_its_own() {
    let (_, ledger, hand, page) = granted().await;
    hand.advance(SETTLE);
    let again = yes(&page.grants, 0);
    let (page, _) = ledger
        .record(&page, &again, StatusUpdate::default())
        .await
        .unwrap();
    assert!(ledger.settle_due(&page, SETTLE).await.unwrap().is_none());
}

#[tokio::test]
async fn a_terminating_pod_keeps_its_grant_however_long_it_takes() {
    let (api, ledger, hand, page) = granted().await;
    put_pod(&api, "u0", true);
    hand.advance(SETTLE * 100);
    assert!(ledger.settle_due(&page, SETTLE).await.unwrap().is_none());
}

#[tokio::test]
async fn settling_over_an_old_page_changes_nothing() {
    let (api, ledger, _, page) = granted().await;
    api.remove(POD);
    let again = yes(&page.grants, 0);
    let _ = ledger
        .record(&page, &again, StatusUpdate::default())
        .await
        .unwrap();
    let late = ledger.settle_due(&page, SETTLE).await;
    assert!(matches!(late, Err(LedgerError::Conflict)), "{late:?}");
    assert_eq!(
        api.get(BUDGET).unwrap()["status"]["grants"][0]["causes"][0]["seq"],
        2
    );
}

#[tokio::test]
async fn settling_what_is_not_open_writes_nothing() {
    let (api, ledger, _, page) = granted().await;
    api.take_requests();
    let other = Due {
        unused: false,
        member: "etcd-0".into(),
        seq: 7,
    };
    assert!(ledger.settle(&page, &[other]).await.unwrap().is_none());
    assert!(api.take_requests().is_empty());
}

/// A look at the pod says nothing of its claim, and a look at the claim nothing of the pod.
#[tokio::test]
async fn a_replacement_settles_by_its_own_look_only() {
    let (api, ledger, hand, page) = granted().await;
    let replaced = |page: &Page| {
        let by = "anna".to_owned();
        page.grants
            .issue(&"etcd-0".into(), GrantKind::Replace, by, "noon".to_owned())
    };
    let both = replaced(&page);
    let recorded = ledger.record(&page, &both, StatusUpdate::default()).await;
    let (page, _) = recorded.unwrap();
    api.remove(POD);
    let page = ledger
        .settle_due(&page, SETTLE)
        .await
        .unwrap()
        .unwrap()
        .page;
    assert!(page.grants.permit_replacement(&"etcd-0".into()));
    hand.advance(SETTLE * 2);
    assert!(ledger.settle_due(&page, SETTLE).await.unwrap().is_none());

    let (member, another) = ("etcd-0".into(), "etcd-1".into());
    let settle = |look| ledger.settle_replacement(&page, &member, look, SETTLE, |_, _| ());
    let underway = settle(ReplacementProgress::Underway).await.unwrap();
    assert!(underway.is_none());
    let other = ledger.settle_replacement(
        &page,
        &another,
        ReplacementProgress::Serves,
        SETTLE,
        |_, _| (),
    );
    assert!(other.await.unwrap().is_none());
    let after = settle(ReplacementProgress::Stands).await.unwrap().unwrap();
    assert!(!after.grants.holds(&"etcd-0".into()));
}

#[tokio::test]
async fn a_cluster_that_begins_anew_keeps_no_permission_to_replace_a_member_of_the_one_before() {
    let (_api, ledger, _, page) = granted().await;
    let mut grants = page.grants.clone();
    for member in ["etcd-0", "etcd-1"] {
        let (by, at) = ("anna".to_owned(), "noon".to_owned());
        grants = grants.issue(&member.into(), GrantKind::Replace, by, at);
    }
    let recorded = ledger.record(&page, &grants, StatusUpdate::default()).await;
    let (page, _) = recorded.unwrap();
    let begun = ledger.begin_anew(&page, std::iter::once("u9".into())).await;
    let grants = begun.unwrap().unwrap().grants;
    assert!(!grants.permit_replacement(&"etcd-0".into()));
    assert!(grants.holds(&"etcd-0".into()), "its pod may still go");
    assert!(!grants.holds(&"etcd-1".into()));
    assert_eq!(grants.last_seq(), 3, "numbers are never given again");
}

fn run(finished: bool) -> DefragmentationStatus {
    serde_json::from_value(json!({
        "member": "etcd-0", "reason": "Reclaim", "sizeBeforeBytes": 9,
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": finished.then_some("2026-01-01T00:00:09Z"),
    }))
    .unwrap()
}

/// A ledger with an open grant to defragment `etcd-0`, and the run on record.
async fn defragmenting() -> (FakeApi, Ledger, crate::clock::ClockHand, Page) {
    let (api, ledger, hand) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let what = GrantKind::Defragment {
        holder: "gate-0/1".into(),
        timeout_seconds: 60,
    };
    let member = "etcd-0".into();
    let grants = page
        .grants
        .issue(&member, what, "gate".into(), String::new());
    let update = StatusUpdate {
        defragmentation: Some(run(false)),
        ..StatusUpdate::default()
    };
    let (page, _) = ledger.record(&page, &grants, update).await.unwrap();
    (api, ledger, hand, page)
}

#[tokio::test]
async fn a_defragmentation_is_on_record_with_its_grant_and_its_end_with_the_settlement() {
    let (api, ledger, _, page) = defragmenting().await;
    let shown = |api: &FakeApi| api.get(BUDGET).unwrap()["status"].clone();
    assert_eq!(shown(&api)["defragmentations"][0]["member"], "etcd-0");
    let member = "etcd-0".into();
    let runs = DefragmentationProgress::Running;
    let settled = ledger.settle_defragmentation(&page, &member, runs, SETTLE, |_| {
        panic!("it is not over");
    });
    assert!(settled.await.unwrap().is_none());
    let over = DefragmentationProgress::Returned;
    let settled = ledger.settle_defragmentation(&page, &member, over, SETTLE, |runs| {
        *runs = vec![run(true)];
    });
    assert!(settled.await.unwrap().is_some());
    let status = shown(&api);
    assert!(status["grants"].is_null(), "{status}");
    let end = &status["defragmentations"][0]["completionTime"];
    assert_eq!(end, "2026-01-01T00:00:09Z");
}

#[tokio::test]
async fn a_defragmentation_without_its_holder_settles_by_age() {
    let (_, ledger, hand, page) = defragmenting().await;
    let member = "etcd-0".into();
    let settle = || {
        let look = DefragmentationProgress::NotMine;
        ledger.settle_defragmentation(&page, &member, look, SETTLE, |_| ())
    };
    hand.advance(SETTLE + Duration::from_secs(59));
    assert!(settle().await.unwrap().is_none());
    hand.advance(Duration::from_secs(1));
    assert!(settle().await.unwrap().is_some());
}

/// A run that nobody remembers would be made again.
#[tokio::test]
async fn a_definition_that_does_not_keep_runs_is_out_of_date() {
    let (api, ledger, _) = ledger_with(&json!({}));
    api.prune("defragmentations");
    let page = read(&ledger).await;
    let update = StatusUpdate {
        defragmentation: Some(run(false)),
        ..StatusUpdate::default()
    };
    let written = ledger.update(&page, update).await;
    assert!(matches!(written, Err(LedgerError::NotKept)), "{written:?}");
}

fn replacement(finished: bool) -> ReplacementStatus {
    serde_json::from_value(json!({
        "member": "etcd-2", "reason": "VolumeLost", "oldMemberID": "3",
        "startTime": "2026-01-01T00:00:00Z",
        "completionTime": finished.then_some("2026-01-01T00:00:09Z"),
    }))
    .unwrap()
}

/// A ledger with an open grant to replace `etcd-2`, and the replacement on record.
async fn replacing() -> (FakeApi, Ledger, Page) {
    let (api, ledger, _) = ledger_with(&json!({"volumes": [{
        "member": "etcd-2", "memberID": "3", "podUID": "u2", "claimUID": "c2", "volumeID": "v2",
    }]}));
    let page = read(&ledger).await;
    let (what, by) = (GrantKind::Replace, "gate".to_owned());
    let grants = page.grants.issue(&"etcd-2".into(), what, by, String::new());
    let update = StatusUpdate {
        replacement: Some(replacement(false)),
        ..StatusUpdate::default()
    };
    let (page, _) = ledger.record(&page, &grants, update).await.unwrap();
    (api, ledger, page)
}

#[tokio::test]
async fn a_replacement_is_on_record_with_its_grant_and_its_end_and_volume_with_the_settlement() {
    let (api, ledger, page) = replacing().await;
    let shown = |api: &FakeApi| api.get(BUDGET).unwrap()["status"].clone();
    assert_eq!(shown(&api)["replacements"][0]["oldMemberID"], "3");
    // What the budget shows is written without touching either.
    let showing = ledger.write_status(&page, |status| {
        status.replacements.clear();
        status.volumes.clear();
        status.leader = Some("etcd-0".into());
    });
    let page = showing.await.unwrap().unwrap();
    assert_eq!(shown(&api)["replacements"][0]["member"], "etcd-2");
    assert_eq!(shown(&api)["volumes"][0]["claimUID"], "c2");

    let member = "etcd-2".into();
    let underway = ReplacementProgress::Underway;
    let settled = ledger.settle_replacement(&page, &member, underway, SETTLE, |_, _| {
        panic!("it is not over");
    });
    assert!(settled.await.unwrap().is_none());
    let serves = ReplacementProgress::Serves;
    let settled = ledger.settle_replacement(&page, &member, serves, SETTLE, |all, volumes| {
        *all = vec![replacement(true)];
        let record = volumes.get_mut(&"etcd-2".into()).unwrap();
        record.volume.claim_uid = "c9".into();
    });
    assert!(settled.await.unwrap().is_some());
    let status = shown(&api);
    assert!(status["grants"].is_null(), "{status}");
    assert_eq!(status["volumes"][0]["claimUID"], "c9");
    let end = &status["replacements"][0]["completionTime"];
    assert_eq!(end, "2026-01-01T00:00:09Z");
}

/// A replacement that nobody remembers would be left half done.
#[tokio::test]
async fn a_definition_that_keeps_no_replacements_or_volumes_is_out_of_date() {
    for field in ["replacements", "volumes"] {
        let (api, ledger, page) = replacing().await;
        api.prune(field);
        let grants = page.grants.issue(
            &"etcd-2".into(),
            GrantKind::Replace,
            "gate".into(),
            String::new(),
        );
        let written = ledger.record(&page, &grants, StatusUpdate::default()).await;
        assert!(matches!(written, Err(LedgerError::NotKept)), "{written:?}");
    }
}
