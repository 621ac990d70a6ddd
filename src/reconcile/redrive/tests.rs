use k8s_openapi::api::core::v1::{NodeSpec, PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn node(taints: &[(&str, &str, i64)]) -> Node {
    let taint = |(key, effect, added): &(&str, &str, i64)| Taint {
        key: (*key).into(),
        effect: (*effect).into(),
        time_added: Some(Time(at(*added))),
        ..Taint::default()
    };
    Node {
        spec: Some(NodeSpec {
            taints: Some(taints.iter().map(taint).collect()),
            ..NodeSpec::default()
        }),
        ..Node::default()
    }
}

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

fn pod(tolerated_for: Option<i64>) -> Pod {
    let toleration = Toleration {
        key: Some(UNREACHABLE.into()),
        operator: Some("Exists".into()),
        effect: Some("NoExecute".into()),
        toleration_seconds: tolerated_for,
        ..Toleration::default()
    };
    Pod {
        spec: Some(PodSpec {
            tolerations: Some(vec![toleration]),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

fn asked_for() -> Pod {
    let mut pod = pod(None);
    pod.status = Some(PodStatus {
        conditions: Some(vec![PodCondition {
            type_: "DisruptionTarget".into(),
            status: "True".into(),
            reason: Some("DeletionByTaintManager".into()),
            ..PodCondition::default()
        }]),
        ..PodStatus::default()
    });
    pod
}

#[test]
fn a_pod_whose_toleration_is_over_is_due_a_moment_after_the_controllers_turn() {
    let node = node(&[(UNREACHABLE, "NoExecute", 1000)]);
    assert!(!is_due(&pod(Some(300)), &node, at(1300)));
    assert!(is_due(&pod(Some(300)), &node, at(1310)));
}

#[test]
fn a_pod_that_tolerates_the_taint_for_ever_stays() {
    let node = node(&[(UNREACHABLE, "NoExecute", 1000)]);
    assert!(!is_due(&pod(None), &node, at(9_000_000)));
}

#[test]
fn any_number_of_seconds_is_a_toleration() {
    let node = node(&[(UNREACHABLE, "NoExecute", 1000)]);
    for (seconds, due) in [(i64::MAX, false), (i64::MAX - 1, false), (i64::MIN, true)] {
        assert_eq!(
            is_due(&pod(Some(seconds)), &node, at(9_000_000)),
            due,
            "{seconds}"
        );
    }
    let added = |second| self::node(&[(UNREACHABLE, "NoExecute", second)]);
    let (first, last) = (Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    assert!(is_due(&pod(Some(300)), &added(first), Timestamp::MAX));
    assert!(!is_due(&pod(Some(i64::MAX)), &added(last), Timestamp::MIN));
}

#[test]
fn an_untolerated_taint_is_due_at_once() {
    let node = node(&[("maintenance", "NoExecute", 1000)]);
    assert!(is_due(&pod(None), &node, at(1010)));
}

#[test]
fn a_pod_that_was_asked_for_is_due_only_while_the_taint_stands() {
    let tainted = node(&[(UNREACHABLE, "NoExecute", 1000)]);
    assert!(is_due(&asked_for(), &tainted, at(1001)));
    assert!(!is_due(&asked_for(), &node(&[]), at(1001)));
}

#[test]
fn a_taint_that_only_keeps_new_pods_away_takes_none() {
    let node = node(&[("node.kubernetes.io/unschedulable", "NoSchedule", 1000)]);
    assert!(!is_due(&asked_for(), &node, at(9000)));
}

#[test]
fn a_terminating_pod_is_not_asked_for_again() {
    let mut going = asked_for();
    going.metadata.deletion_timestamp = Some(Time(at(1)));
    let node = node(&[(UNREACHABLE, "NoExecute", 1000)]);
    assert!(!is_due(&going, &node, at(9000)));
}
