//! The form of answers, and their traces in metrics and logs.

use quorumgate::judge::{Ground, Refused};
use quorumgate::quorum::{Basis, Count, NotServing, ProcessState, Reason, Why};
use serde_json::json;

use super::door::{Door, World, allow, deny, fixture, wait, with};

fn no_headroom() -> Reason {
    Reason::NoHeadroom(Count {
        target: "etcd-main-1".to_owned(),
        voters: 3,
        serving: 2,
        left: 1,
        needed: 2,
        missing: 0,
        in_flight: vec!["etcd-main-0".into()],
        not_serving: vec![NotServing {
            member: "etcd-main-2".to_owned(),
            process: ProcessState::Alive,
            why: Why::NoLeader,
        }],
    })
}

#[tokio::test]
async fn s2_wait_is_429_with_causes_and_n22_without_retry_after() {
    let door = Door::answering(|_| wait(no_headroom()));
    let reply = door.post("/validate/evictions", &fixture("eviction")).await;
    assert!(!reply.is_allowed());
    let status = &reply.response()["status"];
    assert_eq!(status["code"], 429);
    assert_eq!(status["reason"], "TooManyRequests");
    assert_eq!(status["status"], "Failure");
    let details = &status["details"];
    assert_eq!(details["name"], "etcd-main-1");
    assert_eq!(details["kind"], "pods");
    assert!(details.get("retryAfterSeconds").is_none());
    assert!(!reply.headers.contains_key("retry-after"));
    let causes = details["causes"].as_array().unwrap();
    let words: Vec<_> = causes
        .iter()
        .map(|c| c["reason"].as_str().unwrap())
        .collect();
    assert_eq!(
        words,
        ["NoHeadroom", "DisruptionInFlight", "MemberNotServing"]
    );
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("pod shoot/etcd-main-1 cannot be deleted now: "),
        "{message}"
    );
    assert!(message.contains("etcd-main-2"), "{message}");
}

#[tokio::test]
async fn deny_is_403_and_names_the_field() {
    let door = Door::answering(|_| {
        deny(Reason::AtMostOnce {
            pod: "etcd-main-0".into(),
        })
    });
    let reply = door.post("/validate/pods", &fixture("pod-delete")).await;
    let status = &reply.response()["status"];
    assert_eq!(status["code"], 403);
    assert_eq!(status["reason"], "Forbidden");
    assert_eq!(
        status["details"]["uid"],
        "b3a7c1a2-6d0e-4a43-8f2d-3f0b35d3f3b0"
    );
    let cause = &status["details"]["causes"][0];
    assert_eq!(cause["reason"], "AtMostOnce");
    assert_eq!(cause["field"], "gracePeriodSeconds");
}

#[tokio::test]
async fn every_answer_carries_audit_annotations() {
    let door = Door::answering(|_| wait(no_headroom()));
    let reply = door.post("/validate/pods", &fixture("pod-delete")).await;
    assert_eq!(
        reply.response()["auditAnnotations"],
        json!({"verdict": "wait", "reason": "NoHeadroom", "headroom": "-1", "cluster": "shoot/etcd-main"})
    );
    let door = Door::answering(|_| {
        let basis = Basis::Majority {
            others: 2,
            majority: 2,
        };
        allow(Ground::DryRun(basis))
    });
    let reply = door.post("/validate/pods", &fixture("pod-delete")).await;
    assert!(reply.is_allowed());
    assert!(reply.response().get("status").is_none());
    assert_eq!(reply.response()["auditAnnotations"]["reason"], "Majority");
}

#[tokio::test]
async fn warnings_are_passed_on_at_a_length_that_the_api_server_takes() {
    let door = Door::answering(|_| {
        let mut answer = allow(Ground::Ungranted);
        answer.warnings = vec!["an override is in use".to_owned(), "ü".repeat(400)];
        answer
    });
    let reply = door.post("/validate/pods", &fixture("pod-delete")).await;
    assert_eq!(
        reply.response()["auditAnnotations"]["reason"],
        "OverrideUngranted"
    );
    let warnings = reply.response()["warnings"].as_array().unwrap();
    assert_eq!(warnings[0], "an override is in use");
    assert!(warnings[1].as_str().unwrap().len() <= 256);
}

#[tokio::test]
async fn a_refusal_leaves_an_event_on_the_pod_and_a_dry_run_leaves_none() {
    let door = Door::answering(|_| wait(no_headroom()));
    let dry = with(fixture("eviction"), "/request/dryRun", json!(true));
    door.post("/validate/evictions", &dry).await;
    assert!(door.notices().is_empty());
    let tied = with(
        fixture("eviction"),
        "/request/object/deleteOptions",
        json!({"preconditions": {"uid": "u-1"}}),
    );
    door.post("/validate/evictions", &tied).await;
    let [notice] = door.notices().try_into().unwrap();
    assert_eq!(notice.reason, "NoHeadroom");
    assert_eq!(notice.action, "Evict");
    assert_eq!(notice.regarding.kind.as_deref(), Some("Pod"));
    assert_eq!(notice.regarding.name.as_deref(), Some("etcd-main-1"));
    assert_eq!(notice.regarding.uid.as_deref(), Some("u-1"));
    assert!(
        notice
            .note
            .starts_with("refused to drainer: pod shoot/etcd-main-1"),
        "{}",
        notice.note
    );
}

#[tokio::test]
async fn every_answer_is_counted_by_hook_verdict_and_reason() {
    let door = Door::answering(|question| match question.pod.as_str() {
        "etcd-main-0" => deny(Reason::AtMostOnce {
            pod: "etcd-main-0".into(),
        }),
        _ => wait(no_headroom()),
    });
    door.post("/validate/pods", &fixture("pod-delete")).await;
    door.post("/validate/evictions", &fixture("eviction")).await;
    let page = door.exposition();
    for line in [
        r#"quorumgate_decisions_total{hook="pods",verdict="deny",reason="AtMostOnce"} 1"#,
        r#"quorumgate_decisions_total{hook="evictions",verdict="wait",reason="NoHeadroom"} 1"#,
        r#"quorumgate_phase_duration_seconds_count{phase="total"} 2"#,
        "quorumgate_requests_in_flight 0",
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
}

/// Otherwise Prometheus would not see the first of them, and an alert on one would not fire.
#[tokio::test]
async fn what_alerts_and_dashboards_count_begins_at_zero() {
    let page = Door::open().exposition();
    for line in [
        r#"quorumgate_decisions_total{hook="pods",verdict="wait",reason="NoHeadroom"} 0"#,
        r#"quorumgate_decisions_total{hook="evictions",verdict="deny",reason="AtMostOnce"} 0"#,
        r#"quorumgate_decisions_total{hook="evictions",verdict="warn",reason="NoHeadroom"} 0"#,
        r#"quorumgate_rejected_requests_total{hook="claims",reason="Overloaded"} 0"#,
    ] {
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }
}

#[tokio::test]
async fn what_would_be_refused_is_allowed_with_a_warning_where_refusals_are_only_reported() {
    let door = Door::new(World {
        judgement: Box::new(|_| allow(Ground::Warned(Refused::Wait(Reason::NoLedger)))),
        ..World::default()
    });
    let reply = door.post("/validate/pods", &fixture("pod-delete")).await;
    assert!(reply.is_allowed());
    let response = reply.response();
    assert_eq!(response["auditAnnotations"]["verdict"], "warn");
    assert_eq!(response["auditAnnotations"]["reason"], "NoLedger");
    let warning = response["warnings"][0].as_str().unwrap();
    for part in ["enforcement: Warn", "cannot be deleted now"] {
        assert!(warning.contains(part), "{warning}");
    }
    let [notice] = door.notices().try_into().unwrap();
    assert_eq!(notice.reason, "NoLedger");
    assert!(notice.note.contains("otherwise refused"), "{}", notice.note);
}
