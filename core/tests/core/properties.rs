//! Properties of every decision, whatever the cluster looks like.

mod clusters;
mod plan;
mod truth;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::Index;

use clusters::{Cluster, Loss, State};
use quorumgate_core::quorum::evidence::{Probe, Unanswered};
use quorumgate_core::quorum::pod::{Containers, Node};
use quorumgate_core::quorum::{
    Allowance, Basis, ClusterId, EvidenceMode, GrantKind, Grants, InPlace, Kind, Membership,
    Observation, PodName, Snapshot, Verdict, Waiver, decide, majority,
};

use crate::world::ask;

fn kinds() -> impl Strategy<Value = Kind> {
    prop_oneof![
        Just(Kind::Delete),
        Just(Kind::Evict),
        Just(Kind::RolloutStep),
        Just(Kind::Defragment),
        Just(Kind::Replace),
        Just(Kind::Restart(InPlace::Image)),
    ]
}

fn permit(target: &str) -> GrantKind {
    GrantKind::Delete {
        uid: format!("{target}-1").as_str().into(),
        rollout: false,
    }
}

fn issue(grants: &Grants, target: &str) -> Grants {
    grants.issue(
        &target.into(),
        permit(target),
        "somebody".into(),
        String::new(),
    )
}

fn grants_of(cluster: &Cluster, granted: &[Index]) -> Grants {
    let names = cluster.names();
    granted.iter().fold(Grants::default(), |grants, index| {
        issue(&grants, &names[index.index(names.len())])
    })
}

/// The strictness of a verdict. A verdict that permits more has a smaller number.
fn strictness(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Allow(Allowance::Waived(_)) => 0,
        Verdict::Allow(Allowance::Grant(_)) => 1,
        Verdict::Wait(_) | Verdict::Deny(_) => 2,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_allow_leaves_the_majority_or_takes_what_does_not_serve_or_names_its_policy(
        cluster in clusters::any(),
        granted in prop::collection::vec(any::<Index>(), 0..3),
        target in any::<Index>(),
        kind in kinds(),
    ) {
        let pods = cluster.pods();
        let target = target.get(&pods).as_str();
        let grants = grants_of(&cluster, &granted);
        let snapshot = Snapshot::assemble(&cluster.world().observation());
        let Verdict::Allow(permission) = decide(&snapshot, &grants, &ask(target, kind)) else {
            return Ok(());
        };
        if let Kind::Restart(_) = kind {
            let free = Allowance::Grant(Basis::NotAMember);
            let ends = Allowance::Waived(Waiver::Terminating);
            prop_assert!(permission == free || permission == ends, "{:?}", permission);
        }
        let state = cluster.state(target);
        match permission {
            Allowance::Waived(Waiver::Terminating) => prop_assert_eq!(state, State::Terminating),
            Allowance::Grant(Basis::NotAMember) => prop_assert!(!state.is_listed(), "{:?}", state),
            Allowance::Waived(other) => prop_assert!(false, "nothing is waived as {:?}", other),
            Allowance::Grant(Basis::Majority { .. }) => {
                let left = truth::serving_without(&cluster, &grants, target);
                let needed = majority(truth::voters(&cluster, &grants, target));
                prop_assert!(left >= needed, "{} of {}", left, needed);
            }
            Allowance::Grant(Basis::Learner) => prop_assert!(state.is_learner(), "{:?}", state),
            Allowance::Grant(Basis::CostsNothing) => prop_assert!(state.is_down(), "{:?}", state),
            Allowance::Grant(Basis::Repair) => {
                prop_assert_eq!(kind, Kind::RolloutStep);
                let serving = truth::serving_without(&cluster, &Grants::default(), "");
                prop_assert!(serving < majority(cluster.voters), "{} of {}", serving, cluster.voters);
            }
            Allowance::Grant(Basis::Proceed) => prop_assert!(false, "nobody let this revision proceed"),
            // A member that began a cluster of its own is the only member of it, and the others do
            // not miss it.
            Allowance::Grant(Basis::SingleMember) => {
                prop_assert!(cluster.voters == 1 || state == State::OtherCluster, "{:?}", state);
            }
            Allowance::Grant(Basis::TwoMembers) => prop_assert_eq!(cluster.voters, 2),
            Allowance::Grant(other) => prop_assert!(false, "nobody asked for {:?}", other),
        }
    }

    #[test]
    fn less_evidence_never_loosens_a_verdict(
        cluster in clusters::possible(),
        granted in prop::collection::vec(any::<Index>(), 0..2),
        losses in prop::collection::vec((any::<Index>(), clusters::losses()), 1..5),
        target in any::<Index>(),
        kind in kinds(),
    ) {
        let pods = cluster.pods();
        let target = target.get(&pods).as_str();
        let grants = grants_of(&cluster, &granted);
        let full = cluster.world().observation();
        let mut less = full.clone();
        for (index, loss) in &losses {
            lose(&mut less, *index, *loss);
        }
        // Without the member that contradicts, the others agree. That is other evidence, and not
        // less of the same.
        if clusters_named(&full) != clusters_named(&less) {
            return Ok(());
        }
        let disruption = ask(target, kind);
        let (full, less) = (Snapshot::assemble(&full), Snapshot::assemble(&less));
        let before = decide(&full, &grants, &disruption);
        let after = decide(&less, &grants, &disruption);
        // Without a confirmed list a pod that is no voter counts as one, and hides that another
        // voter is missing.
        let confirmed = matches!(less.membership, Membership::Confirmed { .. });
        let no_voters = [State::Learner, State::DeadLearner, State::Removed, State::RemovedSilent];
        if !confirmed && cluster.states.iter().any(|state| no_voters.contains(state)) {
            return Ok(());
        }
        prop_assert!(
            strictness(&after) >= strictness(&before),
            "{:?} became {:?}", before, after
        );
    }

    /// A network policy rejects the gate from all members of a cluster that worked, while their
    /// readiness fails for another reason.
    #[test]
    fn where_nobody_answers_no_refusal_lets_a_running_member_go(
        cluster in clusters::any(),
        granted in prop::collection::vec(any::<Index>(), 0..3),
        target in any::<Index>(),
        kind in kinds(),
    ) {
        let mut observation = cluster.world().observation();
        for pod in &mut observation.pods {
            (pod.etcd_ready, pod.ready) = (false, false);
        }
        for probe in &mut observation.round.probes {
            *probe = Probe::unanswered(probe.target.clone(), Unanswered::Refused);
        }
        let pod = target.get(&observation.pods);
        let runs = pod.node == Node::Ready && pod.containers == Containers::Running;
        if !runs || pod.terminating || !pod.has_address || observation.replicas == 1 {
            return Ok(());
        }
        let disruption = ask(pod.name.as_str(), kind);
        let snapshot = Snapshot::assemble(&observation);
        let verdict = decide(&snapshot, &grants_of(&cluster, &granted), &disruption);
        prop_assert_eq!(strictness(&verdict), 2, "{:?}", verdict);
    }

    #[test]
    fn a_node_that_is_not_in_question_makes_no_difference(
        cluster in clusters::any(),
        granted in prop::collection::vec(any::<Index>(), 0..3),
        target in any::<Index>(),
        kind in kinds(),
        formed in any::<bool>(),
        by_readiness in prop::bool::weighted(0.1),
    ) {
        let mut full = cluster.world().observation();
        full.formed = formed;
        if by_readiness {
            full.policy.evidence = EvidenceMode::Readiness;
        }
        let in_question = Snapshot::nodes_in_question(&full);
        let mut less = full.clone();
        for pod in &mut less.pods {
            if !in_question.contains(&pod.name) {
                pod.node = Node::Unread;
            }
        }
        let (full, less) = (Snapshot::assemble(&full), Snapshot::assemble(&less));
        let pods = cluster.pods();
        let disruption = ask(&pods[target.index(pods.len())], kind);
        let grants = grants_of(&cluster, &granted);
        prop_assert_eq!(
            decide(&full, &grants, &disruption),
            decide(&less, &grants, &disruption)
        );
        prop_assert_eq!(Snapshot { pods: Vec::new(), ..full }, Snapshot { pods: Vec::new(), ..less });
    }

    #[test]
    fn order_never_matters(
        cluster in clusters::any(),
        granted in prop::collection::vec(any::<Index>(), 0..3),
        target in any::<Index>(),
        kind in kinds(),
        shuffled in any::<u64>(),
    ) {
        let pods = cluster.pods();
        let disruption = ask(&pods[target.index(pods.len())], kind);
        let grants = grants_of(&cluster, &granted);
        let ordered = cluster.world().observation();
        let mixed = mix(&ordered, shuffled);
        let (one, other) = (Snapshot::assemble(&ordered), Snapshot::assemble(&mixed));
        prop_assert_eq!(&one, &other);
        prop_assert_eq!(
            decide(&one, &grants, &disruption),
            decide(&other, &grants, &disruption)
        );
    }

    #[test]
    fn a_second_judgement_of_a_granted_pod_never_exceeds_the_budget(
        cluster in clusters::any(),
        granted in prop::collection::vec(any::<Index>(), 0..3),
        target in any::<Index>(),
        kind in kinds(),
    ) {
        let pods = cluster.pods();
        let target = target.get(&pods).as_str();
        let names = cluster.names();
        let others: Vec<Index> = granted.into_iter().filter(|g| g.get(&names) != target).collect();
        let first = grants_of(&cluster, &others);
        let again = issue(&first, target);
        let snapshot = Snapshot::assemble(&cluster.world().observation());
        let disruption = ask(target, kind);
        prop_assert_eq!(
            decide(&snapshot, &first, &disruption),
            decide(&snapshot, &again, &disruption)
        );
    }

    #[test]
    fn an_allowed_disruption_is_one_that_some_member_gets(
        cluster in clusters::any(),
        granted in prop::collection::vec(any::<Index>(), 0..3),
        forces_new_cluster in any::<bool>(),
    ) {
        let grants = grants_of(&cluster, &granted);
        let mut snapshot = Snapshot::assemble(&cluster.world().observation());
        snapshot.circumstances.forces_new_cluster = forces_new_cluster;
        if snapshot.tolerance(&grants).disruptions_allowed() > 0 {
            let pods = cluster.pods();
            let verdicts = pods.iter().map(|pod| decide(&snapshot, &grants, &ask(pod, Kind::Delete)));
            prop_assert!(verdicts.into_iter().any(|one| matches!(one, Verdict::Allow(_))));
        }
    }

    #[test]
    fn no_sequence_of_yeses_and_settlements_exceeds_the_headroom(
        voters in 3_usize..=7,
        learners in 0_usize..=1,
        steps in prop::collection::vec((any::<Index>(), kinds(), any::<bool>()), 1..24),
    ) {
        let mut states = vec![State::Serving; voters];
        states.extend(vec![State::Learner; learners]);
        let cluster = Cluster::new(states);
        let snapshot = Snapshot::assemble(&cluster.world().observation());
        let pods = cluster.pods();
        let mut grants = Grants::default();
        for (index, kind, settles) in steps {
            let pod = index.get(&pods).as_str();
            let name = PodName::from(pod);
            if settles {
                let seq = grants.get(&name).and_then(|g| g.causes.first()).map(|c| c.seq);
                grants = seq.and_then(|seq| grants.settle(&name, seq)).unwrap_or(grants);
            } else if let Verdict::Allow(Allowance::Grant(_)) =
                decide(&snapshot, &grants, &ask(pod, kind))
            {
                let before = grants.last_seq();
                grants = issue(&grants, pod);
                prop_assert!(grants.last_seq() > before, "every yes changes the ledger");
            }
            let tolerance = snapshot.tolerance(&grants);
            prop_assert!(tolerance.headroom() >= 0, "{:?}", tolerance);
        }
    }
}

/// The etcd clusters that the members name.
fn clusters_named(observation: &Observation) -> BTreeSet<ClusterId> {
    let answers = observation.round.probes.iter();
    let answers = answers.filter_map(|probe| probe.status.as_ref().ok());
    answers.map(|status| status.cluster_id).collect()
}

fn lose(observation: &mut Observation, index: Index, loss: Loss) {
    let probes = &mut observation.round.probes;
    if !probes.is_empty() {
        let at = index.index(probes.len());
        let probe = &mut probes[at];
        match loss {
            Loss::Status => {
                *probe = Probe::unanswered(probe.target.clone(), Unanswered::Deadline);
            }
            Loss::Read if probe.read.is_ok() => probe.read = Err(Unanswered::Deadline),
            Loss::List if probe.members.is_ok() => probe.members = Err(Unanswered::Deadline),
            Loss::Probe => drop(probes.remove(at)),
            Loss::Read | Loss::List | Loss::Node | Loss::Containers | Loss::Record => {}
        }
    }
    if !observation.pods.is_empty() {
        let at = index.index(observation.pods.len());
        let pod = &mut observation.pods[at];
        match loss {
            Loss::Node => pod.node = Node::Unread,
            Loss::Containers => pod.containers = Containers::Unreported,
            Loss::Record => pod.recorded_id = None,
            Loss::Status | Loss::Read | Loss::List | Loss::Probe => {}
        }
    }
}

/// The same observation in another order.
fn mix(observation: &Observation, seed: u64) -> Observation {
    let mut mixed = observation.clone();
    let mut state = seed | 1;
    shuffle(&mut mixed.pods, &mut state);
    shuffle(&mut mixed.round.probes, &mut state);
    for probe in &mut mixed.round.probes {
        if let Ok(members) = &mut probe.members {
            shuffle(members, &mut state);
        }
        if let Ok(status) = &mut probe.status {
            shuffle(&mut status.alarms, &mut state);
        }
    }
    mixed
}

fn shuffle<T>(items: &mut [T], state: &mut u64) {
    for end in (1..items.len()).rev() {
        // A generator of Numerical Recipes. Any order will do, as long as a failure can be
        // repeated.
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let at = usize::try_from(*state >> 33).unwrap() % (end + 1);
        items.swap(end, at);
    }
}
