//! The judgement of StatefulSets against an API server in memory, with members that are made up.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ground, judge_at};
use crate::clock::{Clock, ClockHand};
use crate::fake_api::FakeApi;
use crate::fake_api::etcd::{BUDGET, NAMESPACE, SET};
use crate::judge::{Answer, Asker, DryRun, Ground, Looking, Refused, SetQuestion};
use crate::ledger::Page;
use crate::observe::ObserveError;
use crate::quorum::DataTaken;
use crate::quorum::evidence::{ListedMember, Probe, Round, Status, Target, Unanswered};
use crate::quorum::stateful_set::{Change, Ordinals};
use crate::quorum::{
    Actor, Basis, ClusterId, ClusterRef, EvidenceMode, MemberId, NamedOwner, Observation, Policy,
    Reason, Snapshot, Teardown, Waiver, example,
};

const OWNER: &str = "/apis/druid.gardener.cloud/v1alpha1/namespaces/db/etcds/etcd";
const NOW: &str = "2026-11-21T12:00:00Z";

/// A cluster of five whose member list is as the test says.
struct Members {
    listed: Vec<ListedMember>,
    read: Result<(), Unanswered>,
    evidence: EvidenceMode,
    /// A writer that changes the budget during the first looks, if there is one.
    interference: Option<(FakeApi, AtomicU32)>,
}

impl Members {
    fn named(names: &[&str]) -> Self {
        let listed = names.iter().zip(1..).map(|(name, id)| ListedMember {
            id: MemberId(id),
            name: (*name).to_owned(),
            learner: false,
            peer_urls: vec![],
            client_urls: vec![],
        });
        Self {
            listed: listed.collect(),
            read: Ok(()),
            evidence: EvidenceMode::Live,
            interference: None,
        }
    }

    fn probe(&self, member: &ListedMember) -> Probe {
        Probe {
            target: Target::External(member.id),
            status: Ok(Status {
                cluster_id: ClusterId(7),
                member_id: member.id,
                leader: Some(MemberId(1)),
                term: 2,
                raft_index: 10,
                applied_index: 10,
                learner: false,
                alarms: vec![],
                db_size: 1,
                db_size_in_use: 1,
                revision: 0,
                db_size_quota: None,
                version: "3.6.16".to_owned(),
            }),
            read: self.read.clone(),
            members: Ok(self.listed.clone()),
        }
    }
}

impl Looking for Members {
    fn look<'a>(
        &'a self,
        page: &'a Page,
        _latest: Instant,
    ) -> BoxFuture<'a, Result<Snapshot, ObserveError>> {
        if let Some((api, left)) = &self.interference
            && left.load(Ordering::Relaxed) > 0
        {
            left.fetch_sub(1, Ordering::Relaxed);
            api.put(BUDGET, api.get(BUDGET).unwrap());
        }
        let started = self.listed.iter().filter(|member| !member.name.is_empty());
        let probes = started.map(|member| self.probe(member));
        let observation = Observation {
            policy: Policy {
                evidence: self.evidence,
                ..Policy::default()
            },
            round: Round {
                probes: probes.collect(),
            },
            ..Observation::before_any_look(page.cluster.clone(), 5)
        };
        let snapshot = Snapshot::assemble(&observation);
        async move { Ok(snapshot) }.boxed()
    }
}

/// A cluster of five in pods of its StatefulSet. Its members serve, or do not answer.
struct InPods {
    serve: bool,
}

impl Looking for InPods {
    fn look<'a>(
        &'a self,
        _page: &'a Page,
        _latest: Instant,
    ) -> BoxFuture<'a, Result<Snapshot, ObserveError>> {
        let mut observation = example::healthy("etcd", 5);
        for probe in observation.round.probes.iter_mut().filter(|_| !self.serve) {
            *probe = Probe::unanswered(probe.target.clone(), Unanswered::Deadline);
        }
        let snapshot = Snapshot::assemble(&observation);
        async move { Ok(snapshot) }.boxed()
    }
}

struct Site {
    api: FakeApi,
    clock: Clock,
    _hand: ClockHand,
}

impl Site {
    fn new() -> Self {
        let api = FakeApi::default();
        let (clock, hand) = Clock::frozen(NOW.parse().unwrap());
        let site = Self {
            api,
            clock,
            _hand: hand,
        };
        site.api.put(
            NAMESPACE,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "db"}}),
        );
        site.put_set(&json!({}));
        site.api.put(
            BUDGET,
            json!({
                "apiVersion": "quorumgate.io/v1alpha1", "kind": "QuorumDisruptionBudget",
                "metadata": {"name": "etcd", "namespace": "db", "uid": "budget-1"},
                "spec": {"statefulSetName": "etcd"},
            }),
        );
        site
    }

    fn put_set(&self, change: &Value) {
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "etcd", "namespace": "db", "uid": "set-1"},
            "spec": {
                "replicas": 5, "serviceName": "etcd-peer", "selector": {"matchLabels": {"app": "etcd"}},
                "template": {"metadata": {"labels": {"app": "etcd"}}, "spec": {"containers": [{"name": "etcd"}]}},
            },
        });
        json_patch::merge(&mut set, change);
        self.api.put(SET, set);
    }

    /// The StatefulSet belongs to an Etcd that lives.
    fn put_owner(&self) {
        self.api.put("/apis/druid.gardener.cloud/v1alpha1", json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "druid.gardener.cloud/v1alpha1",
            "resources": [{"name": "etcds", "singularName": "etcd", "namespaced": true, "kind": "Etcd", "verbs": ["get"]}],
        }));
        self.api.put(OWNER, json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "metadata": {"name": "etcd", "uid": "o1"},
        }));
        self.put_set(&json!({"metadata": {"ownerReferences": [{
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "name": "etcd", "uid": "o1", "controller": true,
        }]}}));
    }

    /// The budget has the owner on record.
    fn record_owner(&self) {
        let owner = json!({
            "apiVersion": "druid.gardener.cloud/v1alpha1", "kind": "Etcd", "name": "etcd", "uid": "o1",
        });
        let mut budget = self.api.get(BUDGET).unwrap();
        budget["status"]["statefulSet"] = json!({"uid": "set-1", "owners": [owner]});
        self.api.put(BUDGET, budget);
    }

    async fn ask(&self, members: impl Looking, change: Change, dry_run: DryRun) -> Answer {
        self.ask_as(members, change, dry_run, false).await
    }

    async fn ask_as(
        &self,
        members: impl Looking,
        change: Change,
        dry_run: DryRun,
        collected: bool,
    ) -> Answer {
        let question = SetQuestion {
            collected,
            dry_run,
            ..question(change)
        };
        let judge = judge_at(&self.api, self.clock.clone());
        judge.judge_stateful_set(question, &members).await
    }

    async fn ask_to_delete(&self) -> Answer {
        self.ask(InPods { serve: true }, Change::Delete, DryRun::No)
            .await
    }

    async fn ask_to_scale_in(&self, members: Members) -> Answer {
        self.ask(members, from_5_to(3), DryRun::No).await
    }

    fn recorded(&self) -> Value {
        self.api.get(BUDGET).unwrap()["status"]["recordedDeletes"].clone()
    }
}

/// A person's question, for which there are 20 s.
fn question(change: Change) -> SetQuestion {
    SetQuestion {
        set: ClusterRef::new("db", "etcd"),
        uid: Some("set-1".into()),
        change,
        intents: None,
        asker: Asker {
            name: "admin".to_owned(),
            actor: Actor::Stranger,
        },
        collected: false,
        dry_run: DryRun::No,
        deadline: Instant::now() + Duration::from_secs(20),
    }
}

fn all_five() -> Members {
    Members::named(&["etcd-0", "etcd-1", "etcd-2", "etcd-3", "etcd-4"])
}

fn three() -> Members {
    Members::named(&["etcd-0", "etcd-1", "etcd-2"])
}

fn from_5_to(count: u32) -> Change {
    let ordinals = |count| Ordinals { start: None, count };
    Change::Resize {
        from: ordinals(5),
        to: ordinals(count),
    }
}

/// The annotation, written at `time`.
fn announced(intent: &str, time: &str) -> Value {
    json!({"metadata": {
        "annotations": {"quorumgate.io/intent": intent},
        "managedFields": [{
            "manager": "kubectl", "operation": "Update", "time": time, "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {"f:annotations": {"f:quorumgate.io/intent": {}}}},
        }],
    }})
}

fn denied(answer: &Answer) -> &Reason {
    match &answer.decision {
        Err(Refused::Deny(reason)) => reason,
        other => panic!("not denied: {other:?}"),
    }
}

#[tokio::test]
async fn a_teardown_is_denied_with_and_without_an_owner() {
    let site = Site::new();
    for put_owner in [true, false] {
        if put_owner {
            site.put_owner();
        } else {
            site.put_set(&json!({}));
        }
        for change in [Change::Delete, from_5_to(0)] {
            for serve in [true, false] {
                let answer = site.ask(InPods { serve }, change.clone(), DryRun::No).await;
                let Reason::Unannounced(teardown) = denied(&answer) else {
                    panic!("{answer:?}")
                };
                let owner = put_owner.then(|| NamedOwner::Lives("Etcd etcd".to_owned()));
                assert_eq!(teardown.owner, owner);
            }
        }
    }
    let recorded = site.recorded();
    assert!(recorded.is_null() || recorded == json!({}), "{recorded}");
}

#[tokio::test]
async fn a_teardown_is_recorded_where_nobody_serves_or_the_budget_allows_it() {
    let site = Site::new();
    let no_pods = Members {
        listed: vec![],
        ..three()
    };
    let answer = site.ask(no_pods, Change::Delete, DryRun::No).await;
    let found = ground(&answer);
    assert!(
        matches!(found, Some(Ground::Recorded(Basis::NobodyServes, _))),
        "{answer:?}"
    );
    assert_eq!(site.recorded()["statefulSets"][0]["uid"], "set-1");
    assert_eq!(site.recorded()["statefulSets"][0]["by"], "admin");

    let mut budget = site.api.get(BUDGET).unwrap();
    budget["spec"]["policy"] = json!({"teardown": "Allow"});
    site.api.put(BUDGET, budget);
    for change in [Change::Delete, from_5_to(0)] {
        let answer = site.ask(InPods { serve: true }, change, DryRun::No).await;
        let found = ground(&answer);
        assert!(
            matches!(found, Some(Ground::Recorded(Basis::TeardownAllowed, _))),
            "{answer:?}"
        );
    }
    assert_eq!(site.recorded()["hibernation"]["uid"], "set-1");
}

#[tokio::test]
async fn an_owner_that_asks_for_no_members_hibernates_them() {
    for (field, size, passes) in [
        ("replicas", json!(0), true),
        ("size", json!(0), true),
        ("replicas", json!(3), false),
        ("replicas", json!(null), false),
    ] {
        let site = Site::new();
        site.put_owner();
        site.record_owner();
        let mut owner = site.api.get(OWNER).unwrap();
        owner["spec"] = json!({field: size});
        site.api.put(OWNER, owner);
        let answer = site
            .ask(InPods { serve: true }, from_5_to(0), DryRun::No)
            .await;
        if passes {
            let found = ground(&answer);
            assert!(
                matches!(found, Some(Ground::Recorded(Basis::OwnerAsks, _))),
                "{field} {size}: {answer:?}"
            );
        } else {
            let Reason::Unannounced(_) = denied(&answer) else {
                panic!("{field} {size}: {answer:?}")
            };
        }
    }
}

/// The writer of a StatefulSet can name any object, such as a Deployment without replicas.
#[tokio::test]
async fn an_owner_that_does_not_control_or_is_not_on_record_asks_for_nothing() {
    for (controls, on_record) in [(false, true), (true, false)] {
        let site = Site::new();
        site.put_owner();
        if on_record {
            site.record_owner();
        }
        let mut owner = site.api.get(OWNER).unwrap();
        owner["spec"] = json!({"replicas": 0});
        site.api.put(OWNER, owner);
        let mut set = site.api.get(SET).unwrap();
        set["metadata"]["ownerReferences"][0]["controller"] = json!(controls);
        site.api.put(SET, set);
        let serving = InPods { serve: true };
        let answer = site.ask(serving, from_5_to(0), DryRun::No).await;
        let Reason::Unannounced(_) = denied(&answer) else {
            panic!("{controls} {on_record}: {answer:?}")
        };
    }
}

#[tokio::test]
async fn a_delete_that_takes_the_claims_of_a_formed_cluster_is_announced() {
    let site = Site::new();
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
    site.put_set(&json!({"spec": {"persistentVolumeClaimRetentionPolicy": policy}}));
    let nobody = || Members {
        listed: vec![],
        ..three()
    };
    let answer = site.ask(nobody(), Change::Delete, DryRun::Yes).await;
    let found = ground(&answer);
    assert!(
        matches!(found, Some(Ground::DryRun(Basis::NobodyServes))),
        "{answer:?}"
    );
    let mut budget = site.api.get(BUDGET).unwrap();
    budget["status"] = json!({"formed": true});
    site.api.put(BUDGET, budget);
    let answer = site.ask(nobody(), Change::Delete, DryRun::No).await;
    let Reason::Unannounced(teardown) = denied(&answer) else {
        panic!("{answer:?}")
    };
    assert_eq!(teardown.takes_data, Some(DataTaken::Claims));
}

/// The controller takes the reference back only where the pod of the claim is ready.
#[tokio::test]
async fn a_delete_that_takes_claims_by_an_older_policy_is_announced() {
    let site = Site::new();
    let template = json!({"metadata": {"name": "data"}});
    let policy = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    site.put_set(&json!({"spec": {
        "persistentVolumeClaimRetentionPolicy": policy, "volumeClaimTemplates": [template],
    }}));
    let mut budget = site.api.get(BUDGET).unwrap();
    budget["status"] = json!({"formed": true});
    site.api.put(BUDGET, budget);
    let nobody = || Members {
        listed: vec![],
        ..three()
    };
    let put = |owner: &str| {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "etcd", "uid": owner});
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data-etcd-1", "namespace": "db", "ownerReferences": [owner]},
        });
        let path = "/api/v1/namespaces/db/persistentvolumeclaims/data-etcd-1";
        site.api.put(path, claim);
    };
    put("another");
    let answer = site.ask(nobody(), Change::Delete, DryRun::Yes).await;
    let found = ground(&answer);
    assert!(
        matches!(found, Some(Ground::DryRun(Basis::NobodyServes))),
        "{answer:?}"
    );
    put("set-1");
    let answer = site.ask(nobody(), Change::Delete, DryRun::No).await;
    let Reason::Unannounced(teardown) = denied(&answer) else {
        panic!("{answer:?}")
    };
    assert_eq!(teardown.takes_data, Some(DataTaken::OwnedClaims));
    assert!(teardown.to_string().contains("metadata.ownerReferences"));

    // Of any number of pods that a StatefulSet asks for, few can be members.
    let policy = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
    site.put_set(&json!({"spec": {
        "replicas": i32::MAX, "persistentVolumeClaimRetentionPolicy": policy,
        "volumeClaimTemplates": [{"metadata": {"name": "data"}}],
    }}));
    let answer = site.ask(nobody(), Change::Delete, DryRun::No).await;
    assert!(
        matches!(denied(&answer), Reason::Unannounced(_)),
        "{answer:?}"
    );
}

#[tokio::test]
async fn an_owner_that_is_gone_or_a_terminating_namespace_lets_a_delete_pass() {
    let site = Site::new();
    site.put_owner();
    site.api.remove(OWNER);
    let answer = site.ask_to_delete().await;
    let Reason::Unannounced(teardown) = denied(&answer) else {
        panic!("{answer:?}")
    };
    let never = NamedOwner::NeverSeen("Etcd etcd".to_owned());
    assert_eq!(teardown.owner, Some(never), "nothing says that it ever was");
    site.record_owner();
    let answer = site.ask_to_delete().await;
    assert!(
        matches!(
            ground(&answer),
            Some(Ground::Waived(Waiver::Teardown(Teardown::Owner)))
        ),
        "{answer:?}"
    );

    let site = Site::new();
    site.put_owner();
    site.api.put(
        NAMESPACE,
        json!({"metadata": {"name": "db", "deletionTimestamp": NOW}}),
    );
    let answer = site.ask_to_delete().await;
    assert!(
        matches!(
            ground(&answer),
            Some(Ground::Waived(Waiver::Teardown(Teardown::Namespace)))
        ),
        "{answer:?}"
    );
}

#[tokio::test]
async fn what_the_garbage_collector_deletes_for_a_known_owner_is_recorded_and_passes() {
    let site = Site::new();
    // An owner of a kind that the gate may not read.
    site.put_owner();
    site.api.remove("/apis/druid.gardener.cloud/v1alpha1");
    let person = site.ask_to_delete().await;
    assert!(
        matches!(
            person.decision,
            Err(Refused::Wait(Reason::OwnerUnread { .. }))
        ),
        "{person:?}"
    );
    let serving = || InPods { serve: true };
    let collect = || site.ask_as(serving(), Change::Delete, DryRun::No, true);
    let collected = collect().await;
    assert!(
        matches!(
            collected.decision,
            Err(Refused::Wait(Reason::OwnerUnread { .. }))
        ),
        "{collected:?}"
    );
    site.record_owner();
    let collected = collect().await;
    assert!(
        matches!(
            ground(&collected),
            Some(Ground::Recorded(Basis::OwnerGone, _))
        ),
        "{collected:?}"
    );
    assert_eq!(site.recorded()["statefulSets"][0]["uid"], "set-1");

    // A ledger that nobody understands has no record of the owner.
    let mut unreadable = site.api.get(BUDGET).unwrap();
    unreadable["status"]["grants"] = json!([{"member": "etcd-0", "causes": []}]);
    site.api.put(BUDGET, unreadable);
    let collected = collect().await;
    assert!(
        matches!(collected.decision, Err(Refused::Wait(_))),
        "{collected:?}"
    );
}

#[tokio::test]
async fn an_announcement_counts_for_a_day_and_is_recorded() {
    let site = Site::new();
    site.put_owner();
    let mut with_owner = site.api.get(SET).unwrap();
    json_patch::merge(
        &mut with_owner,
        &announced("delete", "2026-11-21T11:00:00Z"),
    );
    site.api.put(SET, with_owner.clone());
    let answer = site.ask_to_delete().await;
    assert!(
        matches!(ground(&answer), Some(Ground::Recorded(Basis::Intent, _))),
        "{answer:?}"
    );

    json_patch::merge(
        &mut with_owner,
        &announced("delete", "2026-11-19T11:00:00Z"),
    );
    site.api.put(SET, with_owner);
    let answer = site.ask_to_delete().await;
    let said = denied(&answer).to_string();
    assert!(said.contains("set it again"), "{said}");
}

#[tokio::test]
async fn a_scale_in_waits_for_the_members_to_leave_etcd() {
    let site = Site::new();
    let answer = site.ask_to_scale_in(all_five()).await;
    let Reason::MembersListed { members, .. } = denied(&answer) else {
        panic!("{answer:?}")
    };
    assert_eq!(members, &["etcd-3".into(), "etcd-4".into()]);

    let answer = site.ask_to_scale_in(three()).await;
    assert!(
        matches!(
            ground(&answer),
            Some(Ground::Recorded(Basis::MembersRemoved, _))
        ),
        "{answer:?}"
    );
    let scale_in = &site.recorded()["scaleIn"];
    assert_eq!(scale_in["ordinals"], json!([{"first": 3, "last": 4}]));
    assert_eq!(scale_in["statefulSetUID"], "set-1");
}

/// A range that moves takes members as a lower number does.
#[tokio::test]
async fn a_move_of_the_ordinals_waits_for_the_members_and_is_recorded_by_ordinals() {
    let site = Site::new();
    let range = |start, count| Ordinals {
        start: Some(start),
        count,
    };
    let up = || Change::by_write(range(0, 5), range(2, 5)).unwrap();
    let answer = site.ask(all_five(), up(), DryRun::No).await;
    let Reason::MembersListed { members, .. } = denied(&answer) else {
        panic!("{answer:?}")
    };
    assert_eq!(members, &["etcd-0".into(), "etcd-1".into()]);

    let rest = Members::named(&["etcd-2", "etcd-3", "etcd-4"]);
    let answer = site.ask(rest, up(), DryRun::No).await;
    let recorded = |answer: &Answer| {
        let ground = ground(answer);
        matches!(ground, Some(Ground::Recorded(Basis::MembersRemoved, _)))
    };
    assert!(recorded(&answer), "{answer:?}");
    let ordinals = || site.recorded()["scaleIn"]["ordinals"].clone();
    assert_eq!(ordinals(), json!([{"first": 0, "last": 1}]));
    // Pods of the first change may still be on their way when the next one is admitted.
    let answer = site.ask_to_scale_in(three()).await;
    assert!(recorded(&answer), "{answer:?}");
    assert_eq!(
        ordinals(),
        json!([{"first": 0, "last": 1}, {"first": 3, "last": 4}])
    );
}

#[tokio::test]
async fn a_member_that_never_started_may_be_any_of_those_that_leave() {
    let site = Site::new();
    let answer = site
        .ask_to_scale_in(Members::named(&["etcd-0", "etcd-1", "etcd-2", ""]))
        .await;
    assert!(matches!(denied(&answer), Reason::MembersListed { .. }));
}

#[tokio::test]
async fn only_a_list_from_a_member_in_contact_with_a_quorum_counts() {
    let site = Site::new();
    let stale = Members {
        read: Err(Unanswered::Deadline),
        ..three()
    };
    let answer = site.ask_to_scale_in(stale).await;
    assert!(
        matches!(
            answer.decision,
            Err(Refused::Wait(Reason::MembersUnknown { .. }))
        ),
        "{answer:?}"
    );

    let blind = Members {
        evidence: EvidenceMode::Readiness,
        ..three()
    };
    let answer = site.ask_to_scale_in(blind).await;
    assert!(matches!(denied(&answer), Reason::MembersListed { .. }));
}

#[tokio::test]
async fn a_dry_run_writes_nothing() {
    let site = Site::new();
    let before = site.api.get(BUDGET);
    let answer = site.ask(three(), from_5_to(3), DryRun::Yes).await;
    assert!(
        matches!(ground(&answer), Some(Ground::DryRun(Basis::MembersRemoved))),
        "{answer:?}"
    );
    assert_eq!(site.api.get(BUDGET), before);
}

#[tokio::test]
async fn a_write_in_between_makes_it_begin_again() {
    let site = Site::new();
    let contended = Members {
        interference: Some((site.api.clone(), AtomicU32::new(2))),
        ..three()
    };
    site.api.take_requests();
    let answer = site.ask_to_scale_in(contended).await;
    assert!(
        matches!(ground(&answer), Some(Ground::Recorded(..))),
        "{answer:?}"
    );
    let requests = site.api.take_requests();
    let reads = requests
        .iter()
        .filter(|r| **r == format!("GET {BUDGET}"))
        .count();
    assert_eq!(reads, 3, "{requests:?}");
}

#[tokio::test]
async fn an_override_passes_and_is_recorded_and_without_a_budget_is_not() {
    let overridden = json!({"metadata": {"annotations": {"quorumgate.io/override-until": "2026-11-21T13:00:00Z"}}});
    let site = Site::new();
    site.put_set(&overridden);
    let answer = site.ask_to_scale_in(all_five()).await;
    assert!(
        matches!(ground(&answer), Some(Ground::Recorded(Basis::Override, _))),
        "{answer:?}"
    );

    site.api.remove(BUDGET);
    site.put_set(&json!({"metadata": {
        "labels": {"quorumgate.io/enroll": "true"},
        "annotations": overridden["metadata"]["annotations"],
    }}));
    let answer = site.ask_to_scale_in(all_five()).await;
    assert!(
        matches!(ground(&answer), Some(Ground::Unrecorded)),
        "{answer:?}"
    );
    assert_eq!(answer.warnings.len(), 1);
}

#[tokio::test]
async fn foreign_sets_pass_and_enrolled_ones_without_budget_wait() {
    let site = Site::new();
    site.api.remove(BUDGET);
    let answer = site.ask_to_delete().await;
    assert!(
        matches!(ground(&answer), Some(Ground::Waived(Waiver::Foreign))),
        "{answer:?}"
    );
    site.put_set(&json!({"metadata": {"labels": {"quorumgate.io/enroll": "true"}}}));
    let answer = site.ask_to_delete().await;
    assert!(
        matches!(answer.decision, Err(Refused::Wait(Reason::NoLedger))),
        "{answer:?}"
    );
    site.api.undefine("quorumdisruptionbudgets");
    let answer = site.ask_to_delete().await;
    assert!(
        matches!(answer.decision, Err(Refused::Wait(Reason::NoDefinition))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn an_incarnation_that_is_gone_is_left_to_the_api_server() {
    let site = Site::new();
    site.put_set(&json!({"metadata": {"uid": "set-2"}}));
    let answer = site.ask_to_delete().await;
    assert!(
        matches!(ground(&answer), Some(Ground::Waived(Waiver::Terminating))),
        "{answer:?}"
    );
}

/// The work depends on the members that exist, and not on the numbers in the request.
#[tokio::test]
async fn a_scale_in_of_two_billions_costs_what_one_of_two_costs() {
    let site = Site::new();
    let ordinals = |count| Ordinals { start: None, count };
    let change = || Change::Resize {
        from: ordinals(i32::MAX.unsigned_abs()),
        to: ordinals(3),
    };
    let answer = site.ask(all_five(), change(), DryRun::No).await;
    let Reason::MembersListed { members, .. } = denied(&answer) else {
        panic!("{answer:?}")
    };
    assert_eq!(members, &["etcd-3".into(), "etcd-4".into()]);
    let blind = Members {
        evidence: EvidenceMode::Readiness,
        ..three()
    };
    let answer = site.ask(blind, change(), DryRun::No).await;
    let Reason::MembersListed { members, .. } = denied(&answer) else {
        panic!("{answer:?}")
    };
    assert!(members.len() < 10, "{members:?}");
}

#[tokio::test(start_paused = true)]
async fn a_change_that_cannot_be_judged_in_time_waits() {
    let site = Site::new();
    site.api.silence("GET /api/v1/namespaces/db");
    let answer = site.ask_to_delete().await;
    assert!(
        matches!(
            answer.decision,
            Err(Refused::Wait(Reason::Unavailable { .. }))
        ),
        "{answer:?}"
    );

    let mut budget = site.api.get(BUDGET).unwrap();
    budget["spec"]["enforcement"] = json!("Warn");
    site.api.put(BUDGET, budget);
    let warned = site.ask_to_delete().await;
    assert!(
        matches!(
            ground(&warned),
            Some(Ground::Warned(Refused::Wait(Reason::Unavailable { .. })))
        ),
        "{warned:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_only_warns_is_known_before_the_wait_for_the_turn() {
    let site = Site::new();
    let mut budget = site.api.get(BUDGET).unwrap();
    budget["spec"]["enforcement"] = json!("Warn");
    site.api.put(BUDGET, budget);
    let judge = judge_at(&site.api, site.clock.clone());
    let set = ClusterRef::new("db", "etcd");
    let _turn = judge.deps.ledger().locks().enter(&set).await;
    let members = all_five();
    let judged = judge.judge_stateful_set(question(Change::Delete), &members);
    let answer = judged.await;
    assert!(
        matches!(
            ground(&answer),
            Some(Ground::Warned(Refused::Wait(Reason::Unavailable { .. })))
        ),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_budget_that_cannot_be_understood_holds_back_neither_overrides_nor_teardowns() {
    let site = Site::new();
    let mut unreadable = site.api.get(BUDGET).unwrap();
    unreadable["status"]["grants"] = json!([{"member": "etcd-0", "causes": []}]);
    site.api.put(BUDGET, unreadable);
    let refused = site.ask_to_delete().await;
    assert!(
        matches!(
            refused.decision,
            Err(Refused::Wait(Reason::Unavailable { .. }))
        ),
        "{refused:?}"
    );

    site.put_set(&json!({"metadata": {"annotations": {
        "quorumgate.io/override-until": "2026-11-21T13:00:00Z",
    }}}));
    let overridden = site.ask_to_delete().await;
    assert!(
        matches!(ground(&overridden), Some(Ground::Unrecorded)),
        "{overridden:?}"
    );
    // There is a budget, so nothing may say that there is none.
    let [warning] = overridden.warnings.as_slice() else {
        panic!("{overridden:?}");
    };
    assert!(
        warning.starts_with("it passed unrecorded: ") && warning.contains("ledger"),
        "{warning}"
    );

    site.put_set(&json!({"metadata": {"annotations": null}}));
    let going = json!({"metadata": {"name": "db", "deletionTimestamp": "2026-11-21T11:59:00Z"}});
    site.api.put(NAMESPACE, going);
    let torn_down = site.ask_to_delete().await;
    assert!(
        matches!(
            ground(&torn_down),
            Some(Ground::Waived(Waiver::Teardown(_)))
        ),
        "{torn_down:?}"
    );
}
