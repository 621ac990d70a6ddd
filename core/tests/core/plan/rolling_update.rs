//! `RollingUpdate`: which member the gate deletes so that the StatefulSet controller can go on.

use std::time::Duration;

use super::scene::*;
use quorumgate_core::plan::{PodManagement, unblock};

fn unblocked(scene: &Scene) -> Option<String> {
    unblock(&scene.snapshot(), &scene.grants, &scene.desired).map(|step| step.to_string())
}

#[test]
fn a_broken_lower_member_goes_where_the_controller_is_refused_the_highest() {
    for (state, is) in [(crashed as fn(&mut _), "dead"), (starting, "starting")] {
        let scene = Scene::new(3).with("a", state).led_by("c");
        let expected = format!("delete a: it is outdated and is {is}");
        assert_eq!(unblocked(&scene), Some(expected));
    }
}

#[test]
fn it_goes_too_where_the_controller_has_updated_the_highest_already() {
    let scene = Scene::new(3).updated("c").with("a", crashed).led_by("c");
    assert_eq!(
        unblocked(&scene).as_deref(),
        Some("delete a: it is outdated and is dead")
    );
}

#[test]
fn then_and_only_then() {
    assert_eq!(unblocked(&Scene::new(3)), None, "it goes on by itself");
    assert_eq!(
        unblocked(&Scene::new(3).updated("abc")),
        None,
        "nothing to do"
    );
    let spare = Scene::new(5).with("a", crashed);
    assert_eq!(unblocked(&spare), None, "the highest is not refused");
    let updating = Scene::new(3)
        .updated("c")
        .with("c", starting)
        .with("a", crashed);
    assert_eq!(
        unblocked(&updating),
        None,
        "it waits for the one it updated"
    );
    let unobserved = Scene::new(3)
        .with("a", crashed)
        .led_by("c")
        .wishing(|d| d.generation.observed = 0);
    assert_eq!(unblocked(&unobserved), None, "nobody knows who is outdated");
    let on_its_way = Scene::new(3).with("c", terminating).with("a", crashed);
    assert_eq!(unblocked(&on_its_way), None, "the highest goes already");
}

#[test]
fn a_cluster_that_never_formed_is_not_left_to_an_updated_member_that_cannot_serve_alone() {
    let stuck = Scene::new(3)
        .updated("c")
        .with("ab", crashed)
        .with("c", leaderless);
    assert_eq!(unblocked(&stuck), None, "it may just be starting");
    let stuck = stuck.out_for("c", Duration::from_secs(15));
    assert_eq!(
        unblocked(&stuck).as_deref(),
        Some("delete b: it is outdated and is dead")
    );
    let serving = Scene::new(3).updated("c").with("a", crashed).led_by("b");
    let waits = serving.with("c", unready).out_for("c", minutes(1));
    assert_eq!(unblocked(&waits), None, "its probe mends nothing else");
}

#[test]
fn a_member_that_may_be_alive_stays() {
    for state in [leaderless, hung, on_a_lost_node] {
        assert_eq!(unblocked(&Scene::new(3).with("a", state).led_by("c")), None);
    }
}

#[test]
fn an_updated_or_kept_one_stays() {
    let updated = Scene::new(3).updated("a").with("a", crashed).led_by("c");
    assert_eq!(unblocked(&updated), None);
    let kept = Scene::new(3)
        .with("a", crashed)
        .led_by("c")
        .wishing(|desired| desired.partition = 1);
    assert_eq!(unblocked(&kept), None);
}

#[test]
fn the_highest_itself_goes_where_only_strangers_are_refused_it() {
    let scene = Scene::new(3).with("c", crashed).with("ab", leaderless);
    assert_eq!(
        unblocked(&scene).as_deref(),
        Some("delete c: it is outdated and is dead")
    );
}

#[test]
fn with_ordered_ready_the_lowest_broken_one_goes() {
    let ordered = |scene: Scene| scene.wishing(|d| d.management = PodManagement::OrderedReady);
    let scene = ordered(Scene::new(5).with("b", crashed));
    assert_eq!(
        unblocked(&scene).as_deref(),
        Some("delete b: it is outdated and is dead")
    );
    let waits = ordered(Scene::new(5).with("a", leaderless).with("b", crashed));
    assert_eq!(
        unblocked(&waits),
        None,
        "a is alive, and nothing above it would be created"
    );
}

#[test]
fn with_ordered_ready_a_delete_does_not_mend_a_wait_for_one_that_is_alive() {
    let scene = Scene::new(5)
        .with("a", node_gone)
        .with("b", leaderless)
        .wishing(|d| d.management = PodManagement::OrderedReady);
    assert_eq!(
        unblocked(&scene),
        None,
        "the controller still takes a for ready, and comes no further than b"
    );
}

#[test]
fn paused_holds_here_too() {
    let scene = Scene::new(3)
        .with("a", crashed)
        .led_by("c")
        .wishing(|d| d.paused = true);
    assert_eq!(unblocked(&scene), None);
}
