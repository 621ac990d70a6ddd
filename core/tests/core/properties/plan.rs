//! Properties of every step of a rollout, however unlikely the cluster is.

use proptest::prelude::*;
use proptest::sample::Index;

use super::clusters::{self, Cluster, State};
use super::{issue, mix, truth};
use quorumgate_core::plan::{
    Action, Because, Desired, MaxUnavailable, Next, NonServing, PodManagement, next_step, unblock,
};
use quorumgate_core::quorum::{
    Condition, GrantKind, Grants, Observation, PodName, Snapshot, Verdict, decide, majority,
};

/// A cluster in the middle of a rollout: the revision of each pod, and the open grants.
#[derive(Debug, Clone)]
struct Midway {
    cluster: Cluster,
    updated: Vec<Index>,
    drained: Vec<Index>,
    begun: Option<Index>,
    desired: Desired,
    proceeds: bool,
}

impl Midway {
    fn observation(&self) -> Observation {
        let mut observation = self.cluster.world().observation();
        for pod in &mut observation.pods {
            pod.revision = Some("old".into());
        }
        let count = observation.pods.len();
        for index in &self.updated {
            observation.pods[index.index(count)].revision = Some("new".into());
        }
        observation.proceed_without_quorum = self.proceeds.then(|| "new".into());
        observation
    }

    fn grants(&self) -> Grants {
        let pods = self.cluster.pods();
        let drained = self.drained.iter().map(|index| index.get(&pods));
        let grants = drained.fold(Grants::default(), |grants, pod| issue(&grants, pod));
        match &self.begun {
            None => grants,
            Some(index) => begin(&grants, &index.get(&pods).as_str().into()),
        }
    }
}

fn begin(grants: &Grants, pod: &PodName) -> Grants {
    let what = GrantKind::Delete {
        uid: format!("{pod}-1").as_str().into(),
        rollout: true,
    };
    grants.issue(pod, what, "rollout".into(), String::new())
}

fn wishes() -> impl Strategy<Value = Desired> {
    (
        1_u32..4,
        prop_oneof![
            Just(PodManagement::OrderedReady),
            Just(PodManagement::Parallel)
        ],
        prop_oneof![Just(NonServing::OneAtATime), Just(NonServing::AllAtOnce)],
        0_u32..2,
    )
        .prop_map(|(members, management, non_serving, partition)| Desired {
            max_unavailable: MaxUnavailable::Members(members),
            management,
            non_serving,
            partition,
            ..Desired::by_default()
        })
}

fn midways() -> impl Strategy<Value = Midway> {
    (
        clusters::any(),
        prop::collection::vec(any::<Index>(), 0..5),
        prop::collection::vec(any::<Index>(), 0..2),
        prop::option::weighted(0.2, any::<Index>()),
        wishes(),
        prop::bool::weighted(0.1),
    )
        .prop_map(
            |(cluster, updated, drained, begun, desired, proceeds)| Midway {
                cluster,
                updated,
                drained,
                begun,
                desired,
                proceeds,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_step_is_one_that_the_judge_allows(midway in midways()) {
        let snapshot = Snapshot::assemble(&midway.observation());
        let mut grants = midway.grants();
        if let Next::Act(steps) = next_step(&snapshot, &grants, &midway.desired) {
            for step in steps {
                let verdict = decide(&snapshot, &grants, &step.disruption());
                prop_assert!(matches!(verdict, Verdict::Allow(_)), "{}: {:?}", step, verdict);
                if !matches!(step.action, Action::MoveLeader { .. }) {
                    grants = begin(&grants, &step.pod.name);
                }
            }
        }
        if let Some(step) = unblock(&snapshot, &midway.grants(), &midway.desired) {
            let verdict = decide(&snapshot, &midway.grants(), &step.disruption());
            prop_assert!(matches!(verdict, Verdict::Allow(_)), "{}: {:?}", step, verdict);
            prop_assert!(midway.cluster.state(step.pod.name.as_str()).is_down(), "{}", step);
        }
    }

    #[test]
    fn a_step_never_rests_on_unknown_evidence(midway in midways()) {
        let snapshot = Snapshot::assemble(&midway.observation());
        if let Next::Act(steps) = next_step(&snapshot, &midway.grants(), &midway.desired) {
            for step in steps {
                let Some(member) = snapshot.member(&step.pod.name) else {
                    prop_assert!(snapshot.not_members.contains(&step.pod.name), "{}", step);
                    continue;
                };
                let unknown = matches!(member.condition, Condition::Unknown(_));
                prop_assert!(!unknown || member.process.is_down(), "{}: {:?}", step, member);
                prop_assert!(!member.pod.as_ref().is_some_and(|pod| pod.terminating), "{}", step);
            }
        }
    }

    #[test]
    fn a_serving_member_goes_only_within_headroom_and_max_unavailable(midway in midways()) {
        let snapshot = Snapshot::assemble(&midway.observation());
        let grants = midway.grants();
        let Next::Act(steps) = next_step(&snapshot, &grants, &midway.desired) else {
            return Ok(());
        };
        for step in steps {
            if matches!(step.because, Because::NonServing(_)) {
                continue;
            }
            let target = step.pod.name.as_str();
            let cluster = &midway.cluster;
            if cluster.state(target) == State::OtherCluster {
                // No other member contradicted it. A member of another cluster that answers alone
                // looks like one of this cluster.
                continue;
            }
            prop_assert!(cluster.state(target).serves(), "{} is {:?}", step, cluster.state(target));
            let left = truth::serving_without(cluster, &grants, target);
            let voters = truth::voters(cluster, &grants, target);
            prop_assert!(left >= majority(voters) || voters <= 2, "{}: {} of {}", step, left, voters);
            let out = snapshot.pods.iter().filter(|pod| {
                let updated = pod.revision.as_deref() == Some("new");
                let serves = cluster.state(pod.name.as_str()).serves();
                pod.name != step.pod.name && (grants.holds(&pod.name) || (updated && !serves))
            });
            let inside = out.filter(|pod| pod.ordinal.is_some_and(|o| o.0 < snapshot.replicas));
            let limit = midway.desired.max_unavailable.limit(snapshot.replicas, midway.desired.partition);
            let out = u32::try_from(inside.count()).unwrap();
            prop_assert!(out < limit, "{}: {} of {}", step, out, limit);
        }
    }

    #[test]
    fn only_outdated_targets_above_the_partition_go(midway in midways()) {
        let snapshot = Snapshot::assemble(&midway.observation());
        if let Next::Act(steps) = next_step(&snapshot, &midway.grants(), &midway.desired) {
            for step in steps {
                let pod = snapshot.pod(&step.pod.name).unwrap();
                let ordinal = pod.ordinal.unwrap().0;
                prop_assert_eq!(&pod.uid, &step.pod.uid);
                prop_assert_eq!(pod.revision.as_deref(), Some("old"));
                prop_assert!((midway.desired.partition..snapshot.replicas).contains(&ordinal));
            }
        }
    }

    #[test]
    fn equal_facts_in_any_order_give_equal_steps(midway in midways(), shuffled in any::<u64>()) {
        let ordered = midway.observation();
        let mixed = Snapshot::assemble(&mix(&ordered, shuffled));
        let ordered = Snapshot::assemble(&ordered);
        let grants = midway.grants();
        let desired = &midway.desired;
        prop_assert_eq!(next_step(&ordered, &grants, desired), next_step(&mixed, &grants, desired));
        prop_assert_eq!(unblock(&ordered, &grants, desired), unblock(&mixed, &grants, desired));
    }

    #[test]
    fn done_means_that_no_outdated_pod_is_left(midway in midways()) {
        let snapshot = Snapshot::assemble(&midway.observation());
        let partition = midway.desired.partition;
        let updated = (partition..snapshot.replicas).all(|ordinal| {
            snapshot.pods.iter().any(|pod| {
                let this = pod.ordinal.is_some_and(|o| o.0 == ordinal);
                this && !pod.terminating && pod.revision.as_deref() == Some("new")
            })
        });
        let next = next_step(&snapshot, &midway.grants(), &midway.desired);
        prop_assert_eq!(next == Next::Done, updated, "{:?}", next);
    }
}
