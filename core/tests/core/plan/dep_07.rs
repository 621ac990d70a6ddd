//! The promises of DEP-07, case by case.

use super::scene::*;
use quorumgate_core::quorum::EvidenceMode;
use quorumgate_core::quorum::pod::LeaseRole;

#[test]
fn the_motivating_example_takes_the_unhealthy_member_first() {
    for unhealthy in [crashed, leaderless] {
        let scene = Scene::new(3).with("a", unhealthy).led_by("c");
        assert!(scene.says().starts_with("delete a"), "{}", scene.says());
    }
}

#[test]
fn a_rolling_update_in_flight_is_continued() {
    let switched = Scene::new(3).updated("c");
    assert_eq!(switched.says(), "delete b: it is an outdated follower");
    let stalled = Scene::new(3).updated("c").with("c", starting);
    assert_eq!(stalled.says(), "wait UpdatedMembers");
}

#[test]
fn a_change_of_anything_but_the_template_starts_nothing() {
    let settled = Scene::new(3).updated("abc");
    assert_eq!(settled.says(), "done");
    let grown = settled.clone().wishing(|d| {
        d.generation = quorumgate_core::plan::Generation {
            desired: 7,
            observed: 7,
        };
    });
    assert_eq!(grown.says(), "done");
    let more = settled.in_world(|world| world.replicas = 5);
    assert_eq!(
        more.says(),
        "wait Joining",
        "what is missing is created by the StatefulSet controller"
    );
}

#[test]
fn an_eviction_by_the_vertical_autoscaler_is_waited_for_and_starts_nothing() {
    let evicted = Scene::new(3).updated("abc").with("b", missing);
    assert_eq!(evicted.says(), "wait MissingPods");
    let midway = Scene::new(3).updated("bc").with("b", starting);
    assert_eq!(midway.says(), "wait UpdatedMembers");
}

#[test]
fn a_recreated_member_that_cannot_come_back_holds_at_step_3() {
    let scene = Scene::new(3).updated("c").with("c", crashed);
    assert_eq!(scene.says(), "wait UpdatedMembers");
}

#[test]
fn a_stale_role_in_a_lease_does_not_matter_where_etcd_says_who_leads() {
    let scene = Scene::new(3).led_by("c").with("c", |member| {
        member.pod_mut(|pod| pod.lease_role = Some(LeaseRole::Follower));
    });
    assert_eq!(scene.says(), "delete b: it is an outdated follower");
}

#[test]
fn roles_come_from_leases_where_etcd_cannot_be_asked() {
    let scene = Scene::new(3)
        .led_by("a")
        .with("a", |m| {
            m.pod_mut(|pod| pod.lease_role = Some(LeaseRole::Follower));
        })
        .with("c", |m| {
            m.pod_mut(|pod| pod.lease_role = Some(LeaseRole::Leader));
        })
        .in_world(|world| world.policy.evidence = EvidenceMode::Readiness);
    assert_eq!(scene.says(), "delete b: it is an outdated follower");
    assert_eq!(
        scene.updated("ab").says(),
        "delete c: it is an outdated leader"
    );
}

#[test]
fn one_pod_per_cycle() {
    let quorumgate_core::plan::Next::Act(steps) = Scene::new(5).with("bcd", crashed).next() else {
        panic!("a step was due")
    };
    assert_eq!(steps.iter().count(), 1);
}
