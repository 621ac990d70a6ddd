use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::pod;
use crate::observe::disruption_budget::verdict;
use crate::quorum::EvictionBudget;

fn pdb(change: &Value) -> PodDisruptionBudget {
    let mut pdb = json!({
        "metadata": {"name": "pdb", "generation": 2},
        "spec": {"selector": {"matchLabels": {"app": "etcd"}}, "minAvailable": 2},
        "status": {
            "observedGeneration": 2, "disruptionsAllowed": 1, "currentHealthy": 3, "desiredHealthy": 2, "expectedPods": 3,
        },
    });
    json_patch::merge(&mut pdb, change);
    serde_json::from_value(pdb).unwrap()
}

fn of_pod(pod_change: &Value, pdb_change: &Value) -> EvictionBudget {
    verdict(&pod(pod_change), &[pdb(pdb_change)])
}

fn refuses() -> EvictionBudget {
    EvictionBudget::Refuses { name: "pdb".into() }
}

fn unready() -> Value {
    json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
}

#[test]
fn rule_10_a_budget_with_disruptions_left_permits() {
    assert_eq!(of_pod(&json!({}), &json!({})), EvictionBudget::Permits);
    assert_eq!(verdict(&pod(&json!({})), &[]), EvictionBudget::Permits);
}

#[test]
fn rule_10_a_budget_without_disruptions_left_refuses() {
    for allowed in [0, -1] {
        let none_left = json!({"status": {"disruptionsAllowed": allowed}});
        assert_eq!(of_pod(&json!({}), &none_left), refuses());
    }
    assert_eq!(of_pod(&json!({}), &json!({"status": null})), refuses());
}

#[test]
fn rule_10_a_budget_that_its_controller_has_not_seen_refuses() {
    assert_eq!(
        of_pod(&json!({}), &json!({"metadata": {"generation": 3}})),
        refuses()
    );
}

#[test]
fn rule_10_too_many_pods_on_their_way_refuse() {
    let on_their_way = |pods: usize| {
        let pods: serde_json::Map<_, _> = (0..pods)
            .map(|i| (format!("p{i}"), json!("2026-01-01T00:00:00Z")))
            .collect();
        json!({"status": {"disruptedPods": pods}})
    };
    assert_eq!(
        of_pod(&json!({}), &on_their_way(2000)),
        EvictionBudget::Permits
    );
    assert_eq!(of_pod(&json!({}), &on_their_way(2001)), refuses());
}

#[test]
fn rule_10_two_budgets_make_evictions_fail() {
    let (one, other) = (
        pdb(&json!({})),
        pdb(&json!({"metadata": {"name": "other"}})),
    );
    let names = vec!["pdb".into(), "other".into()];
    assert_eq!(
        verdict(&pod(&json!({})), &[one, other]),
        EvictionBudget::Several { names }
    );
}

#[test]
fn rule_10_pods_that_no_budget_is_asked_about() {
    let none_left = json!({"status": {"disruptionsAllowed": 0}});
    for phase in ["Pending", "Succeeded", "Failed"] {
        let permitted = of_pod(&json!({"status": {"phase": phase}}), &none_left);
        assert_eq!(permitted, EvictionBudget::Permits, "{phase}");
    }
    let terminating = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(of_pod(&terminating, &none_left), EvictionBudget::Permits);
    assert_eq!(
        of_pod(&json!({"status": {"phase": "Unknown"}}), &none_left),
        refuses()
    );
}

#[test]
fn rule_10_an_unready_pod_goes_where_the_policy_or_the_others_let_it() {
    let status = |current: u32, desired: u32| json!({"status": {"disruptionsAllowed": 0, "currentHealthy": current, "desiredHealthy": desired}});
    assert_eq!(of_pod(&unready(), &status(2, 2)), EvictionBudget::Permits);
    assert_eq!(of_pod(&unready(), &status(1, 2)), refuses());
    assert_eq!(
        of_pod(&unready(), &status(0, 0)),
        refuses(),
        "a budget that desires nothing is not met"
    );
    let mut always = status(1, 2);
    always["spec"] = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
    assert_eq!(of_pod(&unready(), &always), EvictionBudget::Permits);
    assert_eq!(
        of_pod(&json!({}), &always),
        refuses(),
        "a ready pod asks the budget all the same"
    );
}

#[test]
fn rule_10_selectors_select_as_the_api_server_has_them() {
    let none_left = |selector: Value| {
        let mut pdb = pdb(&json!({"status": {"disruptionsAllowed": 0}}));
        pdb.spec.as_mut().unwrap().selector = serde_json::from_value(selector).unwrap();
        verdict(&pod(&json!({})), &[pdb])
    };
    assert_eq!(
        none_left(json!({})),
        refuses(),
        "an empty selector selects all"
    );
    assert_eq!(
        none_left(Value::Null),
        EvictionBudget::Permits,
        "none selects none"
    );
    assert_eq!(
        none_left(json!({"matchLabels": {"app": "db"}})),
        EvictionBudget::Permits
    );
    let expressions =
        json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["etcd", "db"]}]});
    assert_eq!(none_left(expressions), refuses());
    let invalid = json!({"matchExpressions": [{"key": "app", "operator": "Near"}]});
    assert_eq!(none_left(invalid), EvictionBudget::Permits);
}
