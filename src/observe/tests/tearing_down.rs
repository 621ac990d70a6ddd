use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{budget, pod, pod_json};
use crate::api::{QuorumDisruptionBudgetStatus, RecordedEtcd};
use crate::observe::teardown::{Around, Owner, of_claim, of_pod, outside_ordinals};
use crate::quorum::stateful_set::TeardownPolicy;
use crate::quorum::{Intent, Teardown};

const SETTLE: Duration = Duration::from_secs(120);

/// A StatefulSet whose members have their data on claims.
fn set(change: &Value) -> StatefulSet {
    let etcd = json!({
        "name": "etcd", "command": ["etcd", "--data-dir=/data"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    });
    let mut on_claims = json!({"spec": {
        "template": {"spec": {"containers": [etcd]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    }});
    json_patch::merge(&mut on_claims, change);
    super::set(&on_claims)
}

fn around(set: Option<&StatefulSet>, owner: Owner) -> Around<'_> {
    Around {
        namespace_terminating: false,
        set,
        owner,
        status: None,
        set_gone_for: Duration::ZERO,
        settle_time: SETTLE,
        policy: TeardownPolicy::Announce,
        etcd: RecordedEtcd::default(),
        now: "2026-01-01T00:01:59Z".parse().unwrap(),
    }
}

fn going(finalizers: &[&str]) -> StatefulSet {
    set(
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers}}),
    )
}

fn status(recorded: &Value) -> QuorumDisruptionBudgetStatus {
    budget(&json!({"status": {"recordedDeletes": recorded}}))
        .status
        .unwrap()
}

/// A status that records the StatefulSet with this UID.
fn seen(uid: &str) -> QuorumDisruptionBudgetStatus {
    budget(&json!({"status": {"statefulSet": {"uid": uid}}}))
        .status
        .unwrap()
}

/// The StatefulSet, created again at this time. The pods of these tests were created at 10 s past
/// midnight.
fn recreated_at(time: &str) -> StatefulSet {
    set(&json!({"metadata": {"uid": "set-2", "creationTimestamp": time}}))
}

fn admitted() -> QuorumDisruptionBudgetStatus {
    status(&json!({"statefulSets": [{"uid": "set-1", "by": "ann", "time": "noon"}]}))
}

#[test]
fn a_cluster_that_stays_is_not_torn_down() {
    let set = set(&json!({}));
    for owner in [Owner::None, Owner::Lives, Owner::Unknown] {
        assert_eq!(
            of_pod(&pod(&json!({})), &around(Some(&set), owner)),
            None,
            "{owner:?}"
        );
    }
}

#[test]
fn rule_3_a_terminating_namespace_frees_everything_also_orphans() {
    let orphan = pod(&json!({"metadata": {"ownerReferences": null}}));
    let around = Around {
        namespace_terminating: true,
        ..around(None, Owner::Unknown)
    };
    assert_eq!(of_pod(&orphan, &around), Some(Teardown::Namespace));
}

/// The annotation, written a minute before the present of these tests.
fn announced(intent: &str) -> Value {
    json!({
        "annotations": {"quorumgate.io/intent": intent},
        "managedFields": [{
            "manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:59Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:quorumgate.io/intent": {}}}},
        }],
    })
}

#[test]
fn rule_3_a_stateful_set_that_goes_needs_a_recorded_delete() {
    let (pod, set) = (pod(&json!({})), going(&["foregroundDeletion"]));
    for owner in [Owner::None, Owner::Lives, Owner::Unknown] {
        let around = around(Some(&set), owner);
        assert_eq!(of_pod(&pod, &around), None, "{owner:?}");
        let status = admitted();
        let around = Around {
            status: Some(&status),
            ..around
        };
        assert_eq!(of_pod(&pod, &around), Some(Teardown::StatefulSet));
    }
}

/// A delete cannot be taken back, so an unrecorded one wedges nothing.
#[test]
fn rule_3_an_unrecorded_delete_is_over_when_announced_allowed_or_old() {
    let (pod, set) = (pod(&json!({})), going(&["foregroundDeletion"]));
    let mut said = going(&["foregroundDeletion"]);
    let metadata: ObjectMeta = serde_json::from_value(announced("delete")).unwrap();
    said.metadata.annotations = metadata.annotations;
    said.metadata.managed_fields = metadata.managed_fields;
    assert_eq!(
        of_pod(&pod, &around(Some(&said), Owner::Lives)),
        Some(Teardown::StatefulSet)
    );
    let allowed = Around {
        policy: TeardownPolicy::Allow,
        ..around(Some(&set), Owner::Lives)
    };
    assert_eq!(of_pod(&pod, &allowed), Some(Teardown::StatefulSet));
    let old = Around {
        now: "2026-01-01T00:02:00Z".parse().unwrap(),
        ..around(Some(&set), Owner::Lives)
    };
    assert_eq!(of_pod(&pod, &old), Some(Teardown::StatefulSet));
}

#[test]
fn rule_3_orphaning_is_not_a_teardown() {
    let set = going(&["orphan"]);
    let status = admitted();
    let around = Around {
        status: Some(&status),
        ..around(Some(&set), Owner::None)
    };
    assert_eq!(of_pod(&pod(&json!({})), &around), None);
    let orphan = pod(&json!({"metadata": {"ownerReferences": null}}));
    assert_eq!(
        of_pod(
            &orphan,
            &Around {
                set: None,
                ..around
            }
        ),
        None,
        "and stays none afterwards"
    );
}

#[test]
fn rule_3_an_owner_that_goes_frees_everything() {
    let set = set(&json!({}));
    assert_eq!(
        of_pod(&pod(&json!({})), &around(Some(&set), Owner::Goes)),
        Some(Teardown::Owner)
    );
    assert_eq!(
        of_pod(&pod(&json!({})), &around(None, Owner::Goes)),
        Some(Teardown::Owner)
    );
}

#[test]
fn rule_3_a_stateful_set_that_is_gone_needs_a_record_or_a_settle_time() {
    let pod = pod(&json!({}));
    let recreated = recreated_at("2026-01-01T00:00:11Z");
    for set in [None, Some(&recreated)] {
        for owner in [Owner::None, Owner::Lives, Owner::Unknown] {
            assert_eq!(of_pod(&pod, &around(set, owner)), None, "{owner:?}");
        }
        let status = admitted();
        let recorded = Around {
            status: Some(&status),
            ..around(set, Owner::Lives)
        };
        assert_eq!(of_pod(&pod, &recorded), Some(Teardown::StatefulSet));
        let just = Duration::from_secs(119);
        let short = Around {
            set_gone_for: just,
            ..around(set, Owner::Lives)
        };
        assert_eq!(of_pod(&pod, &short), None);
        let seen = seen("set-1");
        let long = Around {
            status: Some(&seen),
            set_gone_for: SETTLE,
            ..around(set, Owner::Lives)
        };
        assert_eq!(of_pod(&pod, &long), Some(Teardown::StatefulSet));
    }
}

/// The pod was given back the reference that the garbage collector had taken from it.
#[test]
fn rule_3_a_stateful_set_that_left_its_pods_frees_none_that_names_it_again() {
    let orphaned = budget(&json!({"status": {
        "statefulSet": {"uid": "set-1", "orphaned": true},
    }}));
    let long_gone = Around {
        status: orphaned.status.as_ref(),
        set_gone_for: SETTLE,
        ..around(None, Owner::None)
    };
    assert_eq!(of_pod(&pod(&json!({})), &long_gone), None);
    // Whoever leaves an operator deletes its resource afterwards.
    let without_owner = Around {
        owner: Owner::Goes,
        ..long_gone
    };
    assert_eq!(of_pod(&pod(&json!({})), &without_owner), None);
    assert_eq!(of_claim(&"etcd-1".into(), None, &without_owner), None);
}

/// A recorded delete ends when the successor's pods exist, whatever they refer to.
#[test]
fn rule_3_a_recorded_delete_frees_no_pod_of_the_set_that_came_after() {
    let made_over = pod(&json!({}));
    let (recorded, seen) = (admitted(), seen("set-1"));
    for at in ["2026-01-01T00:00:09Z", "2026-01-01T00:00:10Z"] {
        let stands = recreated_at(at);
        for owner in [Owner::None, Owner::Lives, Owner::Goes, Owner::Unknown] {
            for status in [&recorded, &seen] {
                let around = Around {
                    status: Some(status),
                    set_gone_for: SETTLE,
                    ..around(Some(&stands), owner)
                };
                assert_eq!(of_pod(&made_over, &around), None, "{at}: {owner:?}");
            }
        }
    }
}

/// A client that may patch a member's pod can make it refer to any StatefulSet.
#[test]
fn rule_3_a_stateful_set_that_only_the_pod_speaks_of_was_never_there() {
    let member = pod(&json!({}));
    let stands = set(&json!({"metadata": {"uid": "set-2"}}));
    let another = seen("set-2");
    for set in [None, Some(&stands)] {
        let around = Around {
            status: Some(&another),
            set_gone_for: SETTLE,
            ..around(set, Owner::Unknown)
        };
        assert_eq!(of_pod(&member, &around), None, "{set:?}");
    }
    let without_budget = |set| Around {
        set_gone_for: SETTLE,
        ..around(set, Owner::Unknown)
    };
    assert_eq!(of_pod(&member, &without_budget(Some(&stands))), None);
    assert_eq!(
        of_pod(&member, &without_budget(None)),
        Some(Teardown::StatefulSet)
    );
}

#[test]
fn rule_3_the_recorded_delete_of_another_incarnation_frees_nothing() {
    let recreated = set(&json!({"metadata": {"uid": "set-2"}}));
    let pod = pod(&json!({"metadata": {"ownerReferences": [super::owner_of_pods("set-2")]}}));
    let status = admitted();
    let around = Around {
        status: Some(&status),
        ..around(Some(&recreated), Owner::Lives)
    };
    assert_eq!(of_pod(&pod, &around), None);
}

#[test]
fn rule_3_no_replicas_is_hibernation_where_recorded_announced_or_allowed() {
    let unsaid = set(&json!({"spec": {"replicas": 0}}));
    let said = set(&json!({"metadata": announced("hibernate"), "spec": {"replicas": 0}}));
    let recorded = status(&json!({"hibernation": {"uid": "set-1", "by": "ann", "time": "noon"}}));
    let before = status(&json!({"hibernation": {"uid": "set-0", "by": "ann", "time": "noon"}}));
    let unrecorded = around(Some(&unsaid), Owner::Lives);
    assert_eq!(of_pod(&pod(&json!({})), &unrecorded), None);
    let by_another = Around {
        status: Some(&before),
        ..around(Some(&unsaid), Owner::Lives)
    };
    assert_eq!(of_pod(&pod(&json!({})), &by_another), None);
    let of_another =
        pod(&json!({"metadata": {"ownerReferences": [super::owner_of_pods("set-0")]}}));
    for hibernates in [
        Around {
            status: Some(&recorded),
            ..around(Some(&unsaid), Owner::Lives)
        },
        around(Some(&said), Owner::Lives),
        Around {
            policy: TeardownPolicy::Allow,
            ..around(Some(&unsaid), Owner::Lives)
        },
    ] {
        let goes = of_pod(&pod(&json!({})), &hibernates);
        assert_eq!(goes, Some(Teardown::Hibernation));
        assert_eq!(of_pod(&of_another, &hibernates), None);
    }
    let awake = set(&json!({}));
    let woken = Around {
        status: Some(&recorded),
        ..around(Some(&awake), Owner::Lives)
    };
    assert_eq!(of_pod(&pod(&json!({})), &woken), None);
}

#[test]
fn rule_3_a_scale_in_frees_recorded_ordinals_that_left_the_range() {
    let recorded = |first: u32, last: u32| scaled_in("set-1", first, last);
    let judge = |ordinal: u32, set: &StatefulSet, status: &QuorumDisruptionBudgetStatus| {
        let pod = serde_json::from_value(pod_json(ordinal, &json!({}))).unwrap();
        of_pod(
            &pod,
            &Around {
                status: Some(status),
                ..around(Some(set), Owner::Lives)
            },
        )
    };
    let set_of = |replicas: u32| set(&json!({"spec": {"replicas": replicas}}));
    let status = recorded(3, 4);
    assert_eq!(judge(3, &set_of(3), &status), Some(Teardown::ScaleIn));
    assert_eq!(judge(4, &set_of(3), &status), Some(Teardown::ScaleIn));
    assert_eq!(judge(2, &set_of(3), &status), None, "inside of the range");
    assert_eq!(
        judge(4, &set_of(5), &status),
        None,
        "grown back: inside of the range again"
    );
    assert_eq!(
        judge(5, &set_of(3), &status),
        None,
        "never part of what was admitted"
    );
    assert_eq!(
        judge(3, &set_of(3), &recorded(4, 4)),
        None,
        "not so far down was admitted"
    );
    let from = |start: u32| set(&json!({"spec": {"replicas": 3, "ordinals": {"start": start}}}));
    assert_eq!(judge(2, &from(3), &status), None, "it was not admitted");
    assert_eq!(judge(3, &from(2), &status), None, "moved back");
    let below = recorded(0, 1);
    assert_eq!(judge(1, &from(2), &below), Some(Teardown::ScaleIn));
    assert_eq!(judge(3, &set_of(3), &scaled_in("set-0", 3, 4)), None);
}

/// The status with a scale-in on record that took these ordinals.
fn scaled_in(uid: &str, first: u32, last: u32) -> QuorumDisruptionBudgetStatus {
    let ordinals = json!([{"first": first, "last": last}]);
    status(&json!({"scaleIn": {"statefulSetUID": uid, "ordinals": ordinals, "by": "", "time": ""}}))
}

#[test]
fn the_data_of_a_member_is_torn_down_with_its_pod() {
    let member = "etcd-1".into();
    let (pod, goes) = (pod(&json!({})), going(&[]));
    let status = admitted();
    let around = Around {
        status: Some(&status),
        ..around(Some(&goes), Owner::None)
    };
    assert_eq!(
        of_claim(&member, Some(&pod), &around),
        of_pod(&pod, &around)
    );
    // A pod that was orphaned keeps its data.
    let orphan = super::pod(&json!({"metadata": {"ownerReferences": null}}));
    assert_eq!(of_claim(&member, Some(&orphan), &around), None);
}

#[test]
fn without_a_pod_the_data_of_a_member_goes_with_its_set_or_the_owner() {
    let of = |around: &Around<'_>| of_claim(&"etcd-1".into(), None, around);
    let (stays, goes, orphans) = (set(&json!({})), going(&[]), going(&["orphan"]));
    assert_eq!(of(&around(Some(&stays), Owner::Lives)), None);
    let with_owner = around(Some(&stays), Owner::Goes);
    assert_eq!(of(&with_owner), Some(Teardown::Owner));
    let status = admitted();
    let with_set = Around {
        status: Some(&status),
        ..around(Some(&goes), Owner::None)
    };
    assert_eq!(of(&with_set), Some(Teardown::StatefulSet));
    assert_eq!(of(&around(Some(&orphans), Owner::None)), None);
    let namespace = Around {
        namespace_terminating: true,
        ..around(Some(&stays), Owner::Lives)
    };
    assert_eq!(of(&namespace), Some(Teardown::Namespace));
    let asleep = set(&json!({"metadata": announced("hibernate"), "spec": {"replicas": 0}}));
    assert_eq!(
        of(&around(Some(&asleep), Owner::None)),
        Some(Teardown::Hibernation)
    );
}

/// A StatefulSet that was deleted with its pods looks like one that left them, unless the budget
/// has recorded the delete. Its claims may be all that is left of the cluster.
#[test]
fn without_a_pod_and_a_set_only_a_recorded_delete_takes_the_data_along() {
    let of = |around: &Around<'_>| of_claim(&"etcd-1".into(), None, around);
    let gone = seen("set-1");
    let long_gone = Around {
        status: Some(&gone),
        set_gone_for: SETTLE,
        ..around(None, Owner::None)
    };
    assert_eq!(of(&long_gone), None);
    let admitted = budget(&json!({"status": {
        "statefulSet": {"uid": "set-1"},
        "recordedDeletes": {"statefulSets": [{"uid": "set-1", "by": "ann", "time": "noon"}]},
    }}));
    let recorded = Around {
        status: admitted.status.as_ref(),
        ..around(None, Owner::Unknown)
    };
    assert_eq!(of(&recorded), Some(Teardown::StatefulSet));
    // Nobody announced this delete: it passed because no member served.
    let nobody_served = budget(&json!({"status": {
        "statefulSet": {"uid": "set-1"},
        "recordedDeletes": {"statefulSets": [
            {"uid": "set-1", "by": "ann", "keepsClaims": true, "time": "noon"},
        ]},
    }}));
    let pods_only = Around {
        status: nobody_served.status.as_ref(),
        ..around(None, Owner::Unknown)
    };
    assert_eq!(of(&pods_only), None);
    let owner_goes = Around {
        status: Some(&gone),
        ..around(None, Owner::Goes)
    };
    assert_eq!(of(&owner_goes), Some(Teardown::Owner));
}

/// A StatefulSet that was made anew with fewer replicas adopts the pods of all members.
#[test]
fn a_pod_that_its_stateful_set_does_not_keep_goes_only_as_announced() {
    let needs_by = |when_scaled: &str, replicas: u32, metadata: Value| {
        let policy = json!({"whenDeleted": "Retain", "whenScaled": when_scaled});
        let set = set(&json!({"metadata": metadata, "spec": {
            "replicas": replicas, "persistentVolumeClaimRetentionPolicy": policy,
        }}));
        let last = pod(&json!({"metadata": {"name": "etcd-2"}}));
        let outside = outside_ordinals(&last, &around(Some(&set), Owner::None));
        let goes = of_pod(&last, &around(Some(&set), Owner::None)).is_some();
        assert!(!goes || outside.is_none(), "{outside:?}");
        outside.map(|outside| outside.needs)
    };
    let needs = |replicas, metadata| needs_by("Retain", replicas, metadata);
    assert_eq!(needs(3, json!({})), None);
    assert_eq!(needs(2, json!({})), Some(Intent::ScaleIn));
    assert_eq!(needs(0, json!({})), Some(Intent::Hibernate));
    assert_eq!(needs(2, announced("scale-in")), None);
    assert_eq!(needs(2, announced("hibernate")), Some(Intent::ScaleIn));
    // Members whose data goes with their pods do not come back.
    let deleted = Some(Intent::Delete);
    assert_eq!(needs_by("Delete", 0, announced("hibernate")), deleted);
    assert_eq!(needs_by("Delete", 0, announced("delete")), None);
    let asleep = json!({"metadata": announced("hibernate"), "spec": {"replicas": 0}});
    let hibernating = super::set(&asleep);
    let in_pods = around(Some(&hibernating), Owner::None);
    let last = pod(&json!({"metadata": {"name": "etcd-2"}}));
    assert_eq!(of_pod(&last, &in_pods), None);
    let outside = outside_ordinals(&last, &in_pods);
    assert_eq!(outside.map(|outside| outside.needs), deleted);
    // The pod of a StatefulSet before this one is no business of its ordinals.
    assert_eq!(needs(2, json!({"uid": "set-2"})), None);
}
