//! A hundred members, far beyond what etcd is run with: the same numbers, and no place where they stop to fit.

use quorumgate::plan::{Desired, MaxUnavailable, Next, next_step};
use quorumgate::quorum::{
    Actor, Basis, Disruption, Grace, Grants, Kind, Permission, Permitted, PodName, Reason,
    Snapshot, TargetPod, Verdict, decide,
};

use crate::world::World;

const MEMBERS: usize = 100;
/// Of a hundred, 51 are a majority.
const SPARED: usize = 49;

fn uid(pod: &PodName) -> String {
    format!("{}-1", pod.as_str())
}

fn delete(pod: &PodName) -> Disruption {
    Disruption {
        target: TargetPod {
            name: pod.clone(),
            uid: uid(pod).as_str().into(),
        },
        kind: Kind::Delete,
        actor: Actor::Stranger,
        grace: Grace::Graceful,
        precondition: None,
    }
}

fn issue(grants: &Grants, pod: &PodName, rollout: bool) -> Grants {
    let what = Permitted::Delete {
        uid: uid(pod).as_str().into(),
        rollout,
    };
    grants.issue(pod, what, "somebody".into(), String::new())
}

fn pods(world: &World) -> Vec<PodName> {
    let pods = world
        .members
        .iter()
        .filter_map(|member| member.pod.as_ref());
    pods.map(|pod| pod.name.clone()).collect()
}

#[test]
fn of_a_hundred_members_49_may_go_at_once_and_the_others_are_told_why_not() {
    let world = World::of(MEMBERS);
    let snapshot = Snapshot::assemble(&world.observation());
    let mut grants = Grants::default();
    let mut refused = Vec::new();
    for pod in pods(&world) {
        match decide(&snapshot, &grants, &delete(&pod)) {
            Verdict::Allow(Permission::Grant(Basis::Majority { .. })) => {
                grants = issue(&grants, &pod, false);
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

#[test]
fn a_rollout_of_a_hundred_takes_as_many_at_once_as_it_is_asked_to_and_never_more_than_can_be_spared()
 {
    for (asked, taken) in [
        (MaxUnavailable::Members(1), 1),
        (MaxUnavailable::Percent(10), 10),
        (MaxUnavailable::Members(u32::MAX), SPARED),
        (MaxUnavailable::Percent(100), SPARED),
    ] {
        let mut world = World::of(MEMBERS);
        for member in &mut world.members {
            member.pod_mut(|pod| pod.revision = Some("old".into()));
        }
        let desired = Desired {
            max_unavailable: asked,
            ..Desired::by_default()
        };
        let mut grants = Grants::default();
        let mut gone = 0;
        while let Next::Act(steps) =
            next_step(&Snapshot::assemble(&world.observation()), &grants, &desired)
        {
            for step in &steps {
                grants = issue(&grants, &step.pod.name, true);
                let index = world.index(step.pod.name.as_str()).unwrap();
                world.members[index].pod_mut(|pod| pod.terminating = true);
                gone += 1;
            }
            assert!(gone <= MEMBERS, "it never ends");
        }
        assert_eq!(gone, taken, "{asked:?}");
    }
}
