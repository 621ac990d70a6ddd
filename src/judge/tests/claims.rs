//! The judgement of claims, and of pods whose claim is terminating, against an API server in
//! memory. The members are judged by the readiness of their pods.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Court, ground, question};
use crate::fake_api::etcd::{BUDGET, NAMESPACE, SET, budget_json, set_json};
use crate::judge::{Answer, Asker, ClaimChange, ClaimQuestion, DryRun, Ground, Question, Refused};
use crate::quorum::{Actor, Basis, Kind, Reason, Teardown, Waiver};

const CLAIMS: &str = "/api/v1/namespaces/db/persistentvolumeclaims";
const UNTIL: &str = "2026-01-01T13:00:00Z";

/// A cluster of three with a claim each. Its ledger is trusted.
async fn court() -> Court {
    let court = Court::new().await;
    let trusted = json!({"status": {"ledger": {"trusted": true, "budgetUID": "budget-1"}}});
    put_budget(&court, &trusted);
    put_set(&court, &json!({}));
    for ordinal in 0..3 {
        put_pod(&court, ordinal, &json!({}));
        put_claim(&court, ordinal, false);
    }
    court
}

fn put_budget(court: &Court, change: &Value) {
    let mut budget = budget_json(&json!({"spec": {"members": {"evidence": "Readiness"}}}));
    json_patch::merge(&mut budget, change);
    court.api.put(BUDGET, budget);
}

fn put_set(court: &Court, change: &Value) {
    let template = json!({"metadata": {"name": "data"}});
    let mut set = set_json(&json!({
        "metadata": {"labels": {"quorumgate.io/enroll": "true"}},
        "spec": {"volumeClaimTemplates": [template]},
    }));
    json_patch::merge(&mut set, change);
    court.api.put(SET, set);
}

fn put_pod(court: &Court, ordinal: u32, change: &Value) {
    let claim = json!({"claimName": format!("data-etcd-{ordinal}")});
    let mut pod = crate::fake_api::etcd::pod_json(
        ordinal,
        &json!({"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": claim}]}}),
    );
    json_patch::merge(&mut pod, change);
    court
        .api
        .put(&format!("{NAMESPACE}/pods/etcd-{ordinal}"), pod);
}

/// Makes a member dead: its container has ended, and nothing is ready.
fn kill(court: &Court, ordinal: u32) {
    let ended = json!({"status": {
        "conditions": [{"type": "Ready", "status": "False"}],
        "containerStatuses": [{
            "name": "etcd", "image": "etcd", "imageID": "", "ready": false, "restartCount": 3,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        }],
    }});
    put_pod(court, ordinal, &ended);
}

fn put_claim(court: &Court, ordinal: u32, terminating: bool) {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("data-etcd-{ordinal}"), "namespace": "db", "uid": format!("c{ordinal}")},
    });
    if terminating {
        claim["metadata"]["deletionTimestamp"] = json!("2026-01-01T11:59:59Z");
    }
    let name = format!("{CLAIMS}/data-etcd-{ordinal}");
    court.api.put(&name, claim);
}

fn about(claim: &str) -> ClaimQuestion {
    ClaimQuestion {
        namespace: "db".into(),
        claim: claim.into(),
        change: ClaimChange::Delete { collected: false },
        asker: Asker {
            name: "anna".into(),
            actor: Actor::Stranger,
        },
        dry_run: DryRun::No,
        deadline: Instant::now() + Duration::from_secs(4),
    }
}

async fn ask(court: &Court, claim: &str) -> Answer {
    court.judge.judge_claim_deletion(about(claim)).await
}

/// May this pod be deleted?
async fn delete(court: &Court, pod: &str) -> Answer {
    let asked = Question {
        pod: pod.into(),
        kind: Kind::Delete,
        ..question(None)
    };
    court.judge.judge_pod(asked).await
}

fn slug(answer: &Answer) -> &'static str {
    match &answer.decision {
        Ok(allowed) => allowed.slug(),
        Err(refused) => refused.slug(),
    }
}

/// The kinds of the causes on record, with their members.
fn grants(court: &Court) -> Vec<(String, Vec<String>)> {
    let budget = court.api.get(BUDGET).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let causes = |grant: &Value| -> Vec<String> {
        let causes = grant["causes"].as_array().unwrap();
        causes.iter().map(|cause| text(&cause["kind"])).collect()
    };
    let grants = budget["status"]["grants"].as_array().cloned();
    let grants = grants.unwrap_or_default();
    grants
        .iter()
        .map(|grant| (text(&grant["member"]), causes(grant)))
        .collect()
}

fn recorded(member: &str, kinds: &[&str]) -> Vec<(String, Vec<String>)> {
    let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
    vec![(member.to_owned(), kinds)]
}

#[tokio::test]
async fn the_claim_of_a_serving_member_stays_and_that_of_a_dead_one_goes_by_the_ledger() {
    let court = court().await;
    let answer = ask(&court, "data-etcd-1").await;
    let Err(Refused::Deny(Reason::ClaimInUse { claim, members })) = &answer.decision else {
        panic!("{answer:?}");
    };
    assert_eq!(claim, "data-etcd-1");
    assert_eq!(members, &["etcd-1".into()]);
    assert!(grants(&court).is_empty());

    kill(&court, 1);
    let answer = ask(&court, "data-etcd-1").await;
    let by_majority = matches!(
        ground(&answer),
        Some(Ground::Recorded(Basis::Majority { .. }, _))
    );
    assert!(by_majority, "{answer:?}");
    assert_eq!(grants(&court), recorded("etcd-1", &["Replace"]));
    assert_eq!(answer.headroom, Some(0));

    // Another copy may not go meanwhile.
    kill(&court, 2);
    let answer = ask(&court, "data-etcd-2").await;
    assert!(
        matches!(answer.decision, Err(Refused::Wait(_))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn the_last_good_copy_stays_and_so_does_every_copy_in_hibernation() {
    let court = court().await;
    kill(&court, 0);
    kill(&court, 1);
    for claim in ["data-etcd-0", "data-etcd-1"] {
        let answer = ask(&court, claim).await;
        assert!(
            matches!(answer.decision, Err(Refused::Wait(_))),
            "{claim}: {answer:?}"
        );
    }
    hibernate(&court);
    let answer = ask(&court, "data-etcd-2").await;
    assert_eq!(slug(&answer), "LastCopy", "{answer:?}");
    assert!(grants(&court).is_empty());
}

fn hibernate(court: &Court) {
    let hibernation = json!({"uid": "set-1", "by": "anna", "time": "noon"});
    let mut budget = court.api.get(BUDGET).unwrap();
    budget["status"]["recordedDeletes"] = json!({"hibernation": hibernation});
    court.api.put(BUDGET, budget);
    put_set(court, &json!({"spec": {"replicas": 0}}));
    for ordinal in 0..3 {
        court
            .api
            .remove(&format!("{NAMESPACE}/pods/etcd-{ordinal}"));
    }
}

/// Kubernetes protects a volume for pods that run. Of a member that is stopped it goes with the
/// data, and the claim that stays says nothing of that.
#[tokio::test]
async fn the_volume_of_a_stopped_member_stays_like_its_claim() {
    let court = court().await;
    hibernate(&court);
    let path = format!("{CLAIMS}/data-etcd-2");
    let mut claim = court.api.get(&path).unwrap();
    claim["spec"] = json!({"volumeName": "pv-2"});
    court.api.put(&path, claim);
    let take = || ClaimQuestion {
        change: ClaimChange::TakeVolume("pv-2".into()),
        ..about("data-etcd-2")
    };
    let answer = court.judge.judge_claim_deletion(take()).await;
    let ground = ground(&answer);
    assert!(matches!(ground, Some(Ground::Waived(Waiver::Foreign))));
    let mut budget = court.api.get(BUDGET).unwrap();
    budget["status"]["volumes"] = json!([{
        "member": "etcd-2", "memberID": "3", "podUID": "p2", "claimUID": "c2",
        "volumeID": "pv-2/u2",
    }]);
    court.api.put(BUDGET, budget);
    let answer = court.judge.judge_claim_deletion(take()).await;
    assert_eq!(slug(&answer), "LastCopy", "{answer:?}");
}

#[tokio::test]
async fn what_is_no_members_claim_passes_and_what_has_no_budget_waits() {
    let court = court().await;
    for foreign in ["data-web-0", "data-web-etcd-1", "other-etcd-1"] {
        let answer = ask(&court, foreign).await;
        let is_foreign = matches!(ground(&answer), Some(Ground::Waived(Waiver::Foreign)));
        assert!(is_foreign, "{foreign}: {answer:?}");
    }
    court.api.remove(BUDGET);
    let answer = ask(&court, "data-etcd-1").await;
    assert_eq!(
        answer.decision.unwrap_err(),
        Refused::Wait(Reason::NoLedger)
    );
    court.api.undefine("quorumdisruptionbudgets");
    let answer = ask(&court, "data-etcd-1").await;
    assert_eq!(
        answer.decision.unwrap_err(),
        Refused::Wait(Reason::NoDefinition)
    );
}

/// An override and a teardown pass whether or not anything can be recorded.
#[tokio::test]
async fn rules_3_and_6_come_first_for_claims_too() {
    let overridden = json!({"metadata": {"annotations": {"quorumgate.io/override-until": UNTIL}}});
    let goes = json!({"metadata": {"deletionTimestamp": "2026-01-01T11:00:00Z"}});
    let namespace =
        json!({"metadata": {"name": "db", "deletionTimestamp": "2026-01-01T11:59:59Z"}});

    let here = court().await;
    put_pod(&here, 1, &overridden);
    let answer = ask(&here, "data-etcd-1").await;
    let by_override = matches!(ground(&answer), Some(Ground::Recorded(Basis::Override, _)));
    assert!(by_override, "{answer:?}");
    assert_eq!(grants(&here), recorded("etcd-1", &["Replace"]));
    assert!(answer.warnings.iter().any(|w| w.contains("by an override")));
    let refused = ask(&here, "data-etcd-2").await;
    assert!(
        refused.decision.is_err(),
        "the override is on one pod: {refused:?}"
    );

    let without_budget = court().await;
    put_set(&without_budget, &overridden);
    without_budget.api.remove(BUDGET);
    let answer = ask(&without_budget, "data-etcd-1").await;
    assert!(
        matches!(ground(&answer), Some(Ground::Unrecorded)),
        "{answer:?}"
    );

    for (what, teardown) in [
        ("namespace", Teardown::Namespace),
        ("set", Teardown::StatefulSet),
    ] {
        for budget in [true, false] {
            let torn_down = court().await;
            match what {
                "namespace" => torn_down.api.put(NAMESPACE, namespace.clone()),
                _ => put_set(&torn_down, &goes),
            }
            if !budget {
                torn_down.api.remove(BUDGET);
            }
            let answer = ask(&torn_down, "data-etcd-1").await;
            let Some(Ground::Waived(Waiver::Teardown(found))) = ground(&answer) else {
                panic!("{what}, budget {budget}: {answer:?}");
            };
            assert_eq!(*found, teardown);
        }
    }
}

/// A reading or a write that fails is a reason to wait, but for an override.
/// The garbage collector deletes claims that name a StatefulSet or pod which is gone.
#[tokio::test]
async fn what_the_garbage_collector_takes_was_meant_to_go() {
    let collected = async |court: &Court| {
        let question = ClaimQuestion {
            change: ClaimChange::Delete { collected: true },
            ..about("data-etcd-2")
        };
        slug(&court.judge.judge_claim_deletion(question).await)
    };
    let court = court().await;
    court.api.remove(&format!("{NAMESPACE}/pods/etcd-2"));
    assert_eq!(
        collected(&court).await,
        "ClaimDisowned",
        "its pod comes back"
    );
    let gone = |keeps: bool| {
        let delete = json!({"uid": "set-1", "by": "ann", "time": "noon", "keepsClaims": keeps});
        json!({"status": {
            "statefulSet": {"uid": "set-1"},
            "recordedDeletes": {"statefulSets": [delete]},
        }})
    };
    for ordinal in 0..2 {
        court
            .api
            .remove(&format!("{NAMESPACE}/pods/etcd-{ordinal}"));
    }
    court.api.remove(SET);
    put_budget(&court, &gone(true));
    let kept = collected(&court).await;
    assert!(!["Teardown", "NotAMember"].contains(&kept), "{kept}");
    put_budget(&court, &gone(false));
    assert_eq!(collected(&court).await, "TeardownStatefulSet");
}

#[tokio::test]
async fn an_override_of_a_claim_waits_for_no_other_reading_and_for_no_write() {
    let overridden = json!({"metadata": {"annotations": {"quorumgate.io/override-until": UNTIL}}});
    for is_lifted in [false, true] {
        let court = court().await;
        if is_lifted {
            put_set(&court, &overridden);
        }
        court.api.undefine("leases");
        let answer = ask(&court, "data-etcd-1").await;
        if is_lifted {
            let by_override = matches!(ground(&answer), Some(Ground::Recorded(Basis::Override, _)));
            assert!(by_override, "{answer:?}");
        } else {
            assert_eq!(slug(&answer), "Unavailable", "{answer:?}");
        }
    }
    let court = court().await;
    put_set(&court, &overridden);
    court.api.conflict_always();
    let soon = ClaimQuestion {
        deadline: Instant::now() + Duration::from_secs(1),
        ..about("data-etcd-1")
    };
    let answer = court.judge.judge_claim_deletion(soon).await;
    assert!(
        matches!(ground(&answer), Some(Ground::Unrecorded)),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_a_warning_lets_the_claim_go() {
    let dry = court().await;
    kill(&dry, 1);
    let asked = ClaimQuestion {
        dry_run: DryRun::Yes,
        ..about("data-etcd-1")
    };
    let answer = dry.judge.judge_claim_deletion(asked).await;
    assert!(
        matches!(ground(&answer), Some(Ground::DryRun(_))),
        "{answer:?}"
    );
    assert!(grants(&dry).is_empty());

    put_budget(&dry, &json!({"spec": {"enforcement": "Warn"}}));
    put_pod(&dry, 1, &json!({}));
    let answer = ask(&dry, "data-etcd-1").await;
    let Some(Ground::Warned(Refused::Deny(Reason::ClaimInUse { .. }))) = ground(&answer) else {
        panic!("{answer:?}");
    };
}

#[tokio::test]
async fn a_pod_whose_claim_is_terminating_takes_two_grants_and_leaves_a_majority() {
    let court = court().await;
    put_claim(&court, 1, true);
    let answer = delete(&court, "etcd-1").await;
    let by_majority = matches!(
        ground(&answer),
        Some(Ground::Recorded(Basis::Majority { .. }, _))
    );
    assert!(by_majority, "{answer:?}");
    assert_eq!(grants(&court), recorded("etcd-1", &["Delete", "Replace"]));
    let told = |answer: &Answer| {
        answer
            .warnings
            .iter()
            .any(|w| w.contains("its data is destroyed"))
    };
    assert!(told(&answer), "{answer:?}");

    let ordinary = self::court().await;
    let answer = delete(&ordinary, "etcd-1").await;
    assert!(answer.decision.is_ok() && !told(&answer), "{answer:?}");
    assert_eq!(grants(&ordinary), recorded("etcd-1", &["Delete"]));
}

#[tokio::test]
async fn whoever_asks_is_told_of_a_hook_that_removes_the_member() {
    let court = court().await;
    let hook = json!({"exec": {"command": ["sh", "-c", "etcdctl member remove $ID"]}});
    let containers = json!([{"name": "etcd", "lifecycle": {"preStop": hook}}]);
    put_pod(&court, 1, &json!({"spec": {"containers": containers}}));
    for pod in ["etcd-1", "etcd-2"] {
        let told = delete(&court, pod).await.warnings;
        let of_hook = told
            .iter()
            .any(|w| w.contains("preStop hook of its container etcd"));
        assert_eq!(of_hook, pod == "etcd-1", "{told:?}");
    }
}

/// The only member of a cluster may go by the default policy, as long as its data stays.
#[tokio::test]
async fn a_pod_that_would_take_the_last_copy_along_waits() {
    for (terminating, expected) in [(false, "SingleMember"), (true, "LastCopy")] {
        let court = court().await;
        put_set(&court, &json!({"spec": {"replicas": 1}}));
        for ordinal in 1..3 {
            court
                .api
                .remove(&format!("{NAMESPACE}/pods/etcd-{ordinal}"));
        }
        put_claim(&court, 0, terminating);
        let answer = delete(&court, "etcd-0").await;
        assert_eq!(slug(&answer), expected, "{answer:?}");
    }
}

/// The claim makes a difference only where the pod might go without a majority of the others.
#[tokio::test]
async fn a_claim_that_cannot_be_read_is_a_reason_of_its_own() {
    let whole = court().await;
    whole.api.forbid("persistentvolumeclaims");
    let answer = delete(&whole, "etcd-1").await;
    assert!(answer.decision.is_ok(), "{answer:?}");
    assert_eq!(grants(&whole), recorded("etcd-1", &["Delete"]));

    let single = court().await;
    put_set(&single, &json!({"spec": {"replicas": 1}}));
    for ordinal in 1..3 {
        single
            .api
            .remove(&format!("{NAMESPACE}/pods/etcd-{ordinal}"));
    }
    single.api.forbid("persistentvolumeclaims");
    let answer = delete(&single, "etcd-0").await;
    let Err(Refused::Wait(Reason::Unavailable { what })) = &answer.decision else {
        panic!("{answer:?}");
    };
    assert!(
        what.starts_with("could not read the claim data-etcd-0"),
        "{what}"
    );
    let overridden = json!({"metadata": {"annotations": {"quorumgate.io/override-until": UNTIL}}});
    put_pod(&single, 0, &overridden);
    let answer = delete(&single, "etcd-0").await;
    assert!(
        matches!(ground(&answer), Some(Ground::Recorded(Basis::Override, _))),
        "{answer:?}"
    );
}

/// The delete of the claim may be on its way while its permission is open.
#[tokio::test]
async fn a_pod_whose_replacement_is_permitted_is_judged_as_if_its_claim_went() {
    let court = court().await;
    put_set(&court, &json!({"spec": {"replicas": 1}}));
    for ordinal in 1..3 {
        court
            .api
            .remove(&format!("{NAMESPACE}/pods/etcd-{ordinal}"));
    }
    let replaced = json!({"kind": "Replace", "seq": 1, "by": "anna", "time": "noon"});
    put_budget(
        &court,
        &json!({"status": {
            "ledger": {"trusted": true, "budgetUID": "budget-1", "lastSeq": 1},
            "grants": [{"member": "etcd-0", "causes": [replaced]}],
        }}),
    );
    let answer = delete(&court, "etcd-0").await;
    assert_eq!(slug(&answer), "LastCopy", "{answer:?}");
}
