//! A cluster of a hundred members, far more than etcd is run with. The numbers have to be right at
//! that size too.

use quorumgate_core::plan::{MaxUnavailable, Next};
use quorumgate_core::quorum::{Allowance, Basis, Kind, Reason, Verdict, decide};

use super::scene::Scene;
use crate::world::ask;

const MEMBERS: usize = 100;
/// The number of members that a hundred can spare, as 51 are a majority.
const SPARED: usize = 49;

#[test]
fn of_a_hundred_members_49_may_go_at_once_and_the_others_are_told_why_not() {
    let mut scene = Scene::new(MEMBERS);
    let snapshot = scene.snapshot();
    let mut refused = Vec::new();
    for pod in scene.world.observation().pods {
        let pod = pod.name.as_str();
        match decide(&snapshot, &scene.grants, &ask(pod, Kind::Delete)) {
            Verdict::Allow(Allowance::Grant(Basis::Majority { .. })) => {
                scene = scene.granted(pod, false);
            }
            Verdict::Wait(Reason::NoHeadroom(count)) => refused.push(count),
            other => panic!("{pod}: {other:?}"),
        }
    }
    assert_eq!(refused.len(), MEMBERS - SPARED);
    for count in refused {
        assert_eq!(
            (count.voters, count.needed, count.in_flight.len()),
            (100, 51, SPARED)
        );
    }
}

/// The API server accepts any number of replicas. A list of the largest number would take
/// gigabytes.
#[test]
fn a_number_of_replicas_that_no_cluster_can_have_is_waited_out() {
    let scene = Scene::new(3).in_world(|world| world.replicas = i32::MAX.unsigned_abs());
    assert_eq!(scene.says(), "wait TooManyReplicas");
    assert!(scene.waits_on().is_stuck());
    let told = scene.waits_on().to_string();
    assert!(told.contains("asks for 2147483647 replicas"), "{told}");
    let most = Scene::new(3).in_world(|world| world.replicas = 1000);
    assert_ne!(most.says(), "wait TooManyReplicas");
}

#[test]
fn a_rollout_of_a_hundred_takes_as_many_at_once_as_it_is_asked_to_and_never_more_than_can_be_spared()
 {
    for (asked, taken) in [
        (MaxUnavailable::Members(1), 1),
        (MaxUnavailable::Percent(10), 10),
        (MaxUnavailable::Members(u32::MAX), SPARED),
        (MaxUnavailable::Percent(100), SPARED),
    ] {
        let mut scene = Scene::new(MEMBERS).wishing(|desired| desired.max_unavailable = asked);
        let mut gone = 0;
        while let Next::Act(steps) = scene.next() {
            for step in &steps {
                let name = step.pod.name.as_str();
                scene = scene.granted(name, true);
                let index = scene.world.index(name).unwrap();
                scene.world.members[index].pod_mut(|pod| pod.terminating = true);
                gone += 1;
            }
            assert!(gone <= MEMBERS, "it never ends");
        }
        assert_eq!(gone, taken, "{asked:?}");
    }
}
