use std::time::Duration;

use super::*;
use crate::api::{AuthoritySource, DataLossStatus, PortSource, RefillStatus, SourceKind};
use crate::quorum::{
    ClusterId, ClusterRef, ExpectedVoters, GrantKind, Grants, MemberId, MemberPod, Membership,
    Observation, PodName, PodUid, ProcessState, example,
};
use crate::quorum::{LogEnd, WentBack};
use serde_json::json;

fn member(index: u64, condition: Condition) -> Member {
    let name = format!("etcd-{index}");
    Member {
        id: Some(MemberId(index + 1)),
        name: name.clone(),
        pod_name: Some(PodName::new(name.as_str())),
        pod: Some(MemberPod {
            name: PodName::new(name.as_str()),
            uid: PodUid::new(format!("uid-{index}")),
            terminating: false,
            revision: None,
        }),
        role: Role::Voter,
        leader: index == 0,
        condition,
        process: ProcessState::Alive,
        leaderless: false,
        lag: Some(0),
        sizes: None,
        alarms: Vec::new(),
    }
}

fn down() -> Condition {
    Condition::Failing(Why::Silent(Unanswered::Refused))
}

fn unknown() -> Condition {
    Condition::Unknown(Why::Silent(Unanswered::Deadline))
}

fn snapshot(conditions: Vec<Condition>) -> Snapshot {
    let voters = u32::try_from(conditions.len()).unwrap();
    let observation = Observation {
        expected: ExpectedVoters {
            voters,
            replicas: voters,
        },
        ..Observation::before_any_look(ClusterRef::new("a", "etcd"), voters)
    };
    let members = (0..).zip(conditions).map(|(at, is)| member(at, is));
    Snapshot {
        members: members.collect(),
        membership: Membership::Confirmed { voters },
        cluster_ids: vec![ClusterId(0xabc)],
        log_end: Some(LogEnd {
            cluster: ClusterId(0xabc),
            index: 7,
        }),
        ..Snapshot::assemble(&observation)
    }
}

fn way(scheme: Scheme, has_authority: bool, source: &str) -> Way {
    let authority = has_authority.then(|| AuthoritySource {
        kind: SourceKind::Secret,
        name: "ca".to_owned(),
        key: None,
    });
    Way {
        scheme,
        port: 2379,
        port_from: PortSource::Default,
        container: None,
        authority,
        identity: None,
        server_names: Vec::new(),
        source: source.to_owned(),
    }
}

struct Seen {
    snapshot: Snapshot,
    grants: Grants,
    trust: Trust,
    force: Result<String, OutOfForce>,
    way: Way,
    advice: Option<String>,
    round: Round,
    labelled: Option<bool>,
    initial_states: BTreeMap<PodName, InitialState>,
    applied: BTreeMap<PodName, (MemberId, AppliedStatus)>,
}

impl Seen {
    fn new(conditions: Vec<Condition>) -> Self {
        Self {
            snapshot: snapshot(conditions),
            grants: Grants::default(),
            trust: Trust::Trusted,
            force: Ok("v,m".into()),
            way: way(Scheme::Https, true, "volume etcd-ca: Secret ca"),
            advice: None,
            round: Round::default(),
            labelled: Some(true),
            initial_states: BTreeMap::new(),
            applied: BTreeMap::new(),
        }
    }

    fn shown_over(
        &self,
        before: &QuorumDisruptionBudgetStatus,
        second: i64,
    ) -> QuorumDisruptionBudgetStatus {
        let mut status = before.clone();
        ReportFacts {
            snapshot: &self.snapshot,
            round: &self.round,
            grants: &self.grants,
            trust: self.trust,
            untrusted_because: None,
            force: &self.force,
            way: &self.way,
            told: &self.way.source,
            advice: self.advice.as_deref(),
            without_user: Some(&ClusterRef::new("db", "etcd")),
            labelled: self.labelled,
            same_etcd: &[],
            applied: &self.applied,
            places: &BTreeMap::from([("etcd-0".into(), DataPlace::Pod)]),
            initial_states: &self.initial_states,
            troubles: &BTreeMap::from([("etcd-2".into(), "container etcd: ErrImagePull".into())]),
            generation: Some(3),
            now: &Time(jiff::Timestamp::from_second(second).unwrap()),
        }
        .show(&mut status);
        status
    }

    fn shown(&self) -> QuorumDisruptionBudgetStatus {
        self.shown_over(&QuorumDisruptionBudgetStatus::default(), 1)
    }
}

fn is(status: &QuorumDisruptionBudgetStatus, kind: &str) -> (String, String) {
    let found = status.conditions.iter().find(|c| c.type_ == kind).unwrap();
    (found.status.clone(), found.reason.clone())
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn serving(count: usize) -> Vec<Condition> {
    vec![Condition::Serving; count]
}

#[test]
fn a_label_that_was_lost_is_said_and_so_is_its_return() {
    let mut seen = Seen::new(serving(3));
    let kind = condition::ENROLLED;
    assert!(find(&seen.shown().conditions, kind).is_none());
    seen.labelled = Some(false);
    let lost = seen.shown();
    assert_eq!(is(&lost, kind), pair("False", "NotLabelled"));
    let said = &find(&lost.conditions, kind).unwrap().message;
    assert!(
        said.contains("kubectl -n a label statefulset etcd quorumgate.io/enroll=true"),
        "{said}"
    );
    seen.labelled = Some(true);
    let back = seen.shown_over(&lost, 2);
    assert_eq!(is(&back, kind), pair("True", "Labelled"));
}

#[test]
fn the_numbers_are_those_of_the_decision() {
    let shown = Seen::new(serving(5)).shown();
    assert_eq!(shown.voters, Some(5));
    assert_eq!(shown.current_healthy, Some(5));
    assert_eq!(shown.desired_healthy, Some(3));
    assert_eq!(shown.disruptions_allowed, Some(2));
    assert_eq!(shown.leader.as_deref(), Some("etcd-0"));
    assert_eq!(shown.observed_generation, Some(3));
}

#[test]
fn an_open_permission_counts_as_gone() {
    let mut seen = Seen::new(serving(3));
    let what = GrantKind::Delete {
        uid: PodUid::new("uid-1"),
        rollout: false,
    };
    let grants = Grants::default();
    seen.grants = grants.issue(&"etcd-1".into(), what, "ann".into(), String::new());
    let shown = seen.shown();
    assert_eq!(shown.current_healthy, Some(2));
    assert_eq!(shown.disruptions_allowed, Some(0));
    let healthy = is(&shown, condition::QUORUM_HEALTHY);
    assert_eq!(healthy, pair("True", "NoHeadroom"));
}

#[test]
fn quorum_is_healthy_in_words_for_each_step_down() {
    let healthy =
        |conditions: Vec<Condition>| is(&Seen::new(conditions).shown(), condition::QUORUM_HEALTHY);
    let with_down = |up: usize, downs: usize| {
        let mut all = serving(up);
        all.extend(vec![down(); downs]);
        all
    };
    assert_eq!(healthy(serving(5)), pair("True", "AllServing"));
    assert_eq!(healthy(with_down(4, 1)), pair("True", "SomeNotServing"));
    assert_eq!(healthy(with_down(3, 2)), pair("True", "NoHeadroom"));
    assert_eq!(healthy(with_down(2, 3)), pair("False", "BelowMajority"));
    assert_eq!(healthy(vec![unknown(); 3]), pair("Unknown", "NoEvidence"));
}

/// A wrong port or a network policy refuses, and the members may serve.
#[test]
fn of_members_that_refuse_by_an_unproven_way_nobody_says_that_they_are_below_the_majority() {
    let refuses = || Condition::Unknown(Why::RefusesAsAllDo);
    let ready = || Condition::Unknown(Why::RefusesThoughReady);
    let healthy = |conditions| is(&Seen::new(conditions).shown(), condition::QUORUM_HEALTHY);
    let unknown = pair("Unknown", "NoEvidence");
    assert_eq!(healthy(vec![refuses(), refuses(), refuses()]), unknown);
    assert_eq!(healthy(vec![refuses(), ready(), down()]), unknown);
    let two_down = vec![refuses(), down(), down()];
    assert_eq!(healthy(two_down), pair("False", "BelowMajority"));
}

#[test]
fn members_that_do_not_serve_are_named_with_the_reason() {
    let shown = Seen::new(vec![Condition::Serving, Condition::Serving, down()]).shown();
    let third = &shown.members[2];
    assert!(!third.serving);
    assert_eq!(
        third.why.as_deref(),
        Some("it refused the connection; container etcd: ErrImagePull")
    );
    let found = shown.conditions.iter();
    let text = &found
        .clone()
        .find(|c| c.type_ == condition::QUORUM_HEALTHY)
        .unwrap()
        .message;
    assert!(
        text.contains("etcd-2 (it refused the connection; container etcd: ErrImagePull)"),
        "{text}"
    );
}

#[test]
fn a_transition_time_changes_only_with_the_status() {
    let three = Seen::new(serving(3));
    let two = Seen::new(vec![Condition::Serving, Condition::Serving, down()]);
    let one = Seen::new(vec![Condition::Serving, down(), down()]);
    let since = |status: &QuorumDisruptionBudgetStatus| {
        let mut found = status.conditions.iter();
        let found = found.find(|c| c.type_ == condition::QUORUM_HEALTHY);
        found.unwrap().last_transition_time.0.as_second()
    };
    let first = three.shown_over(&QuorumDisruptionBudgetStatus::default(), 1);
    let second = two.shown_over(&first, 2);
    assert_eq!(since(&second), 1);
    let third = one.shown_over(&second, 3);
    assert_eq!(since(&third), 3);
}

#[test]
fn a_member_that_is_silent_keeps_the_id_it_was_known_by() {
    let before = Seen::new(serving(3)).shown();
    let mut silent = Seen::new(vec![Condition::Serving, Condition::Serving, unknown()]);
    silent.snapshot.members[2].id = None;
    let after = silent.shown_over(&before, 2);
    assert_eq!(after.members[2].member_id.as_deref(), Some("3"));
}

/// Otherwise the next leader would find that the new member had begun without its data.
#[test]
fn a_member_that_replaces_another_inherits_nothing_of_what_that_had_applied() {
    let of = |id: u64| {
        let applied = json!({
            "raftIndex": 120, "podUID": "old", "restarts": 0, "time": "2026-01-01T00:00:00Z",
        });
        (
            MemberId(id),
            serde_json::from_value::<AppliedStatus>(applied).unwrap(),
        )
    };
    let mut seen = Seen::new(serving(3));
    seen.applied.insert("etcd-2".into(), of(3));
    let before = seen.shown();
    assert!(before.members[2].applied.is_some());
    // This replica has not looked at the new member yet.
    let mut replaced = Seen::new(serving(3));
    replaced.snapshot.members[2].id = Some(MemberId(9));
    replaced.applied.insert("etcd-2".into(), of(3));
    let after = replaced.shown_over(&before, 2);
    assert_eq!(after.members[2].member_id.as_deref(), Some("9"));
    assert_eq!(after.members[2].applied, None);
    // A silent one keeps what it had.
    let mut silent = Seen::new(vec![Condition::Serving, Condition::Serving, unknown()]);
    silent.snapshot.members[2].id = None;
    let after = silent.shown_over(&before, 2);
    assert!(after.members[2].applied.is_some());
}

#[test]
fn nothing_new_is_nothing_to_write() {
    let seen = Seen::new(serving(3));
    let first = seen.shown();
    assert_eq!(urgency(&first, &seen.shown_over(&first, 60)), Urgency::None);
}

#[test]
fn numbers_can_wait_and_conditions_cannot() {
    let mut seen = Seen::new(serving(5));
    let first = seen.shown();
    seen.snapshot.members[1].lag = Some(7);
    let lagging = seen.shown_over(&first, 2);
    assert_eq!(urgency(&first, &lagging), Urgency::Numbers);
    seen.snapshot.members[1].condition = down();
    let failing = seen.shown_over(&lagging, 3);
    assert_eq!(urgency(&lagging, &failing), Urgency::Now);
}

#[test]
fn a_new_incarnation_cannot_wait() {
    let mut seen = Seen::new(serving(3));
    let first = seen.shown();
    seen.snapshot.members[1].pod.as_mut().unwrap().uid = PodUid::new("new");
    assert_eq!(urgency(&first, &seen.shown_over(&first, 2)), Urgency::Now);
}

#[test]
fn several_cluster_ids_and_a_shared_one_are_conditions() {
    let mut seen = Seen::new(serving(3));
    seen.snapshot.cluster_ids.push(ClusterId(0xdef));
    let several = is(&seen.shown(), condition::CLUSTER_ID_CONSISTENT);
    assert_eq!(several, pair("False", "SeveralClusterIDs"));
    seen.snapshot.circumstances.shared_with = Some(ClusterRef::new("b", "other"));
    let shared = is(&seen.shown(), condition::CLUSTER_ID_CONSISTENT);
    assert_eq!(shared, pair("False", "SharedCluster"));
}

#[test]
fn an_expired_certificate_is_why_evidence_is_not_live() {
    let expired = Unanswered::Tls("the client certificate has expired".into());
    let silent = Condition::Unknown(Why::Silent(expired));
    let shown = Seen::new(vec![silent; 3]).shown();
    let live = is(&shown, condition::EVIDENCE_LIVE);
    assert_eq!(live, pair("False", "TLSFailed"));
    let told = &shown.conditions.iter();
    let told = told.clone().find(|c| c.type_ == condition::EVIDENCE_LIVE);
    let told = &told.unwrap().message;
    assert!(
        told.ends_with("asked by: volume etcd-ca: Secret ca"),
        "{told}"
    );
    let healthy = is(&shown, condition::QUORUM_HEALTHY);
    assert_eq!(healthy, pair("Unknown", "NoEvidence"));
}

#[test]
fn how_members_are_asked_is_a_condition() {
    let mut seen = Seen::new(serving(3));
    for (scheme, has_authority, shown) in [
        (Scheme::Https, true, pair("True", "Found")),
        (Scheme::Http, false, pair("False", "Plaintext")),
        (Scheme::Https, false, pair("Unknown", "NotFound")),
    ] {
        seen.way = way(scheme, has_authority, "what was found");
        let status = seen.shown();
        assert_eq!(is(&status, condition::MEMBERS_ASKED_BY_TLS), shown);
        let mut conditions = status.conditions.iter();
        let told = conditions.find(|c| c.type_ == condition::MEMBERS_ASKED_BY_TLS);
        assert!(told.unwrap().message.ends_with("what was found"));
    }
}

#[test]
fn where_no_way_led_to_a_member_the_condition_says_what_to_do() {
    let silent = Condition::Unknown(Why::Silent(Unanswered::Tls("a name".to_owned())));
    let mut seen = Seen::new(vec![silent; 3]);
    seen.advice = Some("etcd-0: its certificate is for a; to fix it, run: kubectl".to_owned());
    let shown = seen.shown();
    let live = is(&shown, condition::EVIDENCE_LIVE);
    assert_eq!(live, pair("False", "TLSFailed"));
    let told = shown.conditions.iter();
    let told = told.clone().find(|c| c.type_ == condition::EVIDENCE_LIVE);
    let told = &told.unwrap().message;
    assert!(told.ends_with("to fix it, run: kubectl"), "{told}");
}

#[test]
fn a_gate_out_of_force_and_an_untrusted_ledger_are_conditions() {
    let mut seen = Seen::new(serving(3));
    seen.force = Err(OutOfForce::NotGated);
    seen.trust = Trust::Untrusted {
        remaining: Some(Duration::from_secs(9)),
    };
    let shown = seen.shown();
    let active = is(&shown, condition::GATE_ACTIVE);
    assert_eq!(active, pair("False", "NamespaceNotGated"));
    let trusted = is(&shown, condition::LEDGER_TRUSTED);
    assert_eq!(trusted, pair("False", "Untrusted"));
}

#[test]
fn an_untrusted_ledger_says_who_may_go_only_while_refusals_count_and_the_time_runs() {
    let mut seen = Seen::new(serving(3));
    let mut said = |remaining| {
        seen.trust = Trust::Untrusted { remaining };
        let shown = seen.shown();
        let mut conditions = shown.conditions.iter();
        let trusted = conditions.find(|c| c.type_ == condition::LEDGER_TRUSTED);
        trusted.unwrap().message.clone()
    };
    let while_time_runs = said(Some(Duration::from_secs(9)));
    assert!(
        while_time_runs
            .contains("only members that are dead for good may be deleted until a settle")
    );
    // Under `enforcement: Warn`, and while the gate is not in force, no time is known.
    let without_an_end = said(None);
    assert!(without_an_end.contains("as long as that lasts, and for a settle time after it"));
    assert!(!without_an_end.contains("may be deleted"));
}

/// The condition `Ready` of a cluster whose members all answer, after this change.
fn ready_after(change: impl FnOnce(&mut Seen, &mut QuorumDisruptionBudgetStatus)) -> Shown {
    let mut seen = Seen::new(serving(3));
    seen.round = example::healthy("etcd", 3).round;
    let mut before = QuorumDisruptionBudgetStatus::default();
    change(&mut seen, &mut before);
    let status = seen.shown_over(&before, 1);
    find(&status.conditions, condition::READY).unwrap().clone()
}

#[test]
fn ready_sums_up_whether_the_cluster_is_healthy_and_guarded() {
    let said = |shown: &Shown| pair(&shown.status, &shown.reason);
    assert_eq!(said(&ready_after(|_, _| {})), pair("True", "Guarded"));
    let out_of_force = ready_after(|seen, _| seen.force = Err(OutOfForce::NotGated));
    assert_eq!(said(&out_of_force), pair("False", "NamespaceNotGated"));
    assert!(out_of_force.message.starts_with("GateActive is False: "));
    let new = ready_after(|seen, _| {
        seen.trust = Trust::Untrusted {
            remaining: Some(Duration::from_secs(9)),
        };
    });
    assert_eq!(said(&new), pair("False", "Untrusted"));
    let silent = ready_after(|seen, _| seen.round = Round::default());
    assert_eq!(said(&silent), pair("False", "NoAnswer"));
    let below = ready_after(|seen, _| {
        for member in &mut seen.snapshot.members[1..] {
            member.condition = down();
        }
    });
    assert_eq!(said(&below), pair("False", "BelowMajority"));
    let shared = ready_after(|seen, _| {
        let other = ClusterRef::new("b", "other");
        seen.snapshot.circumstances.shared_with = Some(other);
    });
    assert_eq!(said(&shared), pair("False", "SharedCluster"));
    let unprotected = ready_after(|_, before| {
        before.conditions = vec![Shown {
            type_: condition::DATA_PROTECTED.into(),
            status: "False".into(),
            reason: "Held".into(),
            message: "etcd-1 is kept from starting".into(),
            observed_generation: None,
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        }];
    });
    assert_eq!(said(&unprotected), pair("False", "Held"));
}

#[test]
fn what_the_owner_chose_is_not_held_against_a_cluster() {
    let only_warns = ready_after(|seen, _| seen.trust = Trust::Untrusted { remaining: None });
    assert_eq!(only_warns.status, "True");
    let by_readiness = ready_after(|seen, _| {
        seen.round = Round::default();
        seen.snapshot.policy.evidence = EvidenceMode::Readiness;
        seen.snapshot.cluster_ids.clear();
    });
    assert_eq!(by_readiness.status, "True", "{}", by_readiness.message);
}

#[test]
fn alarms_are_a_condition_whatever_is_done_about_them() {
    let mut seen = Seen::new(serving(3));
    let kind = condition::ALARMS_CLEAR;
    assert_eq!(is(&seen.shown(), kind), pair("True", "NoAlarm"));
    seen.snapshot.members[1].alarms = vec![AlarmKind::NoSpace];
    let full = seen.shown();
    assert_eq!(is(&full, kind), pair("False", "NoSpace"));
    assert_eq!(full.members[1].alarms, ["NOSPACE"]);
    let said = &find(&full.conditions, kind).unwrap().message;
    assert!(
        said.contains("the database of etcd-1 is at its quota"),
        "{said}"
    );
    // etcd 3.5 names no member.
    seen.snapshot.accused.insert(MemberId(0));
    let corrupt = seen.shown();
    assert_eq!(is(&corrupt, kind), pair("False", "Corrupt"));
    let said = &find(&corrupt.conditions, kind).unwrap().message;
    assert!(said.contains("etcd names no member"), "{said}");
    seen.snapshot.accused.clear();
    seen.snapshot.members[1].alarms.clear();
    seen.snapshot.cluster_ids.clear();
    assert_eq!(is(&seen.shown(), kind), pair("Unknown", "NoEvidence"));
}

#[test]
fn members_that_are_missing_are_not_updated() {
    let mut seen = Seen::new(serving(3));
    let mut observation = example::healthy("etcd", 3);
    for pod in &mut observation.pods {
        pod.revision = Some("new".into());
    }
    seen.snapshot.update_revision = Some("new".into());
    seen.snapshot.pods = observation.pods;
    let kind = condition::ALL_MEMBERS_UPDATED;
    assert_eq!(is(&seen.shown(), kind), pair("True", "Updated"));
    seen.snapshot.pods.pop();
    assert_eq!(is(&seen.shown(), kind), pair("False", "Outdated"));
}

#[test]
fn only_changed_conditions_are_reported() {
    let up = Seen::new(serving(3)).shown();
    let same = Seen::new(serving(3)).shown_over(&up, 2);
    assert!(turned(&up.conditions, &same.conditions).is_empty());
    let down = Seen::new(vec![Condition::Serving, down(), down()]).shown_over(&up, 3);
    let turned = turned(&up.conditions, &down.conditions);
    let kinds: Vec<&str> = turned.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(kinds, [condition::QUORUM_HEALTHY]);
}

#[test]
fn external_members_are_not_forgotten_while_nobody_gives_a_list_of_this_cluster() {
    let mut seen = Seen::new(vec![Condition::Serving]);
    let mut external = member(7, Condition::Serving);
    external.name = "outside".into();
    external.pod_name = None;
    external.pod = None;
    seen.snapshot.members.push(external);
    let before = seen.shown();
    assert_eq!(before.members.len(), 2);

    seen.snapshot = snapshot(vec![unknown()]);
    seen.snapshot.membership = Membership::Unread;
    let after = seen.shown_over(&before, 2);
    let kept = after.members.get(1).unwrap();
    assert_eq!((kept.name.as_str(), kept.serving), ("outside", false));
    assert_eq!(seen.shown_over(&after, 3).members, after.members);

    seen.snapshot.membership = Membership::Confirmed { voters: 1 };
    seen.snapshot.unproven_voters = 2;
    assert_eq!(
        seen.shown_over(&after, 4).members.len(),
        2,
        "the list may be that of another cluster"
    );

    seen.snapshot.unproven_voters = 0;
    assert_eq!(
        seen.shown_over(&after, 5).members.len(),
        1,
        "it was removed"
    );
}

#[test]
fn a_log_that_went_back_is_a_condition_that_names_both_ends_and_the_way_on() {
    let mut seen = Seen::new(serving(3));
    let kind = condition::DATA_INTACT;
    assert_eq!(is(&seen.shown(), kind), pair("True", "NothingLost"));
    seen.snapshot.went_back = Some(WentBack {
        cluster: ClusterId(0xabc),
        serves_as: ClusterId(0xabc),
        reached: 5000,
        is: 8,
    });
    let before = QuorumDisruptionBudgetStatus {
        data_loss: Some(DataLossStatus {
            serves_as: None,
            detection_time: Time(jiff::Timestamp::UNIX_EPOCH),
            cluster_id: "abc".into(),
            reached: 5000,
            found: 8,
        }),
        ..QuorumDisruptionBudgetStatus::default()
    };
    let shown = seen.shown_over(&before, 1);
    assert_eq!(is(&shown, kind), pair("False", "DataLost"));
    let said = &find(&shown.conditions, kind).unwrap().message;
    for part in ["5000", "8", "accept-data-loss=1970-01-01T00:00:00Z"] {
        assert!(said.contains(part), "{said}");
    }
    seen.snapshot.went_back = None;
    seen.snapshot.log_end = None;
    assert_eq!(is(&seen.shown(), kind), pair("Unknown", "NoLeader"));
}

#[test]
fn a_refilled_member_is_a_condition_that_names_both_ways_on() {
    let seen = Seen::new(serving(3));
    let before = QuorumDisruptionBudgetStatus {
        refills: vec![RefillStatus {
            member: "etcd-1".into(),
            member_id: "abc".into(),
            detection_time: Time(jiff::Timestamp::UNIX_EPOCH),
        }],
        ..QuorumDisruptionBudgetStatus::default()
    };
    let shown = seen.shown_over(&before, 1);
    let kind = condition::DATA_INTACT;
    assert_eq!(is(&shown, kind), pair("False", "Refilled"));
    let said = &find(&shown.conditions, kind).unwrap().message;
    let accept = "accept-data-loss=1970-01-01T00:00:00Z";
    for part in ["etcd-1 began", "replace=abc", accept] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn pods_that_would_start_a_cluster_without_their_data_are_named() {
    let kind = condition::INITIAL_STATE_SET;
    let mut seen = Seen::new(serving(3));
    assert!(find(&seen.shown().conditions, kind).is_none());
    let states = |all: [InitialState; 3]| {
        let pods = ["etcd-0", "etcd-1", "etcd-2"].map(PodName::new);
        pods.into_iter().zip(all).collect()
    };
    let (existing, new, unread) = (
        InitialState::Existing,
        InitialState::New,
        InitialState::Unread,
    );
    for (all, status, reason) in [
        ([existing; 3], "True", "Existing"),
        ([existing, existing, unread], "Unknown", "Unread"),
        ([new, existing, new], "False", "StartsAnew"),
        ([new, existing, unread], "False", "StartsAnew"),
    ] {
        seen.initial_states = states(all);
        assert_eq!(is(&seen.shown(), kind), pair(status, reason), "{all:?}");
    }
    let shown = seen.shown();
    let text = &find(&shown.conditions, kind).unwrap().message;
    for words in [
        "of etcd-0 is new",
        "kubectl -n a rollout restart statefulset etcd",
        "sets initial-cluster-state of etcd-2",
    ] {
        assert!(text.contains(words), "{text}");
    }
    // Somebody else sees to it from now on.
    seen.initial_states = BTreeMap::new();
    let gone = seen.shown_over(&shown, 2);
    assert!(find(&gone.conditions, kind).is_none());
}

#[test]
fn every_condition_is_one_of_the_present_generation() {
    let before = QuorumDisruptionBudgetStatus {
        conditions: vec![Shown {
            type_: condition::DATA_PROTECTED.into(),
            status: "True".into(),
            reason: "NothingToReplace".into(),
            message: String::new(),
            observed_generation: Some(1),
            last_transition_time: Time(jiff::Timestamp::UNIX_EPOCH),
        }],
        ..QuorumDisruptionBudgetStatus::default()
    };
    let status = Seen::new(serving(3)).shown_over(&before, 1);
    assert!(status.conditions.len() > 5);
    for shown in &status.conditions {
        assert_eq!(shown.observed_generation, Some(3), "{shown:?}");
    }
}
