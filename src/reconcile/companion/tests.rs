use serde_json::json;

use super::*;
use crate::api::Enforcement;

fn selector(app: &str) -> LabelSelector {
    LabelSelector {
        match_labels: Some(BTreeMap::from([("app".to_owned(), app.to_owned())])),
        ..LabelSelector::default()
    }
}

fn budget() -> QuorumDisruptionBudget {
    let mut budget = QuorumDisruptionBudget::with_defaults(&ClusterRef::new("a", "etcd"));
    budget.metadata.uid = Some("budget".into());
    budget
}

fn member(name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.into());
    let labels = pod.labels_mut();
    labels.insert("app".into(), "etcd".into());
    labels.insert(names::POD_NAME.into(), name.into());
    pod
}

fn another(name: &str, app: &str) -> PodDisruptionBudget {
    let mut pdb = PodDisruptionBudget {
        spec: Some(PodDisruptionBudgetSpec {
            selector: Some(selector(app)),
            ..PodDisruptionBudgetSpec::default()
        }),
        ..PodDisruptionBudget::default()
    };
    pdb.metadata.name = Some(name.into());
    pdb
}

fn step(minimum: u32, existing: &[PodDisruptionBudget]) -> Step {
    let budget = budget();
    let selector = selector("etcd");
    let wanted = Wanted {
        budget: &budget,
        selector: Some(&selector),
        min_available: minimum,
    };
    wanted.step(existing.iter(), &[member("etcd-0"), member("etcd-1")])
}

fn created(minimum: u32) -> PodDisruptionBudget {
    match step(minimum, &[]) {
        Step::Create(mut pdb) => {
            pdb.metadata.uid = Some("pdb".into());
            pdb.metadata.resource_version = Some("7".into());
            *pdb
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_is_made_with_the_majority_where_none_selects_the_members() {
    let pdb = created(2);
    assert_eq!(pdb.name_any(), "quorumgate-etcd");
    assert_eq!(pdb.owner_references()[0].uid, "budget");
    let spec = pdb.spec.unwrap();
    assert_eq!(spec.min_available, Some(IntOrString::Int(2)));
    let policy = spec.unhealthy_pod_eviction_policy;
    assert_eq!(policy.as_deref(), Some("AlwaysAllow"));
    let selector = Selector::try_from(spec.selector.unwrap()).unwrap();
    assert!(selector.matches(member("etcd-0").labels()));
    let mut compaction = member("etcd-compactor-x");
    compaction.labels_mut().remove(names::POD_NAME);
    assert!(!selector.matches(compaction.labels()));
}

#[test]
fn none_is_made_where_another_selects_a_member() {
    assert_eq!(step(2, &[another("etcd", "etcd")]), Step::Nothing);
    let elsewhere = step(2, &[another("web", "web")]);
    assert!(matches!(elsewhere, Step::Create(_)));
}

#[test]
fn ours_goes_when_another_appears() {
    let found = step(2, &[created(2), another("etcd", "etcd")]);
    assert!(matches!(found, Step::Delete(only) if only.uid.as_deref() == Some("pdb")));
}

#[test]
fn the_companion_follows_the_majority_and_is_written_only_when_that_changes() {
    assert_eq!(step(2, &[created(2)]), Step::Nothing);
    let Step::Replace(pdb) = step(3, &[created(2)]) else {
        panic!("not replaced");
    };
    assert_eq!(pdb.resource_version().as_deref(), Some("7"));
    assert_eq!(pdb.spec.unwrap().min_available, Some(IntOrString::Int(3)));
}

#[test]
fn one_of_its_name_that_somebody_else_made_is_left_alone() {
    assert_eq!(step(2, &[another("quorumgate-etcd", "web")]), Step::Nothing);
}

#[test]
fn a_policy_that_lets_the_last_member_go_asks_for_none_to_stay() {
    let policy = Policy::default();
    let least = |voters, majority, elsewhere, policy: &Policy| {
        min_available(voters, majority, elsewhere, policy, Evictions::None)
    };
    assert_eq!(least(1, 1, 0, &policy), 0);
    assert_eq!(least(2, 2, 0, &policy), 2);
    assert_eq!(least(3, 2, 0, &policy), 2);
    assert_eq!(least(5, 3, 2, &policy), 1);
    let never = Policy {
        single_member: SmallCluster::Never,
        ..Policy::default()
    };
    assert_eq!(least(1, 1, 0, &never), 1);
}

#[test]
fn a_rollout_that_evicts_is_not_kept_from_what_its_policy_lets_it_take() {
    let least = |voters, majority, policy: &Policy| {
        min_available(voters, majority, 0, policy, Evictions::Rollout)
    };
    let rollouts = Policy {
        single_member: SmallCluster::AllowRollout,
        two_members: SmallCluster::AllowRollout,
        ..Policy::default()
    };
    assert_eq!(least(1, 1, &rollouts), 0);
    assert_eq!(least(2, 2, &rollouts), 1);
    assert_eq!(least(3, 2, &rollouts), 2);
    let never = Policy {
        two_members: SmallCluster::Never,
        ..rollouts
    };
    assert_eq!(least(2, 2, &never), 2);
}

#[test]
fn only_a_rollout_that_is_under_way_evicts() {
    let with = |rollout: serde_json::Value, removal: &str| {
        let mut budget = budget();
        budget.spec = serde_json::from_value(json!({
            "statefulSetName": "etcd", "rollout": {"removal": removal},
        }))
        .unwrap();
        budget.status = Some(serde_json::from_value(json!({"rollout": rollout})).unwrap());
        Evictions::from_budget(&budget)
    };
    let under_way = json!({"target": "new", "updated": 0, "targets": 2});
    let mut finished = under_way.clone();
    finished["completionTime"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(with(under_way.clone(), "EvictHealthy"), Evictions::Rollout);
    assert_eq!(with(under_way, "Delete"), Evictions::None);
    assert_eq!(with(finished, "EvictHealthy"), Evictions::None);
    assert_eq!(with(json!(null), "EvictHealthy"), Evictions::None);
}

#[test]
fn where_refusals_are_only_reported_there_is_no_companion_that_would_refuse() {
    let ours = created(2);
    let mut budget = budget();
    budget.spec.enforcement = Enforcement::Warn;
    let selector = selector("etcd");
    let wanted = Wanted {
        budget: &budget,
        selector: Some(&selector),
        min_available: 2,
    };
    let members = [member("etcd-0"), member("etcd-1")];
    assert_eq!(wanted.step([].iter(), &members), Step::Nothing);
    let step = wanted.step([ours].iter(), &members);
    assert!(matches!(step, Step::Delete(_)), "{step:?}");
}
