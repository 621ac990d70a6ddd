//! The options of DEP-06's procedure.

use super::scene::*;
use crate::world::World;
use quorumgate_core::plan::{Action, Departure, Desired, Next, NonServing, Removal, Sidecars};
use quorumgate_core::quorum::EvictionBudget;

fn evict_healthy(desired: &mut Desired) {
    desired.removal = Removal::EvictHealthy;
}

fn all_at_once(desired: &mut Desired) {
    desired.non_serving = NonServing::AllAtOnce;
}

fn sidecar_first(desired: &mut Desired) {
    desired.sidecar_first = true;
}

fn its_budget_refuses(world: &mut World) {
    let name = "etcd".into();
    world.circumstances.disruption_budget = EvictionBudget::Refuses { name };
}

#[test]
fn evict_healthy_evicts_those_that_serve_with_all_containers_healthy() {
    let scene = Scene::new(3).wishing(evict_healthy);
    assert_eq!(scene.says(), "evict c: it is an outdated follower");
    let sick = scene.with("c", sick_sidecar);
    assert_eq!(sick.says(), "delete c: it is an outdated follower");
}

#[test]
fn evict_healthy_deletes_those_that_do_not_serve() {
    let scene = Scene::new(3).with("b", crashed).wishing(evict_healthy);
    assert_eq!(scene.says(), "delete b: it is outdated and is dead");
}

#[test]
fn evict_healthy_waits_for_the_disruption_budget() {
    let scene = Scene::new(3).in_world(its_budget_refuses);
    assert_eq!(
        scene.says(),
        "delete c: it is an outdated follower",
        "a delete asks none"
    );
    let scene = scene.wishing(evict_healthy);
    assert_eq!(scene.says(), "wait Permission");
    assert!(
        scene.waits_because().contains("etcd"),
        "{}",
        scene.waits_because()
    );
    let broken = scene.with("b", crashed);
    assert_eq!(broken.says(), "delete b: it is outdated and is dead");
}

#[test]
fn evict_healthy_never_takes_the_leader_because_the_followers_are_refused() {
    let scene = Scene::new(3)
        .with("a", sick_sidecar)
        .wishing(evict_healthy)
        .in_world(its_budget_refuses);
    assert_eq!(
        scene.says(),
        "wait Permission",
        "a would be deleted, and no budget is asked then"
    );
}

#[test]
fn all_at_once_takes_every_member_that_costs_nothing_in_one_cycle() {
    let scene = Scene::new(5)
        .with("bc", crashed)
        .with("d", starting)
        .with("ae", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(1)));
    assert_eq!(
        scene.says(),
        "delete c: it is outdated and is dead",
        "by default one"
    );
    assert_eq!(
        scene.wishing(all_at_once).says(),
        "delete c: it is outdated and is dead; delete b: it is outdated and is dead; delete d: it is outdated and is starting"
    );
}

#[test]
fn all_at_once_takes_one_serving_member_at_a_time_all_the_same() {
    assert_eq!(
        Scene::new(5).wishing(all_at_once).says(),
        "delete e: it is an outdated follower"
    );
}

#[test]
fn all_at_once_every_step_would_be_allowed_with_those_before_it() {
    let scene = Scene::new(7).with("bcd", crashed).wishing(all_at_once);
    let Next::Act(steps) = scene.next() else {
        panic!("steps were due")
    };
    let mut after = scene.clone();
    for step in &steps {
        let verdict =
            quorumgate_core::quorum::decide(&scene.snapshot(), &after.grants, &step.disruption());
        assert!(
            matches!(verdict, quorumgate_core::quorum::Verdict::Allow(_)),
            "{verdict:?}"
        );
        after = after.granted(step.pod.name.as_str(), true);
    }
    assert_eq!(steps.iter().count(), 3);
    assert_eq!(after.grants.iter().count(), 3);
}

#[test]
fn all_at_once_what_was_permitted_before_counts_for_every_step() {
    let scene = Scene::new(5)
        .with("b", crashed)
        .with("c", |member| member.applied -= 6_000)
        .wishing(all_at_once);
    assert_eq!(
        scene.says(),
        "delete b: it is outdated and is dead; \
         delete c: it is outdated and does not serve (it is 6000 entries behind its leader, 5000 are tolerated)"
    );
    assert_eq!(
        scene.granted("e", false).says(),
        "delete b: it is outdated and is dead",
        "a and d alone would be no majority beside c"
    );
}

#[test]
fn all_at_once_a_learner_that_goes_counts_as_the_voter_it_may_become() {
    let scene = Scene::new(4)
        .with("d", learner)
        .with("d", |member| member.applied -= 7_000)
        .with("c", |member| member.applied -= 6_000)
        .in_world(|world| {
            world.expected = 3;
            world.learners_are_stuck_for(minutes(10));
        })
        .wishing(all_at_once);
    assert_eq!(
        scene.says(),
        "delete d: it is outdated and is a learner that makes no progress",
        "of four voters, a and b would be no majority beside c"
    );
}

#[test]
fn sidecar_first_has_four_preferences() {
    let scene = Scene::new(5)
        .with("ab", sick_sidecar)
        .wishing(sidecar_first);
    let first = "delete b: it is an outdated follower with an unhealthy container beside etcd";
    assert_eq!(scene.says(), first);
    let scene = scene
        .updated("b")
        .with("b", |m| m.pod_mut(|pod| pod.sidecar_failing = false));
    assert_eq!(
        scene.says(),
        "move leadership from a to member bb, then delete a: it is an outdated leader with an unhealthy container beside etcd"
    );
    let scene = scene
        .updated("a")
        .with("a", |m| m.pod_mut(|pod| pod.sidecar_failing = false));
    assert_eq!(scene.says(), "delete e: it is an outdated follower");
    let scene = scene.updated("de").led_by("c");
    assert!(
        scene.says().ends_with("it is an outdated leader"),
        "{}",
        scene.says()
    );
}

#[test]
fn sidecar_first_is_asked_for() {
    let scene = Scene::new(3).with("b", sick_sidecar);
    assert_eq!(scene.says(), "delete c: it is an outdated follower");
}

#[test]
fn sidecar_first_never_goes_before_members_that_do_not_serve() {
    let scene = Scene::new(5)
        .with("b", sick_sidecar)
        .with("d", crashed)
        .wishing(sidecar_first);
    assert_eq!(scene.says(), "delete d: it is outdated and is dead");
}

#[test]
fn a_step_has_one_word_for_what_it_does_and_one_for_why() {
    let words = |scene: &Scene| {
        let step = scene.step();
        (step.action.slug(), step.because.slug())
    };
    let scene = Scene::new(3);
    assert_eq!(words(&scene), ("Delete", "Serving"));
    let broken = scene.clone().with("b", crashed);
    assert_eq!(words(&broken), ("Delete", "NonServing"));
    let sick = scene.clone().with("b", sick_sidecar).wishing(sidecar_first);
    assert_eq!(words(&sick), ("Delete", "SidecarFirst"));
    let evicted = scene.wishing(evict_healthy);
    assert_eq!(words(&evicted), ("Evict", "Serving"));
    assert_eq!(words(&evicted.updated("bc")), ("MoveLeader", "Serving"));
}

#[test]
fn an_eviction_is_a_step_of_its_own_kind() {
    let Next::Act(steps) = Scene::new(3).wishing(evict_healthy).next() else {
        panic!("a step was due")
    };
    assert_eq!(steps.iter().next().unwrap().action, Action::Evict);
}

#[test]
fn evict_healthy_evicts_the_leader_after_it_has_handed_over() {
    let scene = Scene::new(3).updated("bc").wishing(evict_healthy);
    let Next::Act(steps) = scene.next() else {
        panic!("{}", scene.says());
    };
    let actions: Vec<Action> = steps.iter().map(|step| step.action).collect();
    assert!(
        matches!(
            actions[..],
            [Action::MoveLeader {
                then: Departure::Evict,
                ..
            }]
        ),
        "{actions:?}"
    );
}

#[test]
fn evict_healthy_works_where_the_policy_lets_only_rollouts_take_a_member() {
    let scene = Scene::new(2).wishing(evict_healthy);
    assert_eq!(scene.says(), "evict b: it is an outdated follower");
}

/// The members taken in this cycle have to come back before the rest of the quorum is given up.
#[test]
fn all_at_once_with_quorum_lost_leaves_those_that_are_alive_until_a_new_one_runs() {
    let lost = Scene::new(3)
        .with("a", crashed)
        .with("bc", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(30)))
        .wishing(all_at_once);
    assert_eq!(lost.says(), "delete a: it is outdated and is dead");
    let all_alive = Scene::new(3)
        .with("abc", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(30)))
        .wishing(all_at_once);
    let Next::Act(steps) = all_alive.next() else {
        panic!("{}", all_alive.says());
    };
    assert_eq!(steps.iter().count(), 1, "{}", all_alive.says());
}

#[test]
fn step_3_goes_on_past_an_updated_pod_that_a_sidecar_holds() {
    let scene = Scene::new(3)
        .updated("c")
        .with("c", unready)
        .with("c", sick_sidecar);
    assert_eq!(scene.says(), "delete b: it is an outdated follower");
    let hold = scene
        .clone()
        .wishing(|desired| desired.sidecars = Sidecars::Hold);
    assert_eq!(hold.says(), "wait Unready");
    let etcd_too = scene.with("c", |m| m.pod_mut(|pod| pod.etcd_ready = false));
    assert_eq!(etcd_too.says(), "wait Unready");
}
