use proptest::prelude::*;

use super::*;
use crate::quorum::GrantKind;
use crate::quorum::circumstances::{Override, OverrideOn};
use crate::quorum::evidence::{Probe, Unanswered};
use crate::quorum::pod::Containers;
use crate::quorum::snapshot::Observation;
use crate::quorum::{ClusterRef, EvidenceMode, SmallCluster, example};

/// A cluster of `voters` of which those in `down` do not run.
fn cluster(voters: u32, down: &[usize]) -> Observation {
    let mut observation = example::healthy("etcd", voters);
    for &n in down {
        observation.pods[n].etcd_ready = false;
        observation.pods[n].containers = Containers::EtcdFailed {
            reason: "CrashLoopBackOff".into(),
        };
        let probe = &mut observation.round.probes[n];
        *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
    }
    let up = u32::try_from(observation.pods.len() - down.len()).unwrap();
    if up < voters / 2 + 1 {
        for probe in &mut observation.round.probes {
            if let Ok(status) = &mut probe.status {
                status.leader = None;
                probe.read = Err(Unanswered::NoLeader);
            }
        }
    }
    observation
}

fn deletion(n: u32) -> ClaimDeletion {
    ClaimDeletion {
        claim: format!("data-etcd-{n}"),
        members: vec![PodName::new(format!("etcd-{n}"))],
        terminating: false,
        other_uid: false,
        collected: false,
        waiting_pod: None,
        disowned: None,
        actor: Actor::Stranger,
    }
}

fn ask(observation: &Observation, grants: &Grants, n: u32) -> Verdict {
    decide_claim(&Snapshot::assemble(observation), grants, &deletion(n))
}

fn slug(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow(Allowance::Grant(basis)) => basis.into(),
        Verdict::Allow(Allowance::Waived(waiver)) => waiver.into(),
        Verdict::Wait(reason) | Verdict::Deny(reason) => reason.slug(),
    }
}

fn drain(n: u32) -> Disruption {
    Disruption {
        target: TargetPod {
            name: PodName::new(format!("etcd-{n}")),
            uid: PodUid::new(format!("uid-{n}")),
        },
        kind: Kind::Delete,
        actor: Actor::Stranger,
        grace: Grace::Graceful,
        precondition: None,
    }
}

#[test]
fn the_claim_of_a_serving_member_is_not_deleted() {
    let verdict = ask(&cluster(3, &[]), &Grants::default(), 1);
    assert!(matches!(verdict, Verdict::Deny(_)));
    assert_eq!(slug(&verdict), "ClaimInUse");
}

#[test]
fn the_claim_of_a_dead_member_goes_while_the_others_make_the_majority() {
    assert_eq!(
        slug(&ask(&cluster(3, &[2]), &Grants::default(), 2)),
        "Majority"
    );
    let going = GrantKind::Delete {
        uid: "uid-1".into(),
        rollout: false,
    };
    let grants = Grants::default().issue(&"etcd-1".into(), going, "anna".into(), String::new());
    let verdict = ask(&cluster(3, &[2]), &grants, 2);
    assert!(matches!(verdict, Verdict::Wait(_)), "{verdict:?}");
}

#[test]
fn while_quorum_is_lost_no_claim_is_deleted() {
    for n in 0..3 {
        let verdict = ask(&cluster(3, &[1, 2]), &Grants::default(), n);
        assert!(matches!(verdict, Verdict::Wait(_)), "{n}: {verdict:?}");
    }
}

#[test]
fn the_last_good_copy_stays_also_in_hibernation() {
    let mut asleep = example::healthy("etcd", 1);
    asleep.replicas = 0;
    asleep.pods.clear();
    asleep.round.probes.clear();
    asleep.circumstances.teardown = Some(Teardown::Hibernation);
    assert_eq!(slug(&ask(&asleep, &Grants::default(), 0)), "LastCopy");
}

#[test]
fn a_teardown_an_override_and_what_is_foreign_always_pass() {
    let with = |change: &dyn Fn(&mut Circumstances)| {
        let mut observation = cluster(3, &[1, 2]);
        change(&mut observation.circumstances);
        slug(&ask(&observation, &Grants::default(), 1))
    };
    assert_eq!(
        with(&|c| c.teardown = Some(Teardown::Namespace)),
        "Teardown"
    );
    assert_eq!(with(&|c| c.teardown = Some(Teardown::Owner)), "Teardown");
    assert_eq!(with(&|c| c.scope = Scope::Foreign), "Foreign");
    let overridden = Override {
        on: OverrideOn::Budget,
        until: String::new(),
    };
    assert_eq!(
        with(&|c| c.valid_override = Some(overridden.clone())),
        "Override"
    );
    assert_eq!(with(&|c| c.scope = Scope::NoLedger), "NoLedger");
}

#[test]
fn a_claim_that_is_terminating_or_another_passes() {
    let snapshot = Snapshot::assemble(&cluster(3, &[]));
    let ask =
        |deletion: &ClaimDeletion| slug(&decide_claim(&snapshot, &Grants::default(), deletion));
    let terminating = ClaimDeletion {
        terminating: true,
        ..deletion(1)
    };
    assert_eq!(ask(&terminating), "Terminating");
    let other = ClaimDeletion {
        other_uid: true,
        ..deletion(1)
    };
    assert_eq!(ask(&other), "WrongIncarnation");
    let nobodys = ClaimDeletion {
        members: vec![],
        ..deletion(1)
    };
    assert_eq!(ask(&nobodys), "Foreign");
}

#[test]
fn the_claim_of_a_removed_member_goes() {
    let verdict = ask(&cluster(3, &[]), &Grants::default(), 3);
    assert_eq!(slug(&verdict), "NotAMember");
}

#[test]
fn a_replacement_of_the_gate_takes_the_claim_of_a_serving_member() {
    let snapshot = Snapshot::assemble(&cluster(3, &[]));
    let replace = Grants::default().issue(
        &"etcd-1".into(),
        GrantKind::Replace,
        "gate".into(),
        String::new(),
    );
    let own = ClaimDeletion {
        actor: Actor::Gate,
        ..deletion(1)
    };
    assert_eq!(slug(&decide_claim(&snapshot, &replace, &own)), "Majority");
    assert_eq!(
        slug(&decide_claim(&snapshot, &replace, &deletion(1))),
        "ClaimInUse"
    );
    assert_eq!(
        slug(&decide_claim(&snapshot, &Grants::default(), &own)),
        "ClaimInUse"
    );
}

#[test]
fn a_claim_waits_while_the_ledger_is_untrusted_or_shared() {
    let mut untrusted = cluster(3, &[2]);
    untrusted.circumstances.ledger = Trust::Untrusted { remaining: None };
    assert_eq!(
        slug(&ask(&untrusted, &Grants::default(), 2)),
        "LedgerUntrusted"
    );
    let mut shared = cluster(3, &[2]);
    shared.expected.voters = 3;
    shared.circumstances.shared_with = Some(ClusterRef::new("ns", "other"));
    shared.round.probes[0].members.as_mut().unwrap()[2].name = "elsewhere".into();
    shared.pods.remove(2);
    let verdict = ask(&shared, &Grants::default(), 1);
    assert!(!matches!(verdict, Verdict::Allow(_)), "{verdict:?}");
}

#[test]
fn a_pod_whose_claim_terminates_is_judged_by_its_data() {
    let ask = |observation: &Observation, n| {
        let snapshot = Snapshot::assemble(observation);
        slug(&decide_with_terminating_claim(
            &snapshot,
            &Grants::default(),
            &drain(n),
        ))
    };
    assert_eq!(ask(&cluster(3, &[]), 1), "Majority");
    // Without its data the only member of a cluster is lost, whatever the policy says.
    assert_eq!(ask(&cluster(1, &[]), 0), "LastCopy");
    // A dead member costs nothing, but its data may be needed.
    assert_ne!(ask(&cluster(3, &[0, 1]), 0), "CostsNothing");
    let mut torn_down = cluster(1, &[]);
    torn_down.circumstances.teardown = Some(Teardown::Namespace);
    assert_eq!(ask(&torn_down, 0), "Teardown");
}

#[test]
fn a_last_copy_is_told_with_its_numbers() {
    let snapshot = Snapshot::assemble(&cluster(1, &[]));
    let verdict = decide_with_terminating_claim(&snapshot, &Grants::default(), &drain(0));
    let Verdict::Wait(Reason::LastCopy(count)) = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(count.target, "etcd-0");
    assert_eq!(
        (count.voters, count.serving, count.left, count.needed),
        (1, 1, 0, 1)
    );
}

#[test]
fn a_strangers_replacement_settles_by_the_claim() {
    let before = Volume {
        claim_uid: "c1".into(),
        volume_id: Some("v1".into()),
        directory: None,
    };
    let here = |uid: &str, terminating| ClaimState::Here {
        uid: uid.into(),
        terminating,
    };
    let of = |claim: &ClaimState, serves| progress_of_claim(Some(&before), claim, serves);
    assert_eq!(of(&here("c1", false), true), ReplacementProgress::Stands);
    assert_eq!(of(&here("c1", false), false), ReplacementProgress::Stands);
    assert_eq!(of(&here("c1", true), true), ReplacementProgress::Underway);
    assert_eq!(of(&ClaimState::Gone, false), ReplacementProgress::Underway);
    assert_eq!(of(&here("c2", false), false), ReplacementProgress::Underway);
    assert_eq!(of(&here("c2", false), true), ReplacementProgress::Serves);
    let unrecorded = |serves| progress_of_claim(None, &here("c2", false), serves);
    assert_eq!(unrecorded(true), ReplacementProgress::Stands);
    assert_eq!(unrecorded(false), ReplacementProgress::Underway);
}

#[test]
fn without_a_record_a_replacement_waits_for_the_member_and_for_every_claim() {
    let here = |terminating| ClaimState::Here {
        uid: "c".into(),
        terminating,
    };
    let of = |observation: &Observation, n: u32, claims: &[ClaimState]| {
        let name = PodName::new(format!("etcd-{n}"));
        progress_of_claims(&Snapshot::assemble(observation), &name, claims)
    };
    let (whole, broken) = (cluster(3, &[]), cluster(3, &[1]));
    assert_eq!(of(&whole, 1, &[here(false)]), ReplacementProgress::Stands);
    assert_eq!(of(&whole, 1, &[]), ReplacementProgress::Stands);
    let one_goes = [here(false), here(true)];
    assert_eq!(of(&whole, 1, &one_goes), ReplacementProgress::Underway);
    let one_is_gone = [here(false), ClaimState::Gone];
    assert_eq!(of(&whole, 1, &one_is_gone), ReplacementProgress::Underway);
    assert_eq!(
        of(&broken, 1, &[here(false)]),
        ReplacementProgress::Underway
    );
    // etcd lists no member that belongs in such a pod.
    assert_eq!(
        of(&whole, 3, &[ClaimState::Gone]),
        ReplacementProgress::Serves
    );
    assert_eq!(of(&whole, 3, &[here(false)]), ReplacementProgress::Stands);
    assert_eq!(of(&whole, 3, &[here(true)]), ReplacementProgress::Underway);
}

/// There is no list to prove that the members were removed, and their claims were left behind.
#[test]
fn by_readiness_the_data_of_members_that_were_scaled_in_is_not_waited_for() {
    let mut observation = example::healthy("etcd", 3);
    observation.policy.evidence = EvidenceMode::Readiness;
    let of = |observation: &Observation, n: u32| {
        let name = PodName::new(format!("etcd-{n}"));
        progress_of_claims(&Snapshot::assemble(observation), &name, &[ClaimState::Gone])
    };
    assert_eq!(of(&observation, 3), ReplacementProgress::Stands);
    assert_eq!(
        of(&observation, 2),
        ReplacementProgress::Underway,
        "it comes back"
    );
    observation.first_ordinal = 1;
    assert_eq!(
        of(&observation, 3),
        ReplacementProgress::Underway,
        "it comes back"
    );
    (observation.first_ordinal, observation.replicas) = (0, 0);
    assert_eq!(
        of(&observation, 3),
        ReplacementProgress::Underway,
        "all come back"
    );
    observation.replicas = 2;
    assert_eq!(
        of(&observation, 2),
        ReplacementProgress::Underway,
        "it is still there"
    );
}

#[test]
fn only_the_data_of_a_member_that_comes_back_is_waited_for() {
    let scaled_in = Basis::Teardown(Teardown::ScaleIn);
    assert!(!takes_data(scaled_in) && !takes_data(Basis::NotAMember));
    assert!(takes_data(Basis::Override) && takes_data(Basis::SingleMember));
}

proptest! {
    /// No permission destroys data unless a majority without the member serves, whatever is down
    /// and whatever has a grant.
    #[test]
    fn data_goes_only_while_a_majority_of_the_others_serves(
        voters in 1_u32..6,
        down in prop::collection::btree_set(0_usize..5, 0..5),
        granted in prop::collection::btree_set(0_u32..5, 0..3),
        target in 0_u32..5,
        own in any::<bool>(),
    ) {
        let target = target % voters;
        let down: Vec<usize> = down.into_iter().filter(|n| *n < voters as usize).collect();
        let granted = granted.into_iter().filter(|n| *n < voters);
        let observation = cluster(voters, &down);
        let snapshot = Snapshot::assemble(&observation);
        let grants = granted.fold(Grants::default(), |grants, n| {
            let name = PodName::new(format!("etcd-{n}"));
            grants.issue(&name, GrantKind::Replace, String::new(), String::new())
        });
        let deletion = ClaimDeletion {
            actor: if own { Actor::Gate } else { Actor::Stranger },
            ..deletion(target)
        };
        let name = PodName::new(format!("etcd-{target}"));
        let verdicts = [
            decide_claim(&snapshot, &grants, &deletion),
            decide_with_terminating_claim(&snapshot, &grants, &drain(target)),
        ];
        for verdict in verdicts {
            if let Verdict::Allow(permission) = verdict {
                let others = snapshot.serving(&grants, Some(&name));
                prop_assert!(others >= majority(voters), "{permission:?}");
            }
        }
    }
}

#[test]
fn a_claim_that_several_members_share_stays_while_one_serves_and_as_the_last_copy() {
    let shared = |down: &[usize]| {
        let deletion = ClaimDeletion {
            claim: "etcd-shared".into(),
            members: [0, 1, 2].map(|n| PodName::new(format!("etcd-{n}"))).into(),
            ..deletion(0)
        };
        let snapshot = Snapshot::assemble(&cluster(3, down));
        decide_claim(&snapshot, &Grants::default(), &deletion)
    };
    let Verdict::Deny(reason) = shared(&[0]) else {
        panic!("two serve")
    };
    let said = reason.to_string();
    assert!(
        said.starts_with("etcd-1, etcd-2 serve from the volume of etcd-shared"),
        "{said}"
    );
    assert_eq!(slug(&shared(&[0, 1, 2])), "LastCopy");
}

#[test]
fn what_the_garbage_collector_deletes_is_asked_about_where_a_pod_uses_it() {
    let collected = |observation: &Observation, n| {
        let deletion = ClaimDeletion {
            collected: true,
            waiting_pod: None,
            disowned: None,
            ..deletion(n)
        };
        let snapshot = Snapshot::assemble(observation);
        slug(&decide_claim(&snapshot, &Grants::default(), &deletion))
    };
    let mut observation = cluster(3, &[]);
    assert_eq!(collected(&observation, 2), "ClaimInUse");
    observation.pods.pop();
    observation.round.probes.pop();
    assert_eq!(collected(&observation, 2), "Teardown");
    let mut torn_down = cluster(3, &[]);
    torn_down.circumstances.teardown = Some(Teardown::StatefulSet);
    assert_eq!(collected(&torn_down, 2), "Teardown");
}

/// The StatefulSet's controller creates no pod on a claim that names a pod which is gone.
#[test]
fn a_claim_whose_owner_is_gone_stays_for_the_pod_that_comes_back_and_says_how() {
    let mut observation = cluster(3, &[]);
    observation.pods.pop();
    observation.round.probes.pop();
    let snapshot = Snapshot::assemble(&observation);
    let deletion = ClaimDeletion {
        disowned: Some("etcd-2".into()),
        ..deletion(2)
    };
    let verdict = decide_claim(&snapshot, &Grants::default(), &deletion);
    let Verdict::Deny(reason) = verdict else {
        panic!("{verdict:?}")
    };
    assert_eq!(reason.slug(), "ClaimDisowned");
    let said = reason.to_string();
    let command = "-p '[{\"op\":\"remove\",\"path\":\"/metadata/ownerReferences\"}]' && ";
    assert!(said.contains(command), "{said}");
}

#[test]
fn a_member_goes_with_its_data_only_while_all_others_serve() {
    let drain = |name: &str| Disruption {
        target: TargetPod {
            name: name.into(),
            uid: format!("uid-{}", &name[5..]).as_str().into(),
        },
        kind: Kind::Evict,
        actor: Actor::Stranger,
        grace: Grace::Graceful,
        precondition: None,
    };
    let decide_of = |observation: &Observation, policy| {
        let snapshot = Snapshot::assemble(observation);
        decide_with_data_in_pod(&snapshot, &Grants::default(), &drain("etcd-4"), policy)
    };
    let mut five = example::healthy("etcd", 5);
    for policy in [DataInPods::Replace, DataInPods::Allow] {
        assert!(matches!(decide_of(&five, policy), Verdict::Allow(_)));
    }
    let refused = decide_of(&five, DataInPods::Refuse);
    assert!(matches!(refused, Verdict::Deny(Reason::DataInPod { .. })));
    // A majority would serve without it, and the replacement that has to follow could not begin.
    let target = five.round.probes[0].target.clone();
    five.round.probes[0] = Probe::unanswered(target, Unanswered::Deadline);
    let waits = decide_of(&five, DataInPods::Replace);
    assert!(matches!(waits, Verdict::Wait(Reason::LastCopy(_))));
    assert!(matches!(
        decide_of(&five, DataInPods::Allow),
        Verdict::Allow(_)
    ));
    // The data of two members whose pods have ended is gone already, and each waits for the other.
    let mut dead = example::healthy("etcd", 5);
    for n in [3, 4] {
        dead.pods[n].etcd_ready = false;
        dead.pods[n].containers = Containers::AllTerminated { finished: true };
        let probe = &mut dead.round.probes[n];
        *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
    }
    let goes = decide_of(&dead, DataInPods::Replace);
    assert!(matches!(goes, Verdict::Allow(_)), "{goes:?}");
}

/// The only member's data is nowhere else, and two members could spare none. Waiting helps neither.
#[test]
fn of_one_or_two_members_with_their_data_in_pods_none_goes_and_the_refusal_says_what_allows_it() {
    for (members, policy) in [(1, SmallCluster::Allow), (2, SmallCluster::Allow)] {
        let mut few = example::healthy("etcd", members);
        (few.policy.single_member, few.policy.two_members) = (policy, policy);
        let target = TargetPod {
            name: PodName::new(format!("etcd-{}", members - 1)),
            uid: PodUid::new(format!("uid-{}", members - 1)),
        };
        let drain = Disruption {
            target,
            kind: Kind::Evict,
            actor: Actor::Stranger,
            grace: Grace::Graceful,
            precondition: None,
        };
        let snapshot = Snapshot::assemble(&few);
        let of = |policy| decide_with_data_in_pod(&snapshot, &Grants::default(), &drain, policy);
        assert!(matches!(of(DataInPods::Allow), Verdict::Allow(_)));
        let Verdict::Deny(reason) = of(DataInPods::Replace) else {
            panic!("{members}: {:?}", of(DataInPods::Replace));
        };
        assert_eq!(reason.slug(), "OnlyDataInPod");
        let says = format!(
            "a cluster of {members} cannot bring it back; save a snapshot, and set spec.dataProtection.ephemeral: Allow"
        );
        assert!(reason.to_string().contains(&says), "{reason}");
    }
}

/// The budget is new, so no record says in which pod a member was, and its name in etcd is not that
/// of a pod.
#[test]
fn a_claim_may_be_that_of_a_listed_member_whose_pod_nobody_knows() {
    let observation = example::without_last_pod_and_names("etcd", 3);
    let verdict = ask(&observation, &Grants::default(), 2);
    assert_ne!(slug(&verdict), "NotAMember");
    assert!(!matches!(verdict, Verdict::Allow(Allowance::Waived(_))));
}

/// Kubernetes protects no claim for a pod without a node, and gives that pod the next claim.
#[test]
fn the_claim_of_a_pod_that_waits_for_a_node_goes_only_with_its_member() {
    let mut observation = example::healthy("etcd", 3);
    let probe = &mut observation.round.probes[2];
    *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
    observation.pods[2].etcd_ready = false;
    observation.pods[2].containers = Containers::AllTerminated { finished: false };
    let asked = |waiting: bool, actor| {
        let deletion = ClaimDeletion {
            claim: "data-etcd-2".into(),
            members: vec!["etcd-2".into()],
            terminating: false,
            other_uid: false,
            collected: false,
            waiting_pod: waiting.then(|| "etcd-2".into()),
            disowned: None,
            actor,
        };
        decide_claim(
            &Snapshot::assemble(&observation),
            &Grants::default(),
            &deletion,
        )
    };
    assert!(matches!(asked(false, Actor::Stranger), Verdict::Allow(_)));
    let Verdict::Deny(reason) = asked(true, Actor::Stranger) else {
        panic!("the pod starts empty")
    };
    assert_eq!(reason.slug(), "ClaimAwaited");
    let said = reason.to_string();
    assert!(said.contains("qdb etcd quorumgate.io/replace="), "{said}");
}

/// A restart takes seconds, in which nothing serves from the claim.
#[test]
fn the_claim_of_a_member_that_restarts_stays_like_that_of_one_that_serves() {
    let mut observation = example::healthy("etcd", 3);
    let probe = &mut observation.round.probes[2];
    *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
    observation.pods[2].etcd_ready = false;
    for containers in [Containers::Running, Containers::Creating] {
        observation.pods[2].containers = containers;
        let verdict = ask(&observation, &Grants::default(), 2);
        assert!(matches!(verdict, Verdict::Deny(_)), "{verdict:?}");
        assert_eq!(slug(&verdict), "ClaimAwaited");
    }
    observation.pods[2].terminating = true;
    let verdict = ask(&observation, &Grants::default(), 2);
    assert_eq!(slug(&verdict), "ClaimAwaited");
}
