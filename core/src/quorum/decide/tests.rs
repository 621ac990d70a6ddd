//! Each rule on its own, on the smallest cluster that shows it. The rules together are tested by
//! the scenarios in `core/tests/core/scenarios`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Case, decide, decide_early, decide_without_ledger};
use crate::quorum::circumstances::{
    Circumstances, EvictionBudget, Override, OverrideOn, Scope, Teardown,
};
use crate::quorum::condition::Condition;
use crate::quorum::evidence::{ListedMember, Probe, Target, Unanswered};
use crate::quorum::log_end::WentBack;
use crate::quorum::pod::{Containers, Node, Pod};
use crate::quorum::{
    Actor, Allowance, Basis, ClusterId, ClusterRef, Disruption, EvidenceMode, Grace, GrantKind,
    Grants, InPlace, Kind, MemberId, Observation, ProcessState, Reason, SmallCluster, Snapshot,
    TargetPod, Trust, Verdict, Waiver, Why, example,
};

/// A cluster of voters `m-0`, `m-1`, … that all serve. `m-0` leads.
fn healthy(voters: u32) -> Observation {
    example::healthy("m", voters)
}

fn silent(observation: &mut Observation, n: usize, why: Unanswered) {
    let target = observation.round.probes[n].target.clone();
    observation.round.probes[n] = Probe::unanswered(target, why);
}

fn crashed(observation: &mut Observation, n: usize) {
    silent(observation, n, Unanswered::Refused);
    observation.pods[n].containers = Containers::EtcdFailed {
        reason: "Error".into(),
    };
}

fn leaderless(observation: &mut Observation, n: usize) {
    let probe = &mut observation.round.probes[n];
    probe.status.as_mut().unwrap().leader = None;
    probe.read = Err(Unanswered::NoLeader);
}

fn learner(observation: &mut Observation, n: usize) {
    for probe in &mut observation.round.probes {
        // A learner gives no list.
        if let Ok(members) = &mut probe.members {
            members[n].learner = true;
        }
    }
    let probe = &mut observation.round.probes[n];
    probe.status.as_mut().unwrap().learner = true;
    probe.read = Err(Unanswered::Learner);
    probe.members = Err(Unanswered::Learner);
    observation.expected.voters -= 1;
}

fn quorum_lost() -> Observation {
    let mut observation = healthy(3);
    leaderless(&mut observation, 0);
    crashed(&mut observation, 1);
    crashed(&mut observation, 2);
    observation
}

fn ask(kind: Kind, n: u32) -> Disruption {
    Disruption {
        target: TargetPod {
            name: format!("m-{n}").as_str().into(),
            uid: format!("uid-{n}").as_str().into(),
        },
        kind,
        actor: match kind {
            Kind::Delete | Kind::Evict | Kind::Restart(_) => Actor::Stranger,
            Kind::RolloutStep
            | Kind::RolloutEviction
            | Kind::Defragment
            | Kind::Replace
            | Kind::Remove
            | Kind::Recover => Actor::Gate,
        },
        grace: Grace::Graceful,
        precondition: None,
    }
}

fn force(n: u32) -> Disruption {
    Disruption {
        grace: Grace::Forced,
        ..ask(Kind::Delete, n)
    }
}

fn granted(pods: &[u32]) -> Grants {
    pods.iter().fold(Grants::default(), |grants, n| {
        let what = GrantKind::Delete {
            uid: format!("uid-{n}").as_str().into(),
            rollout: false,
        };
        let name = format!("m-{n}").as_str().into();
        grants.issue(&name, what, "somebody".into(), String::new())
    })
}

fn judge(observation: &Observation, grants: &Grants, disruption: &Disruption) -> Verdict {
    decide(&Snapshot::assemble(observation), grants, disruption)
}

fn verdict(observation: &Observation, kind: Kind, n: u32) -> Verdict {
    judge(observation, &Grants::default(), &ask(kind, n))
}

fn waived(waiver: Waiver) -> Verdict {
    Verdict::Allow(Allowance::Waived(waiver))
}

fn based(basis: Basis) -> Verdict {
    Verdict::Allow(Allowance::Grant(basis))
}

#[track_caller]
fn assert_waits(verdict: &Verdict, slug: &str) {
    match verdict {
        Verdict::Wait(reason) => assert_eq!(reason.slug(), slug),
        other => panic!("{other:?} instead of Wait {slug}"),
    }
}

#[test]
fn rule_1_a_foreign_pod_passes_and_an_enrolled_one_needs_its_budget() {
    let mut o = healthy(1);
    o.circumstances.scope = Scope::Foreign;
    assert_eq!(verdict(&o, Kind::Delete, 0), waived(Waiver::Foreign));
    o.circumstances.scope = Scope::NoLedger;
    assert_eq!(
        verdict(&o, Kind::Delete, 0),
        Verdict::Wait(Reason::NoLedger)
    );
    o.circumstances.scope = Scope::NoDefinition;
    assert_eq!(
        verdict(&o, Kind::Delete, 0),
        Verdict::Wait(Reason::NoDefinition)
    );
}

#[test]
fn rule_1_needs_neither_pod_nor_member() {
    let foreign = Circumstances {
        scope: Scope::Foreign,
        ..Circumstances::ordinary()
    };
    let disruption = ask(Kind::Evict, 7);
    assert_eq!(
        decide_early(&foreign, None, &disruption),
        Some(waived(Waiver::Foreign))
    );
    assert_eq!(
        decide_early(&Circumstances::ordinary(), None, &disruption),
        None
    );
}

#[test]
fn rule_2_a_terminating_pod_finishes() {
    let mut o = quorum_lost();
    o.pods[0].terminating = true;
    assert_eq!(verdict(&o, Kind::Delete, 0), waived(Waiver::Terminating));
}

#[test]
fn rule_2_its_grace_is_shortened_only_where_it_cannot_run_on() {
    let mut o = healthy(3);
    o.pods[0].terminating = true;
    let none = Grants::default();
    assert_eq!(judge(&o, &none, &force(0)), waived(Waiver::Terminating));
    o.pods[0].node = Node::NotReady;
    assert!(matches!(judge(&o, &none, &force(0)), Verdict::Deny(_)));
    let kubelet = Disruption {
        actor: Actor::NodeOrPodGc,
        ..force(0)
    };
    assert_eq!(judge(&o, &none, &kubelet), waived(Waiver::Terminating));
}

#[test]
fn rule_3_a_teardown_passes_and_what_stays_listed_is_granted() {
    let mut o = quorum_lost();
    for teardown in [Teardown::Namespace, Teardown::StatefulSet, Teardown::Owner] {
        o.circumstances.teardown = Some(teardown);
        assert_eq!(
            verdict(&o, Kind::Delete, 0),
            waived(Waiver::Teardown(teardown))
        );
    }
    for teardown in [Teardown::Hibernation, Teardown::ScaleIn] {
        o.circumstances.teardown = Some(teardown);
        assert_eq!(
            verdict(&o, Kind::Delete, 0),
            based(Basis::Teardown(teardown))
        );
    }
}

#[test]
fn rule_4_a_request_for_another_incarnation_passes() {
    let o = quorum_lost();
    let for_uid = |uid: &str| Disruption {
        precondition: Some(uid.into()),
        ..ask(Kind::Evict, 0)
    };
    let none = Grants::default();
    assert_eq!(
        judge(&o, &none, &for_uid("uid-before")),
        waived(Waiver::WrongIncarnation)
    );
    assert_waits(&judge(&o, &none, &for_uid("uid-0")), "QuorumLost");
}

#[test]
fn rule_5_force_needs_proof_that_the_pod_cannot_run_on() {
    let mut o = healthy(3);
    silent(&mut o, 0, Unanswered::Deadline);
    let mut forced = |node| {
        o.pods[0].node = node;
        judge(&o, &Grants::default(), &force(0))
    };
    assert!(matches!(
        forced(Node::NotReady),
        Verdict::Deny(Reason::AtMostOnce { .. })
    ));
    assert_waits(&forced(Node::Unread), "Unavailable");
    for passes in [Node::Ready, Node::OutOfService, Node::Gone] {
        assert!(matches!(forced(passes), Verdict::Allow(_)), "{passes:?}");
    }
}

#[test]
fn rule_5_is_lifted_by_an_override_on_the_pod_alone() {
    let mut o = healthy(3);
    o.pods[0].node = Node::NotReady;
    let mut forced = |on| {
        o.circumstances.valid_override = Some(Override {
            on,
            until: String::new(),
        });
        judge(&o, &Grants::default(), &force(0))
    };
    assert_eq!(forced(OverrideOn::Pod), based(Basis::Override));
    assert!(matches!(forced(OverrideOn::StatefulSet), Verdict::Deny(_)));
    assert!(matches!(forced(OverrideOn::Budget), Verdict::Deny(_)));
}

#[test]
fn rule_6_an_override_is_for_others_never_for_the_gates_own_steps() {
    let mut o = quorum_lost();
    o.circumstances.valid_override = Some(Override {
        on: OverrideOn::Budget,
        until: String::new(),
    });
    assert_eq!(verdict(&o, Kind::Evict, 0), based(Basis::Override));
    assert_waits(&verdict(&o, Kind::RolloutStep, 0), "QuorumLost");
}

#[test]
fn rule_7_a_pod_that_is_no_member_passes() {
    let mut o = healthy(4);
    o.expected.voters = 3;
    crashed(&mut o, 0);
    for probe in &mut o.round.probes {
        if let Ok(members) = &mut probe.members {
            members.truncate(3);
        }
    }
    assert_eq!(
        verdict(&o, Kind::Evict, 3),
        Verdict::Allow(Allowance::Grant(Basis::NotAMember))
    );
}

#[test]
fn a_restart_in_place_of_a_member_is_refused_whatever_the_others_do() {
    for by in [
        InPlace::Image,
        InPlace::Deadline,
        InPlace::Resize,
        InPlace::Start,
    ] {
        let refused = Verdict::Deny(Reason::RestartByDelete(by));
        let asked = Kind::Restart(by);
        assert_eq!(verdict(&healthy(3), asked, 0), refused);
        assert_eq!(verdict(&healthy(1), asked, 0), refused);
        assert_eq!(verdict(&quorum_lost(), asked, 1), refused);
        let mut untrusted = healthy(3);
        untrusted.circumstances.ledger = Trust::Untrusted { remaining: None };
        assert_eq!(verdict(&untrusted, asked, 0), refused);
    }
}

#[test]
fn a_restart_in_place_passes_by_an_override_and_where_no_member_is_touched() {
    let asked = Kind::Restart(InPlace::Image);
    let mut o = healthy(3);
    o.circumstances.valid_override = Some(Override {
        on: OverrideOn::Budget,
        until: String::new(),
    });
    assert_eq!(verdict(&o, asked, 0), based(Basis::Override));
    o.circumstances.teardown = Some(Teardown::Namespace);
    let torn_down = waived(Waiver::Teardown(Teardown::Namespace));
    assert_eq!(verdict(&o, asked, 0), torn_down);
    o.circumstances.scope = Scope::Foreign;
    assert_eq!(verdict(&o, asked, 0), waived(Waiver::Foreign));
    let mut o = healthy(3);
    o.pods[0].terminating = true;
    assert_eq!(verdict(&o, asked, 0), waived(Waiver::Terminating));
}

#[test]
fn without_a_ledger_only_teardown_a_terminating_pod_and_a_persons_word_pass() {
    let o = healthy(3);
    let asked = ask(Kind::Evict, 1);
    let decided = |circumstances: &Circumstances, pod: &Pod| {
        decide_without_ledger(circumstances, pod, &asked, Reason::NoLedger)
    };
    let pod = &o.pods[1];
    let mut around = Circumstances::ordinary();
    assert_eq!(decided(&around, pod), Verdict::Wait(Reason::NoLedger));
    let terminating = Pod {
        terminating: true,
        ..pod.clone()
    };
    assert_eq!(decided(&around, &terminating), waived(Waiver::Terminating));
    around.valid_override = Some(Override {
        on: OverrideOn::StatefulSet,
        until: "2026-11-21T12:00:00Z".into(),
    });
    let by_override = Verdict::Allow(Allowance::Grant(Basis::Override));
    assert_eq!(decided(&around, pod), by_override);
    around.teardown = Some(Teardown::Owner);
    let torn_down = waived(Waiver::Teardown(Teardown::Owner));
    assert_eq!(decided(&around, pod), torn_down);
}

#[test]
fn rule_12_no_more_dead_members_go_at_once_than_a_recovery_could_spare() {
    let mut o = healthy(5);
    for n in 0..5 {
        crashed(&mut o, n);
    }
    let asked = ask(Kind::Delete, 2);
    let with_open = |open: &[u32]| decide(&Snapshot::assemble(&o), &granted(open), &asked);
    let free = Verdict::Allow(Allowance::Grant(Basis::CostsNothing));
    assert_eq!(with_open(&[]), free);
    assert_eq!(with_open(&[0]), free);
    assert_waits(&with_open(&[0, 1]), "MayComplete");
}

#[test]
fn rule_8_a_cluster_with_two_budgets_waits() {
    // m-2 belongs in a pod of this set that does not exist, so it may run elsewhere.
    let mut o = without_its_pod();
    o.circumstances.shared_with = Some(ClusterRef::new("ns", "other"));
    assert_waits(&verdict(&o, Kind::Evict, 1), "SharedCluster");

    let mut unread = healthy(3);
    for n in 0..3 {
        silent(&mut unread, n, Unanswered::Deadline);
    }
    unread.circumstances.shared_with = Some(ClusterRef::new("ns", "other"));
    assert_waits(&verdict(&unread, Kind::Evict, 1), "SharedCluster");
}

/// A cluster id in the status of another budget proves nothing: anybody can write one, or have an
/// etcd report one.
#[test]
fn rule_8_another_budgets_claim_holds_nobody_where_every_member_has_a_pod_here() {
    let mut o = healthy(3);
    o.circumstances.shared_with = Some(ClusterRef::new("a-stranger", "etcd"));
    assert_eq!(
        verdict(&o, Kind::Evict, 1),
        verdict(&healthy(3), Kind::Evict, 1)
    );
    assert!(matches!(verdict(&o, Kind::Evict, 1), Verdict::Allow(_)));
}

/// The gate may ask the wrong port, or a network policy may reject its connections. In both cases
/// all members serve.
#[test]
fn rule_16_members_that_refuse_the_gate_and_that_their_kubelets_call_ready_stay() {
    for (formed, expected) in [(true, 3), (false, 0)] {
        let mut o = healthy(3);
        o.formed = formed;
        o.expected.voters = expected;
        for n in 0..3 {
            silent(&mut o, n, Unanswered::Refused);
        }
        for kind in [Kind::Delete, Kind::Evict, Kind::RolloutStep] {
            assert_waits(&verdict(&o, kind, 2), "NoEvidence");
        }
        // Readiness fails for another reason, of one member or of all.
        for n in [1, 0, 2] {
            o.formed = Snapshot::assemble(&o).formed;
            o.pods[n].etcd_ready = false;
            for kind in [Kind::Delete, Kind::RolloutStep] {
                assert_waits(&verdict(&o, kind, 1), "NoEvidence");
            }
        }
    }
}

/// A network policy rejects the gate from all members while readiness fails for another reason, so
/// that all of them look like members that do not listen yet.
#[test]
fn a_way_by_which_nobody_answers_proves_nothing_about_a_cluster_that_worked() {
    for voters in [2, 3, 4, 5, 7] {
        let mut o = none_listens(voters);
        o.formed = true;
        o.policy.two_members = SmallCluster::Allow;
        let mut condition = Vec::new();
        for n in 0..voters {
            for kind in [Kind::Delete, Kind::Evict, Kind::RolloutStep] {
                assert_waits(&verdict(&o, kind, n), "NoEvidence");
            }
            let snapshot = Snapshot::assemble(&o);
            condition.extend(snapshot.members.into_iter().map(|m| m.condition));
        }
        let doubted = Condition::Unknown(Why::RefusesAsAllDo);
        assert!(
            condition.iter().all(|seen| *seen == doubted),
            "{condition:?}"
        );
        // One that was deleted all the same runs again, and takes no part yet.
        o.pods[0].uid = "uid-next".into();
        o.round.probes[0].target = Target::Pod("uid-next".into());
        assert_waits(&verdict(&o, Kind::Delete, 1), "NoEvidence");
        // A last one that is called ready, or that is silent, makes no difference.
        let last = o.pods.len() - 1;
        silent(&mut o, last, Unanswered::Deadline);
        assert_waits(&verdict(&o, Kind::Delete, 1), "NoEvidence");
        o.pods[last].etcd_ready = true;
        silent(&mut o, last, Unanswered::Refused);
        assert_waits(&verdict(&o, Kind::Delete, 1), "NoEvidence");
    }
}

#[test]
fn what_the_kubernetes_api_says_by_itself_needs_no_proven_way() {
    let mut o = none_listens(5);
    o.formed = true;
    crashed(&mut o, 0);
    o.pods[1].containers = Containers::Creating;
    o.pods[2].node = Node::Gone;
    for (n, process) in [
        (0, ProcessState::Dead),
        (1, ProcessState::Starting),
        (2, ProcessState::DeadForGood),
        (3, ProcessState::Alive),
    ] {
        assert_eq!(Snapshot::assemble(&o).members[n].process, process, "m-{n}");
    }
    // The two others may serve, and with one more they make the majority.
    assert_waits(&verdict(&o, Kind::Delete, 0), "MayComplete");
    assert_waits(&verdict(&o, Kind::Delete, 1), "MayComplete");
    for n in [0, 1] {
        let step = verdict(&o, Kind::RolloutStep, n);
        assert_eq!(step, based(Basis::CostsNothing), "its delete is fenced");
    }
    assert_eq!(verdict(&o, Kind::Delete, 2), based(Basis::CostsNothing));
}

#[test]
fn an_answer_of_another_cluster_proves_no_way() {
    let mut o = none_listens(3);
    o.formed = true;
    o.recorded_cluster = Some(ClusterId(1));
    let refuses = |o: &Observation| Snapshot::assemble(o).members[1].process;
    assert_eq!(refuses(&o), ProcessState::Alive);
    o.round.probes[0] = healthy(3).round.probes.remove(0);
    leaderless(&mut o, 0);
    assert_eq!(refuses(&o), ProcessState::Starting);
    o.round.probes[0].status.as_mut().unwrap().cluster_id = ClusterId(9);
    assert_eq!(refuses(&o), ProcessState::Alive);
}

/// No other member is ever asked by the client URL of an external one.
#[test]
fn a_refusal_at_a_client_url_proves_nothing() {
    let mut o = without_its_pod();
    o.round.probes[2] = Probe::unanswered(Target::External(MemberId(3)), Unanswered::Refused);
    let members = Snapshot::assemble(&o).members;
    assert_eq!(
        members[2].condition,
        Condition::Unknown(Why::RefusesAsAllDo)
    );
}

/// A cluster that was hibernated, or scaled in while no member answered, has the same expected
/// voters as one that never formed.
#[test]
fn rule_12_a_cluster_that_wakes_up_is_not_one_that_never_formed() {
    let mut o = healthy(3);
    o.expected.voters = 0;
    o.formed = true;
    for n in 0..3 {
        silent(&mut o, n, Unanswered::Refused);
        o.pods[n].etcd_ready = false;
    }
    o.pods[2].containers = Containers::Creating;
    assert_waits(&verdict(&o, Kind::Delete, 0), "NoEvidence");
    assert_waits(&verdict(&o, Kind::Delete, 2), "MayComplete");
    o.formed = false;
    assert!(matches!(verdict(&o, Kind::Delete, 0), Verdict::Allow(_)));
    assert!(matches!(verdict(&o, Kind::Delete, 2), Verdict::Allow(_)));
}

/// The gate asks the wrong port, and the readiness probes begin to fail. The kubelets called the
/// members ready before.
#[test]
fn rule_12_a_cluster_that_a_kubelet_once_called_ready_is_not_one_that_never_formed() {
    let mut o = healthy(3);
    o.expected.voters = 0;
    o.formed = false;
    for n in 0..3 {
        silent(&mut o, n, Unanswered::Refused);
        o.pods[n].etcd_ready = n == 0;
    }
    assert!(Snapshot::assemble(&o).formed, "to be remembered");
    o.formed = Snapshot::assemble(&o).formed;
    o.pods[0].etcd_ready = false;
    o.pods[2].containers = Containers::Creating;
    assert_waits(&verdict(&o, Kind::Delete, 0), "NoEvidence");
    assert_waits(&verdict(&o, Kind::Delete, 2), "MayComplete");
}

#[test]
fn rule_14_an_only_pod_is_no_only_member_while_external_ones_are_on_record() {
    let mut o = healthy(1);
    silent(&mut o, 0, Unanswered::Deadline);
    assert!(matches!(verdict(&o, Kind::Delete, 0), Verdict::Allow(_)));
    o.recorded_externals = 2;
    assert_waits(&verdict(&o, Kind::Delete, 0), "NoEvidence");
}

#[test]
fn rule_15_two_pods_with_a_cluster_of_their_own_are_no_majority_of_five_voters() {
    let mut o = healthy(3);
    o.recorded_externals = 2;
    silent(&mut o, 2, Unanswered::Deadline);
    for probe in &mut o.round.probes[..2] {
        let own = probe.members.as_mut().unwrap();
        own.retain(|listed| listed.name != "m-2");
    }
    assert_waits(&verdict(&o, Kind::Delete, 2), "NoHeadroom");
    o.recorded_cluster = o.round.probes[0].status.as_ref().ok().map(|s| s.cluster_id);
    assert!(
        matches!(verdict(&o, Kind::Delete, 2), Verdict::Allow(_)),
        "the external voters have been removed"
    );
}

#[test]
fn rule_12_reckons_with_the_listed_voters_where_external_ones_are_in_doubt() {
    let mut o = healthy(3);
    o.replicas = 4;
    o.recorded_externals = 1;
    silent(&mut o, 1, Unanswered::Refused);
    crashed(&mut o, 2);
    let mut fourth = o.pods[2].clone();
    fourth.name = "m-3".into();
    fourth.uid = "uid-3".into();
    fourth.recorded_id = None;
    o.round.probes.push(Probe::unanswered(
        Target::Pod(fourth.uid.clone()),
        Unanswered::Refused,
    ));
    o.pods.push(fourth);
    o.pods[1].etcd_ready = false;
    assert_waits(&verdict(&o, Kind::Delete, 1), "MayComplete");
}

#[test]
fn external_voters_on_record_count_once_while_nobody_gives_a_list() {
    let mut o = healthy(3);
    o.recorded_externals = 2;
    for n in 0..3 {
        silent(&mut o, n, Unanswered::Deadline);
        o.pods[n].node = Node::Gone;
    }
    let snapshot = Snapshot::assemble(&o);
    assert_eq!(snapshot.tolerance(&Grants::default()).voters, 5);
    assert!(snapshot.quorum_lost);
}

#[test]
fn after_a_loss_of_quorum_the_chosen_member_goes_by_the_gate_alone_and_no_other_does() {
    let lost = quorum_lost();
    assert_eq!(verdict(&lost, Kind::Recover, 0), based(Basis::Recovery));
    assert_waits(&verdict(&healthy(3), Kind::Recover, 0), "NoHeadroom");
    let mut one_serves = healthy(3);
    leaderless(&mut one_serves, 0);
    assert_waits(&verdict(&one_serves, Kind::Recover, 0), "NoHeadroom");
    let mut doubted = quorum_lost();
    doubted.circumstances.ledger = Trust::Untrusted { remaining: None };
    assert_waits(&verdict(&doubted, Kind::Recover, 0), "LedgerUntrusted");

    let mut named = quorum_lost();
    named.circumstances.recovering = Some("m-0".into());
    named.expected.voters = 1;
    let own = |n| Disruption {
        actor: Actor::Gate,
        ..ask(Kind::Delete, n)
    };
    let by_gate = |o: &Observation, n| judge(o, &Grants::default(), &own(n));
    assert_eq!(by_gate(&named, 0), based(Basis::Recovery));
    assert_waits(&verdict(&named, Kind::Delete, 0), "QuorumLost");
    assert_ne!(by_gate(&named, 1), based(Basis::Recovery));
    // It does not answer, since it started without a quorum and without the setting.
    silent(&mut named, 0, Unanswered::Deadline);
    assert_eq!(by_gate(&named, 0), based(Basis::Recovery));
    // The others are back after all.
    let mut back = healthy(3);
    back.circumstances.recovering = Some("m-0".into());
    assert_eq!(by_gate(&back, 0), verdict(&back, Kind::Delete, 0));
    silent(&mut back, 1, Unanswered::Deadline);
    silent(&mut back, 2, Unanswered::Deadline);
    assert_waits(&by_gate(&back, 0), "NoHeadroom");
}

#[test]
fn rule_9_an_untrusted_ledger_lets_only_members_go_that_are_dead_for_good() {
    let mut o = healthy(3);
    o.circumstances.ledger = Trust::Untrusted {
        remaining: Some(Duration::from_secs(7)),
    };
    assert_waits(&verdict(&o, Kind::Evict, 1), "LedgerUntrusted");
    crashed(&mut o, 1);
    assert_waits(&verdict(&o, Kind::Evict, 1), "LedgerUntrusted");
    o.pods[1].node = Node::Gone;
    assert!(matches!(verdict(&o, Kind::Evict, 1), Verdict::Allow(_)));
}

#[test]
fn rule_10_an_eviction_that_a_disruption_budget_refuses_takes_no_grant() {
    let mut o = healthy(3);
    o.circumstances.disruption_budget = EvictionBudget::Refuses { name: "m".into() };
    assert_waits(&verdict(&o, Kind::Evict, 1), "DisruptionBudget");
    assert!(matches!(verdict(&o, Kind::Delete, 1), Verdict::Allow(_)));
    o.circumstances.disruption_budget = EvictionBudget::Several {
        names: vec!["m".into(), "n".into()],
    };
    assert_waits(&verdict(&o, Kind::Evict, 1), "DisruptionBudget");
}

#[test]
fn rule_11_a_learner_goes_while_one_more_voter_could_be_borne() {
    let mut o = healthy(4);
    learner(&mut o, 3);
    assert_eq!(verdict(&o, Kind::Evict, 3), based(Basis::Learner));
    crashed(&mut o, 1);
    assert_waits(&verdict(&o, Kind::Evict, 3), "Learner");
    let deadline = o.policy.progress_deadline;
    o.learners_stuck_for = BTreeMap::from([(MemberId(4), deadline)]);
    assert_waits(&verdict(&o, Kind::Evict, 3), "Learner");
    assert_eq!(verdict(&o, Kind::RolloutStep, 3), based(Basis::Learner));
    o.learners_stuck_for.clear();
    crashed(&mut o, 3);
    assert_eq!(verdict(&o, Kind::Evict, 3), based(Basis::Learner));
}

#[test]
fn rule_11_a_learner_that_catches_up_stays_while_another_is_stuck() {
    let mut o = healthy(5);
    learner(&mut o, 3);
    learner(&mut o, 4);
    crashed(&mut o, 1);
    o.learners_stuck_for = BTreeMap::from([
        (MemberId(4), Duration::ZERO),
        (MemberId(5), o.policy.progress_deadline),
    ]);
    assert_eq!(verdict(&o, Kind::RolloutStep, 4), based(Basis::Learner));
    assert_waits(&verdict(&o, Kind::RolloutStep, 3), "Learner");
}

#[test]
fn rule_12_a_member_that_is_down_is_free_while_a_majority_is_out_of_reach() {
    let mut o = healthy(5);
    leaderless(&mut o, 0);
    (1..5).for_each(|n| crashed(&mut o, n));
    assert_eq!(verdict(&o, Kind::Evict, 1), based(Basis::CostsNothing));
}

#[test]
fn rule_12_one_that_may_complete_the_majority_waits_for_proof_or_for_the_gate() {
    let mut o = quorum_lost();
    assert_waits(&verdict(&o, Kind::Evict, 1), "MayComplete");
    assert_eq!(
        verdict(&o, Kind::RolloutStep, 1),
        based(Basis::CostsNothing)
    );
    o.pods[1].node = Node::OutOfService;
    assert_eq!(verdict(&o, Kind::Evict, 1), based(Basis::CostsNothing));
}

#[test]
fn rule_12_the_others_may_have_a_quorum_while_one_of_them_was_not_seen() {
    let may = |o: &Observation| {
        let snapshot = Snapshot::assemble(o);
        let (grants, step) = (Grants::default(), ask(Kind::RolloutStep, 1));
        Case::new(&snapshot, &grants, &step).others_may_have_quorum()
    };
    let mut o = quorum_lost();
    assert!(!may(&o));
    o.replicas = 4;
    assert!(may(&o));
    assert!(may(&healthy(3)));
}

#[test]
fn rule_12_those_that_could_not_be_asked_may_serve() {
    let mut o = healthy(3);
    silent(&mut o, 0, Unanswered::Deadline);
    silent(&mut o, 2, Unanswered::Deadline);
    crashed(&mut o, 1);
    assert_waits(&verdict(&o, Kind::Evict, 1), "MayComplete");
}

#[test]
fn rule_12_one_that_defragments_may_serve_a_moment_later() {
    let mut o = healthy(3);
    silent(&mut o, 2, Unanswered::Defragmenting);
    crashed(&mut o, 1);
    silent(&mut o, 0, Unanswered::Deadline);
    assert_waits(&verdict(&o, Kind::Evict, 1), "MayComplete");
}

#[test]
fn rule_13_an_alive_member_waits_while_quorum_is_lost() {
    let mut o = quorum_lost();
    assert_waits(&verdict(&o, Kind::Evict, 0), "QuorumLost");
    o.quorum_lost_for = Some(
        o.policy
            .quorum_loss_grace
            .saturating_sub(Duration::from_secs(1)),
    );
    assert_waits(&verdict(&o, Kind::RolloutStep, 0), "QuorumLost");
    o.quorum_lost_for = Some(o.policy.quorum_loss_grace);
    assert_eq!(verdict(&o, Kind::RolloutStep, 0), based(Basis::Repair));
    assert_waits(&verdict(&o, Kind::Evict, 0), "QuorumLost");
    assert_waits(&verdict(&o, Kind::Defragment, 0), "QuorumLost");
}

#[test]
fn rule_13_where_one_still_served_quorum_was_not_lost_for_long() {
    let mut o = healthy(3);
    crashed(&mut o, 0);
    crashed(&mut o, 2);
    o.quorum_lost_for = Some(Duration::from_hours(1));
    assert!(Snapshot::assemble(&o).quorum_lost);
    assert_waits(&verdict(&o, Kind::RolloutStep, 1), "QuorumLost");
}

#[test]
fn rule_13_a_revision_that_may_go_on_without_quorum_takes_outdated_members_one_by_one() {
    let mut o = healthy(3);
    o.update_revision = Some("new".into());
    o.pods[2].revision = Some("new".into());
    silent(&mut o, 2, Unanswered::Deadline);
    assert_waits(&verdict(&o, Kind::RolloutStep, 1), "NoHeadroom");
    o.proceed_without_quorum = Some("another".into());
    assert_waits(&verdict(&o, Kind::RolloutStep, 1), "NoHeadroom");
    o.proceed_without_quorum = Some("new".into());
    assert_eq!(verdict(&o, Kind::RolloutStep, 1), based(Basis::Proceed));
    assert_waits(&verdict(&o, Kind::Evict, 1), "NoHeadroom");
    assert_waits(&verdict(&o, Kind::Defragment, 1), "NoHeadroom");
    let alone = judge(&o, &granted(&[0]), &ask(Kind::RolloutStep, 1));
    assert_waits(&alone, "NoHeadroom");
    let mut sound = o.clone();
    sound.round = healthy(3).round;
    assert!(
        matches!(
            verdict(&sound, Kind::RolloutStep, 1),
            Verdict::Allow(Allowance::Grant(Basis::Majority { .. }))
        ),
        "nobody has to accept anything while the others make the majority"
    );
    o.pods[1].revision = Some("new".into());
    assert_waits(&verdict(&o, Kind::RolloutStep, 1), "NoHeadroom");
}

#[test]
fn rule_13_never_rests_on_readiness() {
    let mut o = quorum_lost();
    o.policy.evidence = EvidenceMode::Readiness;
    o.quorum_lost_for = Some(Duration::from_hours(1));
    o.pods.iter_mut().for_each(|pod| pod.etcd_ready = false);
    assert_waits(&verdict(&o, Kind::RolloutStep, 0), "NoHeadroom");
}

#[test]
fn rule_13_all_unknown_is_no_lost_quorum() {
    let mut o = healthy(3);
    (0..3).for_each(|n| silent(&mut o, n, Unanswered::Deadline));
    o.quorum_lost_for = Some(Duration::from_hours(1));
    assert_waits(&verdict(&o, Kind::RolloutStep, 0), "NoEvidence");
}

/// Members up to etcd 3.5 that were restarted without a quorum: they listen, and answer nothing.
fn mute(voters: u32) -> Observation {
    let mut o = healthy(voters);
    o.formed = true;
    o.recorded_cluster = Some(ClusterId(1));
    o.update_revision = Some("new".into());
    o.mute_for = Some(o.policy.quorum_loss_grace);
    for n in 0..o.pods.len() {
        silent(&mut o, n, Unanswered::Mute);
        let pod = &mut o.pods[n];
        (pod.etcd_ready, pod.ready) = (false, false);
        pod.up_for = Some(o.policy.quorum_loss_grace);
        pod.revision = Some("old".into());
    }
    o
}

#[test]
fn rule_13_a_rollout_repairs_members_that_all_listen_and_never_answer() {
    let repair = based(Basis::Repair);
    assert_eq!(verdict(&mute(3), Kind::RolloutStep, 1), repair);
    assert_waits(&verdict(&mute(3), Kind::Delete, 1), "Mute");
    let waits = |change: fn(&mut Observation)| {
        let mut o = mute(3);
        change(&mut o);
        let step = verdict(&o, Kind::RolloutStep, 1);
        assert!(matches!(step, Verdict::Wait(_)), "{step:?}");
    };
    waits(|o| o.mute_for = None);
    waits(|o| o.mute_for = Some(Duration::from_secs(20)));
    // The one that was replaced last has yet to show what it does.
    waits(|o| o.pods[0].up_for = Some(Duration::from_secs(20)));
    waits(|o| o.pods[1].revision = Some("new".into()));
    waits(|o| o.pods[0].etcd_ready = true);
    // A network policy drops the gate's packets.
    waits(|o| silent(o, 0, Unanswered::Deadline));
    waits(|o| silent(o, 0, Unanswered::Refused));
    waits(|o| o.pods[0].node = Node::NotReady);
    waits(|o| o.replicas = 4);
    waits(|o| o.recorded_externals = 1);
    // Nobody ever answered by this way.
    waits(|o| o.recorded_cluster = None);
    waits(|o| {
        o.pods.pop();
    });
    assert_waits(&verdict(&mute(2), Kind::RolloutStep, 1), "Mute");
    let beside_another = judge(&mute(3), &granted(&[0]), &ask(Kind::RolloutStep, 1));
    assert_waits(&beside_another, "Mute");
}

#[test]
fn rule_14_one_member_goes_by_its_policy() {
    let mut o = healthy(1);
    assert_eq!(verdict(&o, Kind::Evict, 0), based(Basis::SingleMember));
    o.policy.single_member = SmallCluster::AllowRollout;
    assert_waits(&verdict(&o, Kind::Evict, 0), "TooSmall");
    assert_eq!(
        verdict(&o, Kind::RolloutStep, 0),
        based(Basis::SingleMember)
    );
    o.policy.single_member = SmallCluster::Never;
    assert_waits(&verdict(&o, Kind::RolloutStep, 0), "TooSmall");
}

#[test]
fn rule_14_one_of_two_goes_by_its_policy_while_the_other_serves() {
    let mut o = healthy(2);
    assert_waits(&verdict(&o, Kind::Evict, 1), "TooSmall");
    assert_eq!(verdict(&o, Kind::RolloutStep, 1), based(Basis::TwoMembers));
    let other = granted(&[0]);
    assert_waits(&judge(&o, &other, &ask(Kind::RolloutStep, 1)), "NoHeadroom");
    silent(&mut o, 0, Unanswered::Deadline);
    assert_waits(&verdict(&o, Kind::RolloutStep, 1), "NoHeadroom");
}

#[test]
fn rule_15_the_others_make_the_majority() {
    let o = healthy(3);
    let two_left = based(Basis::Majority {
        others: 2,
        majority: 2,
    });
    assert_eq!(verdict(&o, Kind::Evict, 1), two_left);
    assert_eq!(
        judge(&o, &granted(&[1]), &ask(Kind::Evict, 1)),
        two_left,
        "its own grant is left out"
    );
    assert_waits(
        &judge(&o, &granted(&[2]), &ask(Kind::Evict, 1)),
        "NoHeadroom",
    );
}

fn allowed(observation: &Observation) -> u32 {
    let none = Grants::default();
    Snapshot::assemble(observation)
        .tolerance(&none)
        .disruptions_allowed()
}

#[test]
fn rule_15_keeps_the_majority_of_one_more_after_a_scale_out() {
    let mut o = healthy(3);
    o.replicas = 5;
    o.scaled_out_for = Some(Duration::from_secs(1));
    assert_waits(&verdict(&o, Kind::Evict, 1), "NoHeadroom");
    assert_eq!(allowed(&o), 0);
    o.scaled_out_for = Some(o.policy.scale_out_grace);
    assert!(matches!(verdict(&o, Kind::Evict, 1), Verdict::Allow(_)));
    assert_eq!(allowed(&o), 1);
}

#[test]
fn rule_16_nobody_could_be_asked() {
    let mut o = healthy(3);
    (0..3).for_each(|n| silent(&mut o, n, Unanswered::Deadline));
    let Verdict::Wait(Reason::NoEvidence { because }) = verdict(&o, Kind::Evict, 1) else {
        panic!("not NoEvidence");
    };
    assert_eq!(because.len(), 3);
    assert_eq!(because[0], "m-0: it did not answer in time");
}

#[test]
fn rule_17_names_what_is_missing() {
    let mut o = healthy(3);
    crashed(&mut o, 2);
    let Verdict::Wait(reason @ Reason::NoHeadroom(_)) = verdict(&o, Kind::Evict, 1) else {
        panic!("not NoHeadroom");
    };
    assert_eq!(
        reason.to_string(),
        "m-1 is needed: 2 of 3 voters serve, 1 without it, and 2 are needed; \
         not serving: m-2 (dead: it refused the connection)"
    );
}

#[test]
fn a_pod_that_nobody_knows_counts_as_an_unknown_voter() {
    let mut o = healthy(3);
    assert!(matches!(verdict(&o, Kind::Evict, 7), Verdict::Allow(_)));
    crashed(&mut o, 0);
    crashed(&mut o, 1);
    leaderless(&mut o, 2);
    assert_waits(&verdict(&o, Kind::Evict, 7), "QuorumLost");
}

#[test]
fn a_voter_without_a_pod_never_started_only_where_it_published_nothing() {
    let mut o = healthy(3);
    o.pods.truncate(2);
    o.round.probes.truncate(2);
    let why = |o: &Observation| {
        let members = Snapshot::assemble(o).members;
        members.last().unwrap().condition.why().unwrap().slug()
    };
    let lists = |o: &mut Observation, change: fn(&mut ListedMember)| {
        for probe in &mut o.round.probes {
            change(&mut probe.members.as_mut().unwrap()[2]);
        }
    };
    assert_eq!(why(&o), "NoPod");
    lists(&mut o, |listed| listed.client_urls.clear());
    assert_eq!(why(&o), "NoPod");
    lists(&mut o, |listed| listed.name.clear());
    assert_eq!(why(&o), "Unstarted");
    lists(&mut o, |listed| "elsewhere".clone_into(&mut listed.name));
    assert_eq!(why(&o), "Elsewhere");
}

/// A cluster of three voters. The last one has no pod and answers at its client URL.
fn without_its_pod() -> Observation {
    let mut o = healthy(3);
    o.pods.truncate(2);
    o.round.probes[2].target = Target::External(MemberId(3));
    o
}

#[test]
fn a_voter_that_belongs_in_a_pod_serves_in_it_or_not_at_all() {
    assert_waits(&verdict(&without_its_pod(), Kind::Delete, 1), "NoHeadroom");
    // A member whose name no pod of the set can have is external, and may serve.
    let mut external = without_its_pod();
    for probe in &mut external.round.probes {
        "m-x".clone_into(&mut probe.members.as_mut().unwrap()[2].name);
    }
    let two_left = based(Basis::Majority {
        others: 2,
        majority: 2,
    });
    assert_eq!(verdict(&external, Kind::Delete, 1), two_left);
    // A record of its pod in the budget outweighs the name.
    external.recorded_pods = [(MemberId(3), "m-2".into())].into();
    assert_waits(&verdict(&external, Kind::Delete, 1), "NoHeadroom");
}

#[test]
fn a_grant_holds_for_the_name_however_the_member_is_reached() {
    let mut o = without_its_pod();
    o.recorded_pods = [(MemberId(3), "m-2".into())].into();
    let snapshot = Snapshot::assemble(&o);
    let grants = granted(&[2]);
    let mut served = snapshot.clone();
    served.members[2].condition = Condition::Serving;
    assert_eq!(served.serving(&Grants::default(), None), 3);
    assert_eq!(served.serving(&grants, None), 2, "however it is reached");
}

/// Makes member `n` run without listening at its client port: a wrapper initialises the data, or
/// etcd has not come so far.
fn about_to_listen(observation: &mut Observation, n: usize) {
    silent(observation, n, Unanswered::Refused);
    observation.pods[n].ready = false;
    observation.pods[n].etcd_ready = false;
}

fn none_listens(voters: u32) -> Observation {
    let mut o = healthy(voters);
    for n in 0..o.pods.len() {
        about_to_listen(&mut o, n);
    }
    o
}

#[test]
fn rule_12_of_members_that_run_and_do_not_listen_as_many_go_as_can_be_spared() {
    let mut o = none_listens(3);
    // A cluster with 0 expected voters was never seen. Its size is then `spec.replicas`.
    o.expected.voters = 0;
    let open = judge(&o, &Grants::default(), &ask(Kind::Delete, 2));
    assert_eq!(open, based(Basis::CostsNothing));
    let with_one = judge(&o, &granted(&[2]), &ask(Kind::Delete, 1));
    assert_waits(&with_one, "MayComplete");
    let step = judge(&o, &granted(&[2]), &ask(Kind::RolloutStep, 1));
    assert_eq!(step, based(Basis::CostsNothing));
}

/// A container that runs does not say that etcd will ever listen in it. So with the members that do
/// listen, the target may be the one that completes the majority.
#[test]
fn rule_12_no_member_that_runs_and_does_not_listen_is_sure_to_listen() {
    let mut o = none_listens(5);
    o.round.probes[0] = healthy(5).round.probes.remove(0);
    leaderless(&mut o, 0);
    assert_waits(&verdict(&o, Kind::Delete, 1), "MayComplete");
    let step = verdict(&o, Kind::RolloutStep, 1);
    assert_eq!(step, based(Basis::CostsNothing), "no other has a quorum");
}

#[test]
fn rule_12_one_without_a_pod_that_refuses_may_listen_a_moment_later() {
    let mut o = healthy(3);
    leaderless(&mut o, 0);
    crashed(&mut o, 1);
    o.pods.truncate(2);
    o.round.probes[2] = Probe::unanswered(Target::External(MemberId(3)), Unanswered::Refused);
    // While m-0 counts, each of the other two would make the majority with it. Once m-0 is
    // terminating, a majority needs both of them.
    o.pods[0].terminating = true;
    assert_waits(&verdict(&o, Kind::Delete, 1), "MayComplete");
    assert_eq!(
        verdict(&o, Kind::RolloutStep, 1),
        based(Basis::CostsNothing)
    );
}

#[test]
fn rule_12_a_cluster_that_was_never_seen_has_no_majority_to_complete() {
    let mut o = none_listens(3);
    // m-0 has been repaired. It waits for its peers, and serves nobody before it has found them.
    silent(&mut o, 0, Unanswered::Deadline);
    assert_waits(&verdict(&o, Kind::Delete, 1), "NoEvidence");
    o.expected.voters = 0;
    assert_eq!(verdict(&o, Kind::Delete, 1), based(Basis::CostsNothing));
    let second = judge(&o, &granted(&[1]), &ask(Kind::Delete, 2));
    assert_waits(&second, "MayComplete");
}

#[test]
fn rule_12_one_that_does_not_listen_stays_even_for_a_step_while_others_may_have_a_quorum_with_it() {
    let mut o = healthy(3);
    about_to_listen(&mut o, 1);
    crashed(&mut o, 2);
    for kind in [Kind::Delete, Kind::RolloutStep] {
        assert_waits(&verdict(&o, kind, 1), "MayComplete");
    }
    assert_eq!(
        verdict(&o, Kind::RolloutStep, 2),
        based(Basis::CostsNothing)
    );
    silent(&mut o, 0, Unanswered::Deadline);
    assert_waits(&verdict(&o, Kind::RolloutStep, 1), "NoEvidence");
    let mut lost = healthy(3);
    leaderless(&mut lost, 0);
    about_to_listen(&mut lost, 1);
    crashed(&mut lost, 2);
    assert_waits(&verdict(&lost, Kind::Delete, 1), "MayComplete");
    assert_eq!(
        verdict(&lost, Kind::RolloutStep, 1),
        based(Basis::CostsNothing)
    );
}

#[test]
fn a_port_that_refuses_proves_nothing_where_the_node_is_silent_or_time_ran_out() {
    let mut o = none_listens(3);
    for pod in &mut o.pods {
        pod.node = Node::NotReady;
    }
    assert_waits(&verdict(&o, Kind::Delete, 1), "NoEvidence");
    let mut slow = none_listens(3);
    for n in 0..3 {
        silent(&mut slow, n, Unanswered::Deadline);
    }
    assert_waits(&verdict(&slow, Kind::Delete, 1), "NoEvidence");
}

#[test]
fn rule_12_a_pod_that_its_kubelet_rejected_is_dead_for_good() {
    let mut o = healthy(2);
    leaderless(&mut o, 0);
    silent(&mut o, 1, Unanswered::NoAddress);
    o.pods[1].has_address = false;
    o.pods[1].containers = Containers::Rejected {
        reason: "OutOfcpu".into(),
    };
    assert_eq!(verdict(&o, Kind::Delete, 1), based(Basis::CostsNothing));
    // The last report of a node that is not Ready proves nothing.
    o.pods[1].node = Node::NotReady;
    assert_waits(&verdict(&o, Kind::Delete, 1), "QuorumLost");
}

#[test]
fn while_a_member_that_was_emptied_serves_only_its_replacement_and_the_dead_go() {
    let mut o = healthy(3);
    let id = o.round.probes[1].status.as_ref().unwrap().member_id;
    o.recorded_refills = vec![id, MemberId(0x77)];
    for (kind, n) in [(Kind::Delete, 0), (Kind::Evict, 1), (Kind::RolloutStep, 2)] {
        assert_waits(&verdict(&o, kind, n), "Refilled");
    }
    assert_waits(&verdict(&o, Kind::Replace, 0), "Refilled");
    let replaced = verdict(&o, Kind::Replace, 1);
    assert!(matches!(replaced, Verdict::Allow(_)), "{replaced:?}");
    // Where its pod changes the member list, the pod is deleted while the old id is listed.
    let permitted =
        Grants::default().issue(&"m-1".into(), GrantKind::Replace, "a".into(), "b".into());
    let snapshot = Snapshot::assemble(&o);
    let own = |n| Disruption {
        actor: Actor::Gate,
        ..ask(Kind::Delete, n)
    };
    let deleted = decide(&snapshot, &permitted, &own(1));
    assert!(matches!(deleted, Verdict::Allow(_)), "{deleted:?}");
    assert_waits(&decide(&snapshot, &permitted, &own(0)), "Refilled");
    // Of a member that is listed no more, the record means nothing.
    o.recorded_refills = vec![MemberId(0x77)];
    assert!(matches!(verdict(&o, Kind::Delete, 0), Verdict::Allow(_)));
    // What is dead for good loses nothing more.
    o.recorded_refills = vec![id];
    o.pods[0].node = Node::Gone;
    o.round.probes[0] = Probe::unanswered(o.round.probes[0].target.clone(), Unanswered::Deadline);
    let dead = verdict(&o, Kind::Delete, 0);
    assert!(matches!(dead, Verdict::Allow(_)), "{dead:?}");
}

#[test]
fn what_keeps_every_member_leaves_no_disruption_allowed() {
    type Change = fn(&mut Snapshot);
    let cases: [(&str, Change); 5] = [
        ("a member was emptied", |cluster| {
            cluster.refilled = vec!["etcd-1".into()];
        }),
        ("the ledger is not trusted", |cluster| {
            let remaining = Some(Duration::from_secs(60));
            cluster.circumstances.ledger = Trust::Untrusted { remaining };
        }),
        ("another budget guards them", |cluster| {
            cluster.circumstances.shared_with = Some(ClusterRef::new("b", "copy"));
            cluster.members[2].pod = None;
        }),
        ("new pods would leave the cluster", |cluster| {
            cluster.circumstances.forces_new_cluster = true;
        }),
        ("data is lost", |cluster| {
            cluster.went_back = Some(WentBack {
                cluster: ClusterId(1),
                serves_as: ClusterId(1),
                reached: 9,
                is: 5,
            });
        }),
    ];
    let none = Grants::default();
    for (case, change) in cases {
        let mut cluster = Snapshot::assemble(&healthy(3));
        assert_eq!(cluster.tolerance(&none).disruptions_allowed(), 1);
        change(&mut cluster);
        let verdict = decide(&cluster, &none, &ask(Kind::Delete, 0));
        assert!(!matches!(verdict, Verdict::Allow(_)), "{case}: {verdict:?}");
        let allowed = cluster.tolerance(&none).disruptions_allowed();
        assert_eq!(allowed, 0, "{case}");
    }
}
