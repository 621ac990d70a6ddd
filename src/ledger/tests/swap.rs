use jiff::Timestamp;
use serde_json::json;

use super::{BUDGET, cluster, ledger_with, put_budget, read, yes};
use crate::api::names::ACCEPT_DATA_LOSS;
use crate::api::{QuorumDisruptionBudgetStatus, RecordedDelete};
use crate::ledger::{LedgerError, Recorded, StatusUpdate};
use crate::ledger::{SetFound, SetSeen, StandingSet};
use crate::quorum::{ClusterId, ExpectedVoters, MemberId, PodName};

#[tokio::test]
async fn a_yes_is_proven_by_an_accepted_write() {
    let (api, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let grants = yes(&page.grants, 0);
    let (after, proof) = ledger
        .record(&page, &grants, StatusUpdate::default())
        .await
        .unwrap();
    assert_eq!(proof.seq(), 1);
    assert_eq!(after.grants, grants);
    assert_ne!(after.resource_version, page.resource_version);
    let stored = api.get(BUDGET).unwrap();
    assert_eq!(stored["status"]["grants"][0]["member"], "etcd-0");
    assert_eq!(stored["status"]["ledger"]["lastSeq"], 1);
}

#[tokio::test]
async fn of_two_yeses_over_one_page_only_the_first_is_recorded() {
    let (_, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let first = ledger
        .record(&page, &yes(&page.grants, 0), StatusUpdate::default())
        .await;
    let second = ledger
        .record(&page, &yes(&page.grants, 1), StatusUpdate::default())
        .await;
    assert!(first.is_ok());
    assert!(matches!(second, Err(LedgerError::Conflict)), "{second:?}");
    let now = read(&ledger).await;
    assert!(now.grants.holds(&"etcd-0".into()));
    assert!(!now.grants.holds(&"etcd-1".into()));
}

#[tokio::test]
async fn a_repeated_yes_is_a_write_of_its_own() {
    let (_, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let (once, first) = record(&ledger, &page, 0).await;
    let (_, again) = record(&ledger, &once, 0).await;
    assert_eq!((first.seq(), again.seq()), (1, 2));
}

#[tokio::test]
async fn grants_without_a_new_yes_prove_nothing() {
    let (api, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let (page, _) = record(&ledger, &page, 0).await;
    api.take_requests();
    let unchanged = ledger
        .record(&page, &page.grants.clone(), StatusUpdate::default())
        .await;
    assert!(matches!(unchanged, Err(LedgerError::NoFence)));
    assert!(api.take_requests().is_empty(), "it was not even sent");
}

#[tokio::test]
async fn a_budget_that_was_deleted_or_recreated_since_takes_no_yes() {
    let (api, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    api.remove(BUDGET);
    let gone = ledger
        .record(&page, &yes(&page.grants, 0), StatusUpdate::default())
        .await;
    assert!(matches!(gone, Err(LedgerError::Gone)), "{gone:?}");
    put_budget(&api, "uid-b", &json!({}));
    let recreated = ledger
        .record(&page, &yes(&page.grants, 0), StatusUpdate::default())
        .await;
    assert!(
        matches!(recreated, Err(LedgerError::Conflict)),
        "{recreated:?}"
    );
}

#[tokio::test]
async fn a_definition_that_does_not_keep_grants_gives_no_proof() {
    let (api, ledger, _) = ledger_with(&json!({}));
    api.prune("grants");
    let page = read(&ledger).await;
    let lost = ledger
        .record(&page, &yes(&page.grants, 0), StatusUpdate::default())
        .await;
    assert!(matches!(lost, Err(LedgerError::NotKept)), "{lost:?}");
}

#[tokio::test]
async fn no_budget_and_no_definition_are_told_apart() {
    let (api, ledger, _) = ledger_with(&json!({}));
    api.remove(BUDGET);
    assert!(ledger.read(&cluster()).await.unwrap().is_none());
    ledger.defined().await.unwrap();
    api.undefine("quorumdisruptionbudgets");
    let read = ledger.read(&cluster()).await;
    assert!(matches!(read, Err(LedgerError::NoDefinition)), "{read:?}");
    let defined = ledger.defined().await;
    assert!(
        matches!(defined, Err(LedgerError::NoDefinition)),
        "{defined:?}"
    );
    let created = ledger.create(&cluster()).await;
    assert!(
        matches!(created, Err(LedgerError::NoDefinition)),
        "{created:?}"
    );
}

#[tokio::test]
async fn a_ledger_that_is_not_understood_is_not_read() {
    for (what, status) in [
        (
            "kind",
            json!({"grants": [{"member": "etcd-0", "causes": [{"kind": "Teleport", "seq": 1, "by": "", "time": ""}]}]}),
        ),
        (
            "field",
            json!({"grants": [{"member": "etcd-0", "colour": "red", "causes": [{"kind": "Replace", "seq": 1, "by": "", "time": ""}]}]}),
        ),
        (
            "cause",
            json!({"grants": [{"member": "etcd-0", "causes": []}]}),
        ),
        (
            "uid",
            json!({"grants": [{"member": "etcd-0", "causes": [{"kind": "Delete", "seq": 1, "by": "", "time": ""}]}]}),
        ),
        ("shape", json!({"grants": "none"})),
    ] {
        let (_, ledger, _) = ledger_with(&status);
        let read = ledger.read(&cluster()).await;
        assert!(
            matches!(read, Err(LedgerError::Unreadable { .. })),
            "{what}: {read:?}"
        );
    }
}

#[tokio::test]
async fn what_is_shown_cannot_touch_what_is_permitted() {
    let (api, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let (page, _) = record(&ledger, &page, 0).await;
    let written = ledger.write_status(&page, |status| {
        status.voters = Some(3);
        status.grants.clear();
        status.ledger.last_seq = 0;
        status.ledger.trusted = true;
        status.recorded_deletes.stateful_sets.clear();
    });
    let after = written.await.unwrap().unwrap();
    assert_eq!(after.grants, page.grants);
    assert_eq!(api.get(BUDGET).unwrap()["status"]["voters"], 3);
    assert_eq!(
        api.get(BUDGET).unwrap()["status"]["ledger"]["trusted"],
        false
    );
}

#[tokio::test]
async fn what_is_shown_is_not_written_when_nothing_changed_nor_over_a_newer_grant() {
    let (api, ledger, _) = ledger_with(&json!({"voters": 3}));
    let page = read(&ledger).await;
    api.take_requests();
    let same = ledger
        .write_status(&page, |status| status.voters = Some(3))
        .await;
    assert!(same.unwrap().is_none());
    assert!(api.take_requests().is_empty());

    let (granted, _) = record(&ledger, &page, 0).await;
    let late = ledger
        .write_status(&page, |status| status.voters = Some(2))
        .await;
    assert!(matches!(late, Err(LedgerError::Conflict)), "{late:?}");
    assert_eq!(read(&ledger).await.grants, granted.grants);
}

#[tokio::test]
async fn a_grant_keeps_what_others_wrote() {
    let (api, ledger, _) = ledger_with(&json!({"voters": 3, "leader": "etcd-1"}));
    let page = read(&ledger).await;
    let _ = record(&ledger, &page, 0).await;
    let status = api.get(BUDGET).unwrap()["status"].clone();
    assert_eq!(
        (&status["voters"], &status["leader"]),
        (&json!(3), &json!("etcd-1"))
    );
}

/// A later write of its field manager renews the time that the API server has for an announcement.
#[tokio::test]
async fn an_announcement_is_recorded_as_of_when_it_was_first_seen() {
    let (_, ledger, _) = ledger_with(&json!({"expectedMembers": 3, "observedReplicas": 3}));
    let mut page = read(&ledger).await;
    let at = |hour: i8| jiff::civil::datetime(2026, 1, 1, hour, 0, 0, 0);
    let at = |hour| {
        at(hour)
            .to_zoned(jiff::tz::TimeZone::UTC)
            .unwrap()
            .timestamp()
    };
    for (uid, announced, recorded) in [
        ("s", None, None),
        ("s", Some(("delete", None)), None),
        ("s", Some(("delete", Some(1))), Some(("delete", 1))),
        ("s", Some(("delete", Some(2))), Some(("delete", 1))),
        ("s", Some(("delete", None)), Some(("delete", 1))),
        ("s", Some(("scale-in", Some(3))), Some(("scale-in", 3))),
        ("s", None, None),
        ("s", Some(("scale-in", Some(4))), Some(("scale-in", 4))),
        ("t", Some(("scale-in", Some(5))), Some(("scale-in", 5))),
    ] {
        let announced = announced.map(|(value, hour): (&str, _)| (value.to_owned(), hour.map(at)));
        let update = StatusUpdate {
            stateful_set: Some(SetFound::Here(SetSeen {
                uid: uid.into(),
                owners: Vec::new(),
                announced: announced.clone(),
            })),
            ..StatusUpdate::default()
        };
        if let Some(after) = ledger.update(&page, update).await.unwrap() {
            page = after;
        }
        let known = page.status().unwrap().stateful_set.clone().unwrap();
        let known = known.announcement.map(|known| (known.value, known.since));
        let recorded = recorded.map(|(value, hour)| (value.to_owned(), at(hour).to_string()));
        assert_eq!(known, recorded, "{announced:?} on {uid}");
    }
}

#[tokio::test]
async fn a_stateful_set_that_left_its_pods_is_recorded_as_that_until_there_is_another() {
    let (_, ledger, _) = ledger_with(&json!({"statefulSet": {"uid": "s"}}));
    let page = read(&ledger).await;
    let orphaned = StatusUpdate {
        stateful_set: Some(SetFound::Orphaned),
        ..StatusUpdate::default()
    };
    let page = ledger.update(&page, orphaned).await.unwrap().unwrap();
    let is_orphaned = |status: &QuorumDisruptionBudgetStatus| {
        status.stateful_set.as_ref().is_some_and(|set| set.orphaned)
    };
    assert!(is_orphaned(page.status().unwrap()));
    assert!(is_orphaned(&page.status_after(StatusUpdate::default())));
    let anew = StatusUpdate {
        stateful_set: Some(SetFound::Here(SetSeen {
            uid: "t".into(),
            owners: Vec::new(),
            announced: None,
        })),
        ..StatusUpdate::default()
    };
    assert!(!is_orphaned(&page.status_after(anew)));
}

#[tokio::test]
async fn an_announcement_on_the_budget_is_recorded_as_of_when_it_was_first_seen() {
    let (_, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let then: jiff::Timestamp = "2026-01-01T10:00:00Z".parse().unwrap();
    let later: jiff::Timestamp = "2026-01-02T10:00:00Z".parse().unwrap();
    let said = |at| Some(("bootstrap".to_owned(), Some(at)));
    let update = |announced| StatusUpdate {
        announced: Some(announced),
        ..StatusUpdate::default()
    };
    let page = ledger.update(&page, update(said(then))).await.unwrap();
    let page = page.unwrap();
    let after = page.status_after(update(said(later)));
    assert_eq!(after.announcement.unwrap().since, then.to_string());
    assert_eq!(page.status_after(update(None)).announcement, None);
    let kept = page.status_after(StatusUpdate::default());
    assert!(kept.announcement.is_some(), "nobody looked");
}

#[tokio::test]
async fn what_a_judgement_saw_is_kept_with_its_grant() {
    let (_, ledger, _) = ledger_with(&json!({"expectedMembers": 3, "observedReplicas": 3}));
    let page = read(&ledger).await;
    let set = SetSeen {
        uid: "s".into(),
        owners: Vec::new(),
        announced: None,
    };
    let update = StatusUpdate {
        expected: Some(ExpectedVoters {
            voters: 3,
            replicas: 5,
        }),
        cluster_id: Some(ClusterId(0xabc)),
        stateful_set: Some(SetFound::Here(set)),
        selector: Some("app=etcd".into()),
        ..StatusUpdate::default()
    };
    let (after, _) = ledger
        .record(&page, &yes(&page.grants, 0), update)
        .await
        .unwrap();
    let status = after.status().unwrap();
    assert_eq!(
        after.expected,
        ExpectedVoters {
            voters: 3,
            replicas: 5
        }
    );
    assert_eq!(after.cluster_id(), Some(ClusterId(0xabc)));
    assert_eq!(status.stateful_set.as_ref().unwrap().uid, "s");
    assert_eq!(status.selector.as_deref(), Some("app=etcd"));
    let grown = status.scale_out.clone().unwrap();
    assert_eq!(
        (grown.to, grown.settled),
        (5, false),
        "it grew since the last look"
    );

    let smaller = StatusUpdate {
        expected: Some(ExpectedVoters {
            voters: 3,
            replicas: 3,
        }),
        ..StatusUpdate::default()
    };
    let after = ledger.update(&after, smaller).await.unwrap().unwrap();
    assert_eq!(
        after.status().unwrap().scale_out,
        None,
        "a scale-in ends a scale-out"
    );
}

#[tokio::test]
async fn a_refilled_member_is_on_record_until_it_is_replaced_or_accepted() {
    let member =
        |id: &str| json!({"name": "etcd-1", "memberID": id, "role": "Voter", "serving": true});
    let (api, ledger, _) = ledger_with(&json!({"members": [member("9")]}));
    let page = read(&ledger).await;
    let found = Timestamp::from_second(50).unwrap();
    let refilled = |id| StatusUpdate {
        refilled: vec![(PodName::new("etcd-1"), MemberId(id), found)],
        ..StatusUpdate::default()
    };
    let after = ledger.update(&page, refilled(9)).await.unwrap().unwrap();
    assert_eq!(after.refills(), [MemberId(9)]);
    // The next look finds nothing, and the record stays.
    let again = ledger.update(&after, StatusUpdate::default()).await;
    assert!(again.unwrap().is_none());
    let status = api.get(BUDGET).unwrap()["status"].clone();

    let accepted_at = |second| {
        let at = Timestamp::from_second(second).unwrap().to_string();
        let mut budget = api.get(BUDGET).unwrap();
        budget["metadata"]["annotations"] = json!({ACCEPT_DATA_LOSS: at});
        budget["status"] = status.clone();
        api.put(BUDGET, budget);
    };
    accepted_at(49);
    assert_eq!(
        read(&ledger).await.refills(),
        [MemberId(9)],
        "an earlier one"
    );
    accepted_at(51);
    let none = read(&ledger).await.refills();
    assert_eq!(none, [MemberId(9)], "whatever is found until then");
    accepted_at(50);
    let page = read(&ledger).await;
    assert_eq!(page.refills(), []);
    let after = ledger.update(&page, StatusUpdate::default()).await;
    assert!(after.unwrap().unwrap().status().unwrap().refills.is_empty());

    put_budget(&api, "uid-a", &status);
    let page = read(&ledger).await;
    let replaced = |status: &mut QuorumDisruptionBudgetStatus| {
        status.members[0].member_id = Some("a".into());
    };
    let page = ledger.write_status(&page, replaced).await.unwrap().unwrap();
    let after = ledger.update(&page, StatusUpdate::default()).await;
    assert!(after.unwrap().unwrap().refills().is_empty());
}

#[tokio::test]
async fn that_a_cluster_once_worked_is_never_forgotten() {
    let (_, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    assert!(!page.is_formed());
    let formed = |formed| StatusUpdate {
        formed,
        ..StatusUpdate::default()
    };
    let after = ledger.update(&page, formed(true)).await.unwrap().unwrap();
    assert!(after.is_formed());
    let again = ledger.update(&after, formed(false)).await.unwrap();
    assert!(again.is_none_or(|page| page.is_formed()));
}

#[tokio::test]
async fn a_first_look_is_no_scale_out() {
    let (_, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let update = StatusUpdate {
        expected: Some(ExpectedVoters {
            voters: 3,
            replicas: 3,
        }),
        ..StatusUpdate::default()
    };
    let after = ledger.update(&page, update).await.unwrap().unwrap();
    assert_eq!(after.status().unwrap().scale_out, None);
}

/// The API server stores the 0 after the record is written, and looks go on in between.
#[tokio::test]
async fn the_record_of_a_hibernation_ends_when_the_replicas_come_back() {
    let (_, ledger, _) = ledger_with(&json!({}));
    let page = read(&ledger).await;
    let admitted = RecordedDelete {
        uid: "set-1".into(),
        by: "anna".into(),
        keeps_claims: false,
        time: "2026-11-27T10:00:00Z".into(),
    };
    let (mut page, _) = ledger.admit_hibernation(&page, admitted).await.unwrap();
    for (replicas, is_recorded) in [(3, true), (0, true), (3, false)] {
        let seen = StatusUpdate {
            expected: Some(ExpectedVoters {
                voters: replicas,
                replicas,
            }),
            ..StatusUpdate::default()
        };
        if let Some(after) = ledger.update(&page, seen).await.unwrap() {
            page = after;
        }
        let recorded = &page.status().unwrap().recorded_deletes.hibernation;
        assert_eq!(recorded.is_some(), is_recorded, "{replicas} replicas");
    }
}

fn standing(uid: &str, replicas: u32, now: &str) -> StandingSet {
    StandingSet {
        uid: uid.to_owned(),
        kept: 0..replicas,
        now: now.parse().unwrap(),
    }
}

/// Otherwise a later scale-in that nobody asked about would be believed.
#[tokio::test]
async fn a_scale_in_or_hibernation_that_came_to_nothing_is_forgotten_after_an_hour() {
    let (then, soon, later) = (
        "2026-01-01T10:00:00Z",
        "2026-01-01T10:59:00Z",
        "2026-01-01T11:01:00Z",
    );
    let ordinals = json!([{"first": 3, "last": 4}]);
    let recorded = json!({
        "scaleIn": {"statefulSetUID": "s", "ordinals": ordinals, "by": "ann", "time": then},
        "hibernation": {"uid": "s", "by": "ann", "time": then},
    });
    let (_, ledger, _) = ledger_with(&json!({"recordedDeletes": recorded}));
    for (uid, replicas, now, scale_in, hibernation) in [
        ("s", 5, soon, true, true),
        ("another", 5, later, true, true),
        ("s", 5, later, false, false),
        ("s", 4, later, true, false),
        ("s", 0, later, true, true),
    ] {
        let page = read(&ledger).await;
        let update = StatusUpdate {
            standing: Some(standing(uid, replicas, now)),
            ..StatusUpdate::default()
        };
        let after = page.status_after(update).recorded_deletes;
        let left = (after.scale_in.is_some(), after.hibernation.is_some());
        assert_eq!(left, (scale_in, hibernation), "{uid} {replicas} {now}");
    }
}

/// Another webhook may refuse what this one admitted.
#[tokio::test]
async fn an_admitted_delete_that_came_to_nothing_is_forgotten_after_an_hour() {
    let deletes =
        json!({"statefulSets": [{"uid": "s", "by": "ann", "time": "2026-01-01T10:00:00Z"}]});
    let (_, ledger, _) = ledger_with(&json!({"recordedDeletes": deletes}));
    for (uid, now, kept) in [
        ("s", "2026-01-01T10:59:00Z", 1),
        ("another", "2026-01-01T12:00:00Z", 1),
        ("s", "2026-01-01T11:01:00Z", 0),
    ] {
        let page = read(&ledger).await;
        let update = StatusUpdate {
            standing: Some(standing(uid, 3, now)),
            ..StatusUpdate::default()
        };
        let after = page.status_after(update);
        let recorded = after.recorded_deletes.stateful_sets;
        assert_eq!(recorded.len(), kept, "{uid} at {now}");
    }
}

#[tokio::test]
async fn a_budget_is_created_once_and_read_by_whoever_comes_second() {
    let (api, ledger, _) = ledger_with(&json!({}));
    api.remove(BUDGET);
    let first = ledger.create(&cluster()).await.unwrap();
    let second = ledger.create(&cluster()).await.unwrap();
    assert_eq!(first.uid, second.uid);
}

#[tokio::test]
async fn a_second_budget_for_one_etcd_cluster_is_found() {
    let (api, ledger, _) = ledger_with(&json!({"clusterID": "abc"}));
    let other = "/apis/quorumgate.io/v1alpha1/namespaces/other/quorumdisruptionbudgets/copy";
    let budget = |id: &str| {
        json!({
            "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
            "metadata": {"name": "copy", "namespace": "other"}, "spec": {"statefulSetName": "copy"},
            "status": {"clusterID": id},
        })
    };
    api.put(other, budget("def"));
    let page = read(&ledger).await;
    let id = page.cluster_id().unwrap();
    assert_eq!(ledger.sharing(&page, id).await.unwrap(), []);
    api.put(other, budget("abc"));
    let sharing = ledger.sharing(&page, id).await.unwrap();
    assert_eq!(sharing, [crate::quorum::ClusterRef::new("other", "copy")]);
    let mut unreadable = api.get(other).unwrap();
    unreadable["spec"] = json!({"enforcement": "SomedayMaybe"});
    api.put(other, unreadable);
    let sharing = ledger.sharing(&page, id).await.unwrap();
    assert_eq!(sharing, [crate::quorum::ClusterRef::new("other", "copy")]);
}

#[tokio::test]
async fn admitted_deletes_are_remembered_once_each_and_not_without_end() {
    let (_, ledger, _) = ledger_with(&json!({}));
    let mut page = read(&ledger).await;
    for uid in (0..10).chain([9]) {
        let admitted = RecordedDelete {
            uid: format!("s{uid}"),
            by: "ann".into(),
            keeps_claims: false,
            time: "noon".into(),
        };
        page = ledger.admit_delete(&page, admitted).await.unwrap().0;
    }
    let kept = &page.status().unwrap().recorded_deletes.stateful_sets;
    let kept: Vec<_> = kept.iter().map(|set| set.uid.as_str()).collect();
    assert_eq!(kept, ["s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"]);
}

async fn record(
    ledger: &crate::ledger::Ledger,
    page: &crate::ledger::Page,
    ordinal: u32,
) -> (crate::ledger::Page, Recorded) {
    let grants = yes(&page.grants, ordinal);
    ledger
        .record(page, &grants, StatusUpdate::default())
        .await
        .unwrap()
}
