//! Steps 1, 2 and 4: which member comes next.

use std::time::Duration;

use super::scene::*;
use crate::world::id;
use quorumgate_core::plan::{Action, Next, Progress, progress};
use quorumgate_core::quorum::evidence::{AlarmKind, Unanswered};
use quorumgate_core::quorum::pod::Containers;
use quorumgate_core::quorum::{EvidenceMode, Ordinal, SmallCluster, Teardown};

#[test]
fn step_1_all_updated_is_done() {
    assert_eq!(Scene::new(3).updated("abc").says(), "done");
}

#[test]
fn step_1_asks_for_revisions_only_not_for_health() {
    assert_eq!(
        Scene::new(3).updated("abc").with("c", crashed).says(),
        "done"
    );
}

#[test]
fn step_1_a_missing_pod_is_never_done() {
    let scene = Scene::new(3).updated("abc").with("c", missing);
    assert_eq!(scene.says(), "wait MissingPods");
    let scene = Scene::new(3).updated("abc").with("c", terminating);
    assert_eq!(scene.says(), "wait InFlight");
}

#[test]
fn step_1_without_replicas_there_is_nothing_to_do() {
    assert_eq!(
        Scene::new(3).in_world(|world| world.replicas = 0).says(),
        "done"
    );
    let hibernates = Scene::new(3).in_world(|world| {
        world.replicas = 0;
        world.circumstances.teardown = Some(Teardown::Hibernation);
    });
    assert_eq!(hibernates.says(), "done", "its teardown is no wait");
}

#[test]
fn pods_beyond_the_replicas_are_no_targets() {
    let scene = Scene::new(4)
        .updated("abc")
        .in_world(|world| world.replicas = 3);
    assert_eq!(scene.says(), "done");
}

#[test]
fn ordinals_may_start_anywhere() {
    let shifted = |first: u32| {
        Scene::new(3)
            .with("abc", |member| {
                member.pod_mut(|pod| pod.ordinal = pod.ordinal.map(|o| Ordinal(o.0 + 5)));
            })
            .wishing(|desired| desired.first_ordinal = Ordinal(first))
    };
    assert_eq!(shifted(5).says(), "delete c: it is an outdated follower");
    assert_eq!(shifted(0).says(), "wait MissingPods");
}

#[test]
fn progress_counts_what_carries_the_revision_and_stays() {
    let of = |scene: &Scene| progress(&scene.snapshot(), &scene.desired);
    let scene = Scene::new(5).updated("cde").with("e", terminating);
    assert_eq!(
        of(&scene),
        Some(Progress {
            updated: 2,
            targets: 5
        })
    );
    let above = scene.wishing(|desired| desired.partition = 3);
    assert_eq!(
        of(&above),
        Some(Progress {
            updated: 1,
            targets: 2
        })
    );
}

#[test]
fn step_2_dead_then_starting_then_alive() {
    let scene = Scene::new(7)
        .with("b", leaderless)
        .with("c", starting)
        .with("d", crashed);
    assert_eq!(scene.says(), "delete d: it is outdated and is dead");
    let scene = scene.updated("d");
    assert_eq!(scene.says(), "delete c: it is outdated and is starting");
    let scene = scene.updated("c");
    assert_eq!(
        scene.says(),
        "delete b: it is outdated and does not serve (it knows no leader)"
    );
}

#[test]
fn step_2_goes_on_without_waiting_for_each_to_come_back() {
    let scene = Scene::new(5)
        .updated("e")
        .with("e", missing)
        .with("d", crashed);
    assert_eq!(scene.says(), "delete d: it is outdated and is dead");
    let scene = Scene::new(5).updated("e").with("ed", crashed);
    assert_eq!(scene.says(), "delete d: it is outdated and is dead");
}

#[test]
fn step_2_with_quorum_lost_the_dead_go_at_once() {
    let scene = Scene::new(3).with("ab", crashed).with("c", leaderless);
    assert_eq!(scene.says(), "delete b: it is outdated and is dead");
    assert_eq!(
        scene.updated("b").says(),
        "delete a: it is outdated and is dead"
    );
}

#[test]
fn step_2_with_quorum_lost_an_alive_one_waits_for_the_grace_period() {
    let lost = |for_minutes: u64| {
        Scene::new(3)
            .updated("ab")
            .with("abc", leaderless)
            .in_world(|world| world.quorum_lost_for = Some(minutes(for_minutes)))
    };
    assert_eq!(lost(4).says(), "wait QuorumLost");
    assert_eq!(
        lost(4).waits_because(),
        "quorum is lost (0 of 3 voters serve) and may come back by itself; c is alive and stays until it has been lost for 300 s \
         (240 s so far)"
    );
    assert_eq!(
        lost(5).says(),
        "delete c: it is outdated and does not serve (it knows no leader)"
    );
}

#[test]
fn step_2_with_quorum_lost_an_alive_one_stays_while_no_updated_one_answers() {
    let lost = Scene::new(3)
        .updated("c")
        .with("c", crashed)
        .with("ab", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(60)));
    assert_eq!(lost.says(), "wait UpdatedMembers");
    assert_eq!(
        lost.clone().out_for("c", minutes(10)).says(),
        "wait Overdue"
    );
    // A container that crashes again and again runs every now and then.
    let briefly_up = lost.clone().with("c", |member| {
        member.silent(Unanswered::Refused);
        member.pod_mut(|pod| pod.containers = Containers::Running);
    });
    assert_eq!(briefly_up.says(), "wait UpdatedMembers");
    // Without a quorum a sound member does not answer either, but it keeps running.
    let up = briefly_up.with("c", |member| {
        member.silent(Unanswered::Deadline);
        member.pod_mut(|pod| pod.up_for = Some(Duration::from_secs(20)));
    });
    assert!(up.says().starts_with("delete b"), "{}", up.says());
    let answers = lost.with("c", leaderless);
    assert!(answers.says().starts_with("delete b"), "{}", answers.says());
}

#[test]
fn step_2_a_member_that_defragments_is_left_alone_until_it_is_done() {
    let defragments = |m: &mut crate::world::Inhabitant| m.silent(Unanswered::Defragmenting);
    let scene = Scene::new(3).with("c", defragments);
    assert_eq!(scene.says(), "wait UpdatedMembers");
    let for_long = scene.out_for("c", minutes(10));
    assert_eq!(for_long.says(), "wait UpdatedMembers");
    let hangs = Scene::new(3).with("c", hung).out_for("c", minutes(10));
    assert!(hangs.says().starts_with("delete c"), "{}", hangs.says());
}

#[test]
fn step_2_a_leader_that_is_down_has_nothing_to_hand_over() {
    for (state, is) in [(crashed as fn(&mut _), "dead"), (starting, "starting")] {
        let scene = Scene::new(3).with("a", state);
        assert_eq!(
            scene.says(),
            format!("delete a: it is outdated and is {is}"),
            "the others have not elected another yet"
        );
    }
}

#[test]
fn step_2_corrupt_members_that_follow_go_before_one_that_leads() {
    let corrupt = |m: &mut crate::world::Inhabitant| m.alarm = Some(AlarmKind::Corrupt);
    let scene = Scene::new(5).with("ac", corrupt);
    assert!(scene.says().starts_with("delete c"), "{}", scene.says());
    let scene = Scene::new(5).updated("c").with("a", corrupt);
    assert!(
        scene
            .says()
            .starts_with("move leadership from a to member cc"),
        "{}",
        scene.says()
    );
}

#[test]
fn step_2_a_pod_that_is_not_a_member_costs_nothing() {
    let scene = Scene::new(4)
        .with("d", not_listed)
        .in_world(|world| world.expected = 3);
    assert_eq!(
        scene.says(),
        "delete d: it is outdated and is not a member of the cluster"
    );
}

#[test]
fn step_2_a_learner_that_catches_up_is_not_replaced_for_another_that_is_stuck() {
    let both = Scene::new(5).with("de", learner).in_world(|w| {
        w.learners_stuck_for = [(id(3), minutes(0)), (id(4), minutes(10))].into();
    });
    assert_eq!(
        both.says(),
        "delete e: it is outdated and is a learner that makes no progress"
    );
    assert_eq!(both.updated("e").says(), "wait Learner");
}

#[test]
fn step_2_a_stuck_learner_is_replaced_and_one_that_catches_up_is_not() {
    let learning = |stuck: u64| {
        Scene::new(4)
            .with("d", learner)
            .in_world(|w| w.learners_are_stuck_for(minutes(stuck)))
    };
    assert_eq!(learning(9).says(), "wait Learner");
    assert_eq!(
        learning(10).says(),
        "delete d: it is outdated and is a learner that makes no progress"
    );
}

#[test]
fn step_4_followers_first_and_the_highest_ordinal_of_equals() {
    assert_eq!(Scene::new(3).says(), "delete c: it is an outdated follower");
    assert_eq!(
        Scene::new(3).led_by("c").says(),
        "delete b: it is an outdated follower"
    );
}

#[test]
fn step_4_the_most_lagging_follower_first() {
    let scene = Scene::new(5)
        .with("b", |m| m.applied -= 100)
        .with("d", |m| m.applied -= 10);
    assert_eq!(scene.says(), "delete b: it is an outdated follower");
    assert_eq!(
        scene.updated("b").says(),
        "delete d: it is an outdated follower"
    );
}

#[test]
fn step_4_the_leader_goes_last_after_leadership_has_moved_to_an_updated_follower() {
    let scene = Scene::new(3)
        .updated("bc")
        .with("c", |member| member.applied -= 5);
    assert_eq!(
        scene.says(),
        "move leadership from a to member bb, then delete a: it is an outdated leader"
    );
    assert_eq!(
        scene.led_by("b").says(),
        "delete a: it is an outdated follower"
    );
}

#[test]
fn step_4_leadership_that_cannot_be_moved_keeps_nobody() {
    let refused = Scene::new(3)
        .updated("bc")
        .wishing(|desired| desired.handover = quorumgate_core::plan::Handover::Refused);
    assert_eq!(refused.says(), "delete a: it is an outdated leader");
}

#[test]
fn step_4_leadership_that_has_just_moved_is_left_alone() {
    let remaining = minutes(1);
    let resting = Scene::new(3).updated("bc").wishing(|desired| {
        desired.handover = quorumgate_core::plan::Handover::Resting { remaining }
    });
    assert_eq!(resting.says(), "wait Leadership");
    assert!(
        resting.waits_because().contains("a leads again"),
        "{}",
        resting.waits_because()
    );
}

#[test]
fn step_4_with_readiness_evidence_a_leader_goes_last_and_as_leader() {
    let scene = Scene::new(3).in_world(|w| w.policy.evidence = EvidenceMode::Readiness);
    assert_eq!(scene.says(), "delete c: it is an outdated follower");
    assert_eq!(
        scene.updated("bc").says(),
        "delete a: it is an outdated leader"
    );
}

#[test]
fn a_single_member_is_replaced() {
    assert_eq!(Scene::new(1).says(), "delete a: it is an outdated leader");
    assert_eq!(
        Scene::new(1).with("a", crashed).says(),
        "delete a: it is outdated and is dead"
    );
    let never = Scene::new(1).in_world(|w| w.policy.single_member = SmallCluster::Never);
    assert_eq!(never.says(), "wait Permission");
}

#[test]
fn of_two_members_the_follower_goes_first_while_the_other_serves() {
    assert_eq!(Scene::new(2).says(), "delete b: it is an outdated follower");
    let scene = Scene::new(2).updated("b");
    assert_eq!(
        scene.says(),
        "move leadership from a to member bb, then delete a: it is an outdated leader"
    );
    assert_eq!(
        scene.led_by("b").says(),
        "delete a: it is an outdated follower"
    );
    let never = Scene::new(2).in_world(|w| w.policy.two_members = SmallCluster::Never);
    assert_eq!(never.says(), "wait Permission");
}

#[test]
fn every_step_insists_on_the_incarnation_that_was_seen() {
    let Next::Act(steps) = Scene::new(3).next() else {
        panic!("a step was due")
    };
    let step = steps.into_iter().next().unwrap();
    assert_eq!(step.pod.uid, "c-1".into());
    assert_eq!(step.disruption().precondition, Some("c-1".into()));
    assert_eq!(step.action, Action::Delete);
}

#[test]
fn step_2_one_that_hangs_goes_after_all_others_that_do_not_serve() {
    let seconds = Duration::from_secs;
    for state in [hung, on_a_lost_node] {
        let scene = Scene::new(5).with("c", state);
        assert_eq!(
            scene.clone().out_for("c", seconds(3)).says(),
            "wait Evidence"
        );
        let scene = scene.out_for("c", seconds(4));
        assert_eq!(
            scene.says(),
            "delete c: it is outdated and is not known to serve (it did not answer in time)"
        );
        let dead_too = scene.with("b", crashed);
        assert_eq!(dead_too.says(), "delete b: it is outdated and is dead");
    }
}

#[test]
fn step_2_one_that_hangs_stays_while_the_others_make_no_majority() {
    let minute = Duration::from_secs(60);
    let scene = Scene::new(3).with("bc", hung);
    let scene = scene.out_for("b", minute).out_for("c", minute);
    assert_eq!(scene.says(), "wait Evidence");
    // A dead member goes, and members that hang stay meanwhile.
    let scene = Scene::new(5).with("bc", hung).with("d", crashed);
    let scene = scene.out_for("b", minute).out_for("c", minute);
    assert_eq!(scene.says(), "delete d: it is outdated and is dead");
}

/// Members up to etcd 3.5 that were restarted without their peers listen and never answer.
#[test]
fn step_2_of_members_that_never_answer_one_goes_for_each_grace_period() {
    let grace = Scene::new(3).world.policy.quorum_loss_grace;
    let mute = |member: &mut crate::world::Inhabitant| {
        hung(member);
        member.silent(Unanswered::Mute);
        member.pod_mut(|pod| pod.up_for = Some(Duration::from_hours(1)));
    };
    let scene = ["a", "b", "c"]
        .into_iter()
        .fold(Scene::new(3), |scene, name| {
            scene.with(name, mute).out_for(name, grace)
        });
    assert_eq!(scene.says(), "wait Evidence");
    let scene = scene.in_world(|world| world.mute_for = Some(grace));
    let first = scene.says();
    assert!(first.starts_with("delete c: it is outdated"), "{first}");
    let one_is_new = scene.updated("c").with("c", |member| {
        member.pod_mut(|pod| pod.up_for = Some(Duration::from_secs(60)));
    });
    assert_eq!(one_is_new.says(), "wait Evidence");
    let lasts = one_is_new.with("c", mute);
    let second = lasts.says();
    assert!(second.starts_with("delete b: it is outdated"), "{second}");
}

#[test]
fn step_2_one_that_hangs_is_left_to_its_holder_and_updated_ones_are_left_alone() {
    let minute = Duration::from_secs(60);
    let granted = Scene::new(3).with("c", hung).out_for("c", minute);
    assert_eq!(granted.clone().granted("c", false).says(), "wait InFlight");
    let updated = granted.updated("c");
    assert_eq!(updated.says(), "wait UpdatedMembers");
}
