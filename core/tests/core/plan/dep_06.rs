//! The update scenarios of DEP-06.

use super::scene::*;

#[test]
fn scenario_1_one_pod_does_not_participate() {
    let scene = Scene::new(3).with("a", crashed).led_by("c");
    assert_eq!(scene.says(), "delete a: it is outdated and is dead");
    let scene = scene.with("a", missing);
    assert_eq!(scene.says(), "wait MissingPods");
    let back = |state: fn(&mut crate::world::Inhabitant)| {
        Scene::new(3).updated("a").with("a", state).led_by("c")
    };
    assert_eq!(back(starting).says(), "wait UpdatedMembers");
    assert_eq!(back(|_| {}).says(), "delete b: it is an outdated follower");
}

#[test]
fn scenario_2_another_fails_in_the_middle() {
    let middle = Scene::new(3)
        .updated("a")
        .with("a", starting)
        .with("b", crashed)
        .with("c", leaderless);
    assert_eq!(
        middle.says(),
        "delete b: it is outdated and is dead",
        "it makes the update faster"
    );
    let both = middle.updated("b").with("ab", hung);
    assert_eq!(
        both.says(),
        "wait Permission",
        "nobody knows that quorum is lost for good"
    );
    let alone = both
        .with("ab", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(5)));
    assert_eq!(
        alone.says(),
        "delete c: it is outdated and does not serve (it knows no leader)"
    );
}

#[test]
fn scenario_3_quorum_is_lost_for_good() {
    let lost = Scene::new(3)
        .with("ab", crashed)
        .with("c", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(30)));
    assert_eq!(lost.says(), "delete b: it is outdated and is dead");
    let one = lost.updated("b");
    assert_eq!(one.says(), "delete a: it is outdated and is dead");
    let two = one.updated("a").with("a", missing);
    assert_eq!(
        two.says(),
        "wait MissingPods",
        "the last one alive stays until a new one runs"
    );
    let leaving = lost_again().with("a", terminating);
    assert_ne!(
        leaving.says(),
        "delete c: it is outdated and does not serve (it knows no leader)",
        "one that still terminates has not been tried yet"
    );
    let runs = two.with("b", leaderless);
    assert_eq!(
        runs.says(),
        "delete c: it is outdated and does not serve (it knows no leader)"
    );
}

/// A cluster of three members that are alive and have had no quorum for half an hour.
fn lost_again() -> Scene {
    Scene::new(3)
        .with("abc", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(30)))
}
