use jiff::Timestamp;
use serde_json::{Value, json};

use super::{budget, pod, set};
use crate::api::{OverrideState, standing};
use crate::observe::overrides::{ignored, of_pod};
use crate::quorum::OverrideOn;

const VALID: &str = "2026-01-01T13:00:00Z";

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn until(time: &str) -> Value {
    json!({"metadata": {"annotations": {"quorumgate.io/override-until": time}}})
}

fn stands(time: &str) -> bool {
    let pod = pod(&until(time));
    matches!(standing(pod.metadata.annotations.as_ref(), now()), OverrideState::Valid(written) if written == time)
}

#[test]
fn rule_6_an_override_stands_for_at_most_24_hours() {
    assert!(stands(VALID));
    assert!(stands("2026-01-02T12:00:00Z"), "24 h ahead");
    assert!(stands("2026-01-01T13:30:00+01:00"), "with an offset");
    for bad in [
        "2026-01-02T12:00:01Z",
        "2026-01-01T12:00:00Z",
        "2025-12-31T23:59:59Z",
        "2026-01-01T11:30:00-00:00",
        "tomorrow",
        "2026-01-01",
        "true",
        "",
    ] {
        assert!(!stands(bad), "{bad}");
    }
    assert_eq!(standing(None, now()), OverrideState::None);
}

#[test]
fn rule_6_the_pods_own_override_comes_first() {
    let none = json!({});
    let cases = [
        (
            until(VALID),
            until(VALID),
            until(VALID),
            Some(OverrideOn::Pod),
        ),
        (
            none.clone(),
            until(VALID),
            until(VALID),
            Some(OverrideOn::StatefulSet),
        ),
        (
            until("never"),
            none.clone(),
            until(VALID),
            Some(OverrideOn::Budget),
        ),
        (none.clone(), none.clone(), none, None),
    ];
    for (on_pod, on_set, on_budget, expected) in cases {
        let found = of_pod(
            Some(&pod(&on_pod)),
            Some(&set(&on_set)),
            Some(&budget(&on_budget)),
            now(),
        );
        assert_eq!(found.map(|valid| valid.on), expected);
    }
}

#[test]
fn rule_6_a_member_without_a_pod_has_the_override_of_its_set_or_budget() {
    let (set, budget) = (set(&until(VALID)), budget(&until(VALID)));
    let found = |set, budget| of_pod(None, set, budget, now()).map(|valid| valid.on);
    assert_eq!(
        found(Some(&set), Some(&budget)),
        Some(OverrideOn::StatefulSet)
    );
    assert_eq!(found(None, Some(&budget)), Some(OverrideOn::Budget));
    assert_eq!(found(None, None), None);
}

#[test]
fn rule_6_an_override_that_the_template_sets_is_no_persons_word() {
    let template = set(&json!({"spec": {"template": until(VALID)}}));
    assert_eq!(
        of_pod(
            Some(&pod(&until(VALID))),
            Some(&template),
            Some(&budget(&json!({}))),
            now()
        ),
        None
    );
}

#[test]
fn an_override_that_does_not_stand_says_why() {
    let set = set(&until("2025-01-01T00:00:00Z"));
    let found = ignored(
        Some(&pod(&until("tomorrow"))),
        Some(&set),
        &budget(&json!({})),
        now(),
    );
    let [on_pod, on_set] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert!(
        on_pod.contains("on the pod") && on_pod.contains("RFC 3339"),
        "{on_pod}"
    );
    assert!(
        on_set.contains("on the StatefulSet") && on_set.contains("has passed"),
        "{on_set}"
    );
    let valid = pod(&until(VALID));
    assert!(ignored(Some(&valid), None, &budget(&json!({})), now()).is_empty());
    let without_a_pod = ignored(None, Some(&set), &budget(&json!({})), now());
    assert_eq!(without_a_pod.len(), 1, "{without_a_pod:?}");
}
