//! The defects of the open implementation of DEP-07 in etcd-druid. Each test shows that the planner
//! does not have one of them. The numbers in the comments count the defects.

use super::scene::*;
use quorumgate_core::plan::MaxUnavailable;
use quorumgate_core::quorum::evidence::AlarmKind;
use quorumgate_core::quorum::pod::{Containers, LeaseRole, Node};
use quorumgate_core::quorum::{EvidenceMode, Ordinal};

/// Defect 1: the kubelet of a dead node reports nothing any more, so the containers on it look
/// ready for minutes.
#[test]
fn a_member_on_a_dead_node_does_not_participate() {
    for mode in [EvidenceMode::Live, EvidenceMode::Readiness] {
        let scene = Scene::new(3)
            .with("c", |member| {
                on_a_lost_node(member);
                member.pod_mut(|pod| {
                    pod.etcd_ready = true;
                    pod.lease_role = Some(LeaseRole::Leader);
                });
            })
            .with("a", |m| {
                m.pod_mut(|pod| pod.lease_role = Some(LeaseRole::Follower));
            })
            .in_world(|world| world.policy.evidence = mode);
        assert_eq!(scene.says(), "wait Evidence", "{mode:?}");
        let updated = scene.updated("c");
        assert_eq!(updated.says(), "wait UpdatedMembers", "{mode:?}");
    }
}

/// Defect 2: a pod without container states was skipped where it should go first, and was not
/// counted where it is missing.
#[test]
fn an_unschedulable_pod_goes_first_and_no_serving_one_beside_it() {
    let pending = |member: &mut crate::world::Inhabitant| {
        starting(member);
        member.pod_mut(|pod| {
            pod.node = Node::Unscheduled;
            pod.containers = Containers::Unreported;
        });
    };
    let scene = Scene::new(3).with("b", pending);
    assert_eq!(scene.says(), "delete b: it is outdated and is starting");
    assert_eq!(scene.updated("b").says(), "wait UpdatedMembers");
}

/// Defect 3: the pod of a compaction job carries the labels that the StatefulSet selects by.
#[test]
fn a_pod_that_is_not_the_sets_is_neither_outdated_nor_counted() {
    let compactor = |scene: Scene| {
        scene.with("d", |member| {
            member.listed = crate::world::Listed::No;
            member.answers =
                crate::world::Answers::Not(quorumgate_core::quorum::evidence::Unanswered::Refused);
            member.pod_mut(|pod| {
                pod.name = "etcd-compactor-x7f".into();
                pod.ordinal = None;
                pod.revision = None;
                pod.recorded_id = None;
            });
        })
    };
    let three = |world: &mut crate::world::World| {
        world.replicas = 3;
        world.expected = 3;
        world.expected_under = 3;
    };
    let scene = compactor(Scene::new(4).in_world(three));
    assert_eq!(scene.says(), "delete c: it is an outdated follower");
    let midway = scene.clone().updated("c").with("c", missing);
    assert_eq!(
        midway.says(),
        "wait MissingPods",
        "it does not stand for the pod that is missing"
    );
    assert_eq!(scene.updated("abc").says(), "done");
}

/// Defect 4: the readiness of a pod is up to half a minute behind. etcd's own answer is not.
#[test]
fn a_member_that_died_just_now_does_not_participate() {
    let just_died = |member: &mut crate::world::Inhabitant| {
        member.silent(quorumgate_core::quorum::evidence::Unanswered::Refused);
        member.pod_mut(|pod| pod.etcd_ready = false);
    };
    let scene = Scene::new(3).updated("c").with("c", just_died);
    assert_eq!(scene.says(), "wait UpdatedMembers");
    let scene = Scene::new(3).with("b", just_died);
    assert!(scene.says().starts_with("delete b"), "{}", scene.says());
}

/// Nothing is known before the kubelet notices: all members may refuse the gate alone.
#[test]
fn a_cluster_that_serves_and_refuses_the_gate_keeps_every_member() {
    let refuses = |member: &mut crate::world::Inhabitant| {
        member.silent(quorumgate_core::quorum::evidence::Unanswered::Refused);
    };
    let scene = Scene::new(3).with("a", refuses).with("b", refuses);
    let scene = scene.with("c", refuses);
    assert_eq!(scene.says(), "wait Evidence");
    assert_eq!(scene.updated("c").says(), "wait Evidence");
}

/// Defect 5: one linearizable read says nothing about lag, alarms, or another cluster.
#[test]
fn an_updated_member_participates_only_by_all_that_etcd_says() {
    let broken: [fn(&mut crate::world::Inhabitant); 3] = [
        |member| member.applied -= 50_000,
        |member| member.alarm = Some(AlarmKind::Corrupt),
        |member| member.cluster = quorumgate_core::quorum::ClusterId(0xdead),
    ];
    for state in broken {
        let scene = Scene::new(3).updated("c").with("c", state);
        assert_eq!(scene.says(), "wait UpdatedMembers");
    }
}

/// Defect 6: a drain under way is seen, because it takes its grant from the same ledger.
#[test]
fn a_drain_in_flight_is_waited_for() {
    let scene = Scene::new(3).granted("b", false);
    assert_eq!(scene.says(), "wait InFlight");
    let room = Scene::new(5)
        .granted("b", false)
        .wishing(|desired| desired.max_unavailable = MaxUnavailable::Members(2));
    assert_eq!(room.says(), "delete e: it is an outdated follower");
    let full = room.granted("c", false);
    assert_eq!(full.says(), "wait InFlight");
}

/// Defect 7: a quorum that is lost for a moment comes back by itself if the members that are alive
/// stay.
#[test]
fn a_transient_loss_of_quorum_restarts_nobody() {
    let lost = Scene::new(3)
        .with("abc", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(4)));
    assert_eq!(lost.says(), "wait QuorumLost");
    assert_eq!(
        lost.in_world(|world| world.quorum_lost_for = None).says(),
        "wait QuorumLost"
    );
}

/// The order in which the API server lists pods has no meaning.
#[test]
fn the_order_of_pods_does_not_matter() {
    let scene = Scene::new(5).with("d", crashed);
    let mut observation = scene.world.observation();
    observation.pods.reverse();
    observation.round.probes.rotate_left(2);
    let mixed = quorumgate_core::quorum::Snapshot::assemble(&observation);
    let next = quorumgate_core::plan::next_step(&mixed, &scene.grants, &scene.desired);
    assert_eq!(next, scene.next());
    assert!(mixed.pods.iter().any(|pod| pod.ordinal == Some(Ordinal(3))));
}
