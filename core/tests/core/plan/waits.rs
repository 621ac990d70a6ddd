//! Step 3, and every other reason for which a rollout waits.

use std::time::Duration;

use super::scene::*;
use quorumgate_core::plan::{
    Generation, MOST_REPLICAS, MaxUnavailable, Obstacle, PodManagement, WaitingOn,
};
use quorumgate_core::quorum::Switch;
use quorumgate_core::quorum::{EvidenceMode, Scope, Teardown, Trust};

#[test]
fn step_3_holds_while_an_updated_member_does_not_serve() {
    for state in [crashed, starting, leaderless, hung, on_a_lost_node] {
        let scene = Scene::new(5).updated("e").with("e", state);
        assert_eq!(scene.says(), "wait UpdatedMembers");
    }
    let scene = Scene::new(5).updated("e").with("e", starting);
    assert_eq!(
        scene.waits_because(),
        "e is starting (1 out, at most 1 may be)"
    );
}

#[test]
fn step_3_names_only_those_that_it_waits_for() {
    let scene = Scene::new(5)
        .updated("e")
        .with("ae", crashed)
        .wishing(|d| d.partition = 1);
    assert_eq!(
        scene.waits_because(),
        "e is dead (1 out, at most 1 may be)",
        "a was not broken by this rollout"
    );
}

#[test]
fn step_3_holds_while_a_pod_is_missing() {
    let scene = Scene::new(5).with("e", missing);
    assert_eq!(scene.says(), "wait MissingPods");
    assert_eq!(
        scene.waits_because(),
        "etcd-4 has no pod (1 out, at most 1 may be)"
    );
}

#[test]
fn step_3_holds_while_a_grant_is_open() {
    assert_eq!(Scene::new(5).granted("b", false).says(), "wait InFlight");
    assert_eq!(Scene::new(5).with("e", terminating).says(), "wait InFlight");
}

/// A pod that was scaled in may hang on a dead node for ever.
#[test]
fn a_grant_of_a_member_that_has_left_holds_nobody_up() {
    let left = |member: &mut crate::world::Inhabitant| {
        member.listed = crate::world::Listed::No;
        member.pod_mut(|pod| pod.terminating = true);
    };
    let scene = Scene::new(4).with("d", left).granted("d", false);
    let scene = scene.in_world(|w| (w.replicas, w.expected, w.expected_under) = (3, 3, 3));
    assert_eq!(scene.says(), "delete c: it is an outdated follower");
}

#[test]
fn a_grant_of_a_pod_that_is_no_target_counts_too() {
    let leaving = Scene::new(4)
        .granted("d", false)
        .in_world(|w| w.replicas = 3);
    assert_eq!(leaving.says(), "wait InFlight");
}

#[test]
fn a_step_that_has_its_grant_is_finished_before_another_begins() {
    let scene = Scene::new(3).granted("b", true);
    assert_eq!(scene.says(), "delete b: it is an outdated follower");
    let dead = Scene::new(5).with("bd", crashed).granted("b", true);
    assert_eq!(dead.says(), "delete b: it is outdated and is dead");
}

#[test]
fn step_3_an_updated_member_that_does_not_serve_in_time_is_overdue() {
    let scene = Scene::new(5)
        .updated("e")
        .with("e", crashed)
        .out_for("e", minutes(10));
    assert_eq!(scene.says(), "wait Overdue");
    assert_eq!(
        scene.waits_because(),
        "e is dead, for 600 s; after 600 s the rollout holds, until it serves or the template changes"
    );
    let early = scene.clone().out_for("e", minutes(9));
    assert_eq!(early.says(), "wait UpdatedMembers");
    let missing = Scene::new(5)
        .with("e", missing)
        .out_for("etcd-4", minutes(10));
    assert_eq!(missing.says(), "wait Overdue");
}

#[test]
fn step_3_holds_while_an_updated_member_serves_and_is_not_ready() {
    let scene = Scene::new(3).updated("c").with("c", unready);
    assert_eq!(scene.says(), "wait Unready");
    assert_eq!(
        scene.waits_because(),
        "not Ready, though serving: c (1 out, at most 1 may be)"
    );
    assert!(!scene.waits_on().is_stuck());
    let late = scene.with("c", |member| {
        member.pod_mut(|pod| pod.up_for = Some(minutes(10)));
    });
    assert!(late.waits_on().is_stuck());
    let corrected = late.with("c", |member| {
        member.pod_mut(|pod| pod.revision = Some("old".into()));
    });
    assert_eq!(corrected.says(), "delete c: it is an outdated follower");
}

#[test]
fn step_3_soaks_an_updated_member_that_serves_before_the_next_one_goes() {
    let soaking = |up_for: Option<Duration>, ready_for: Option<Duration>| {
        let scene = Scene::new(3)
            .updated("c")
            .wishing(|desired| desired.soak = minutes(10));
        scene.with("c", |member| {
            member.pod_mut(|pod| {
                pod.up_for = up_for;
                pod.ready_for = ready_for;
            });
        })
    };
    let fresh = soaking(Some(minutes(4)), Some(minutes(3)));
    assert_eq!(fresh.says(), "wait Soaking");
    assert_eq!(
        fresh.waits_because(),
        "c has served for 180 s with its update, and the next member waits until that is 600 s"
    );
    assert_eq!(fresh.waits_on().remaining(), Some(minutes(7)));
    assert!(!fresh.waits_on().is_stuck());
    for (up_for, ready_for, why) in [
        (minutes(2), Some(minutes(30)), "its process was restarted"),
        (minutes(30), Some(minutes(2)), "it was not Ready in between"),
        (minutes(2), None, "its pod says no time"),
    ] {
        let scene = soaking(Some(up_for), ready_for);
        assert_eq!(scene.says(), "wait Soaking", "{why}");
    }
    for (up_for, ready_for) in [(Some(minutes(10)), Some(minutes(10))), (None, None)] {
        let soaked = soaking(up_for, ready_for);
        assert_eq!(soaked.says(), "delete b: it is an outdated follower");
    }
}

#[test]
fn nothing_soaks_before_a_repair_or_a_way_back() {
    let soaking = |scene: Scene| {
        scene
            .wishing(|desired| desired.soak = minutes(10))
            .with("c", |member| {
                member.pod_mut(|pod| pod.up_for = Some(minutes(1)));
            })
    };
    let broken = soaking(Scene::new(3).updated("c")).with("b", crashed);
    assert!(broken.says().starts_with("delete b"), "{}", broken.says());
    // The template was rolled back: all others have the update revision again.
    let back = soaking(Scene::new(3).updated("ab")).with("ab", |member| {
        member.pod_mut(|pod| pod.up_for = Some(minutes(60)));
    });
    assert!(back.says().starts_with("delete c"), "{}", back.says());
}

#[test]
fn one_that_is_not_ready_itself_waits_for_no_ready_ones() {
    let scene = Scene::new(3).updated("c").with("bc", unready);
    assert_eq!(scene.says(), "delete b: it is an outdated follower");
    let last = Scene::new(3).updated("bc").with("abc", unready);
    assert!(
        last.says().contains("an outdated leader"),
        "{}",
        last.says()
    );
}

#[test]
fn followers_that_are_not_ready_go_before_those_that_are() {
    let scene = Scene::new(5).with("b", unready);
    assert_eq!(scene.says(), "delete b: it is an outdated follower");
}

#[test]
fn unready_members_count_against_how_many_may_be_out() {
    let scene = Scene::new(7)
        .updated("fg")
        .with("f", starting)
        .with("g", unready)
        .wishing(|d| d.max_unavailable = MaxUnavailable::Members(2));
    assert_eq!(scene.says(), "wait Unready");
    let three = scene.wishing(|d| d.max_unavailable = MaxUnavailable::Members(3));
    assert_eq!(three.says(), "delete e: it is an outdated follower");
    let kept = Scene::new(3)
        .with("a", unready)
        .wishing(|d| d.partition = 1)
        .led_by("c");
    assert_eq!(
        kept.says(),
        "delete b: it is an outdated follower",
        "a was not made unready by this rollout"
    );
}

#[test]
fn an_overdue_member_holds_however_many_may_be_out() {
    let scene = Scene::new(7)
        .updated("g")
        .with("g", crashed)
        .wishing(|d| d.max_unavailable = MaxUnavailable::Members(3));
    assert_eq!(scene.says(), "delete f: it is an outdated follower");
    assert_eq!(scene.out_for("g", minutes(10)).says(), "wait Overdue");
}

#[test]
fn an_overdue_member_that_recovers_lets_the_rollout_go_on() {
    let scene = Scene::new(3).updated("c").out_for("c", minutes(10));
    assert_eq!(
        scene.says(),
        "delete b: it is an outdated follower",
        "it serves"
    );
}

#[test]
fn a_template_that_is_rolled_back_replaces_the_member_it_broke() {
    let broken = Scene::new(3)
        .updated("ab")
        .with("c", |member| {
            member.crashed();
            member.pod_mut(|pod| pod.revision = Some("bad".into()));
        })
        .out_for("c", minutes(60));
    assert_eq!(broken.says(), "delete c: it is outdated and is dead");
}

#[test]
fn a_template_change_midway_makes_updated_pods_outdated_again() {
    let midway = Scene::new(3).with("c", |m| {
        m.pod_mut(|pod| pod.revision = Some("newer".into()));
    });
    assert_eq!(midway.says(), "delete c: it is an outdated follower");
}

#[test]
fn nothing_is_done_on_unknown_evidence() {
    for unknown in [hung, on_a_lost_node] {
        let scene = Scene::new(3).with("c", unknown);
        assert_eq!(scene.says(), "wait Evidence");
        assert_eq!(Scene::new(3).with("abc", unknown).says(), "wait Evidence");
    }
}

#[test]
fn scale_out_joins_new_members_before_old_ones_restart() {
    let grown = |state: fn(&mut crate::world::Inhabitant)| {
        Scene::new(3)
            .updated("bc")
            .with("bc", not_listed)
            .with("b", state)
            .in_world(|world| world.expected = 1)
            .wishing(|d| d.max_unavailable = quorumgate_core::plan::MaxUnavailable::Percent(100))
    };
    assert_eq!(grown(|_| {}).says(), "wait Joining");
    assert_eq!(
        grown(|_| {}).waits_because(),
        "new members join first, 1 of 3 are voters: b is not a member of the cluster, c is not a member of the cluster"
    );
    let learning = grown(|member| {
        member.answers = crate::world::Answers::Itself;
        learner(member);
        member.applied -= 7;
    });
    assert_eq!(learning.says(), "wait Learner");
    assert_eq!(
        learning.waits_because(),
        "b is a learner and catches up, 7 entries behind"
    );
}

#[test]
fn scale_out_waits_for_pods_that_are_missing() {
    let scene = Scene::new(3)
        .with("bc", |member| {
            not_listed(member);
            member.pod = None;
        })
        .in_world(|world| world.expected = 1);
    assert_eq!(scene.says(), "wait Joining");
}

#[test]
fn scale_out_waits_for_a_learner_that_does_not_serve() {
    for (state, what) in [
        (crashed as fn(&mut _), "is dead"),
        (starting, "is starting"),
        (leaderless, "does not serve (it knows no leader)"),
        (hung, "is not known to serve (it did not answer in time)"),
    ] {
        let scene = Scene::new(4)
            .updated("d")
            .with("d", learner)
            .with("d", state)
            .in_world(|world| world.expected = 3)
            .wishing(|d| d.max_unavailable = quorumgate_core::plan::MaxUnavailable::Members(2));
        assert_eq!(
            scene.waits_because(),
            format!("new members join first, 3 of 4 are voters: d {what}")
        );
    }
}

#[test]
fn scale_out_broken_members_still_go_first() {
    let scene = Scene::new(5)
        .updated("de")
        .with("de", not_listed)
        .with("b", crashed)
        .in_world(|world| world.expected = 3);
    assert_eq!(scene.says(), "delete b: it is outdated and is dead");
}

#[test]
fn paused_stops_new_steps() {
    let paused = Scene::new(3)
        .with("a", crashed)
        .wishing(|d| d.paused = true);
    assert_eq!(paused.says(), "wait Paused");
    assert_eq!(
        paused.waits_because(),
        "the rollout is paused, with 0 of 3 pods updated"
    );
    assert_eq!(paused.updated("abc").says(), "done");
}

#[test]
fn partition_keeps_lower_ordinals() {
    let scene = Scene::new(3).wishing(|d| d.partition = 2);
    assert_eq!(scene.says(), "delete c: it is an outdated follower");
    assert_eq!(scene.updated("c").says(), "done");
    let broken = Scene::new(5)
        .with("a", crashed)
        .wishing(|d| d.partition = 2);
    assert_eq!(
        broken.says(),
        "delete e: it is an outdated follower",
        "it was not broken by this rollout"
    );
}

#[test]
fn the_generation_is_waited_for() {
    let generation = Generation {
        desired: 3,
        observed: 2,
    };
    let scene = Scene::new(3)
        .updated("abc")
        .wishing(|d| d.generation = generation);
    assert_eq!(scene.says(), "wait Observation");
    assert_eq!(
        scene.waits_because(),
        "the StatefulSet controller has read generation 2 of 3"
    );
}

#[test]
fn a_revision_that_is_not_computed_is_waited_for() {
    let scene = Scene::new(3);
    let mut observation = scene.world.observation();
    observation.update_revision = None;
    let snapshot = quorumgate_core::quorum::Snapshot::assemble(&observation);
    let next = quorumgate_core::plan::next_step(&snapshot, &scene.grants, &scene.desired);
    assert_eq!(
        next,
        quorumgate_core::plan::Next::Wait(quorumgate_core::plan::WaitingOn::Revision)
    );
    assert_eq!(
        quorumgate_core::plan::progress(&snapshot, &scene.desired),
        None
    );
}

#[test]
fn a_cluster_that_is_torn_down_is_not_rolled() {
    let gone = Scene::new(3).in_world(|w| w.circumstances.teardown = Some(Teardown::Owner));
    assert_eq!(gone.says(), "wait Teardown");
}

#[test]
fn a_set_that_is_not_enrolled_is_not_rolled() {
    for scope in [Scope::Foreign, Scope::NoLedger, Scope::NoDefinition] {
        let scene = Scene::new(3).in_world(|world| world.circumstances.scope = scope.clone());
        assert_eq!(scene.says(), "wait Enrolment");
    }
}

#[test]
fn what_the_judge_would_refuse_is_not_proposed() {
    let untrusted = Trust::Untrusted {
        remaining: Some(minutes(1)),
    };
    let scene = Scene::new(3).in_world(|world| world.circumstances.ledger = untrusted);
    assert_eq!(scene.says(), "wait Permission");
    let gone = scene.with("b", node_gone);
    assert_eq!(
        gone.says(),
        "delete b: it is outdated and is dead",
        "dead for good goes"
    );
}

#[test]
fn ordered_ready_nothing_goes_above_an_unready_lower_ordinal() {
    let ordered = |scene: Scene| scene.wishing(|d| d.management = PodManagement::OrderedReady);
    let unready = |m: &mut crate::world::Inhabitant| m.pod_mut(|pod| pod.ready = false);
    let serving = ordered(Scene::new(3).updated("a").with("a", unready));
    assert_eq!(serving.says(), "wait LowerOrdinal");
    assert_eq!(
        serving.waits_because(),
        "c would not be created again before a is ready (OrderedReady)"
    );
    let broken = ordered(Scene::new(5).with("b", leaderless).with("d", crashed));
    assert!(broken.says().starts_with("delete b"), "{}", broken.says());
    let stuck = ordered(
        Scene::new(5)
            .updated("a")
            .with("a", starting)
            .with("d", crashed),
    );
    assert_eq!(
        stuck.waits_because(),
        "d would not be created again before a is ready (OrderedReady), which is starting"
    );
}

#[test]
fn a_change_that_cannot_be_rolled_one_by_one_holds() {
    let scene = Scene::new(3)
        .with("b", crashed)
        .wishing(|d| d.obstacle = Some(Obstacle::PeerTls(Switch::On)));
    assert_eq!(scene.says(), "wait Obstacle");
    assert_eq!(
        scene.waits_because(),
        "this change cannot be rolled one by one: it switches TLS between the members on, and members with it do not talk to those \
         without; to go back, restore the owner's spec and run kubectl rollout undo on the StatefulSet; \
         to accept the outage, annotate the budget with quorumgate.io/proceed-without-quorum: new"
    );
    let other = scene.in_world(|w| w.proceed_without_quorum = Some("old".into()));
    assert_eq!(
        other.says(),
        "wait Obstacle",
        "exactly the annotated revision"
    );
}

#[test]
fn a_permission_to_go_on_without_quorum_says_why_it_has_no_effect() {
    let said = |scene: &Scene, named: &str| {
        let ignored = quorumgate_core::plan::ignored(named, &scene.snapshot(), &scene.desired);
        ignored.map(|ignored| ignored.to_string())
    };
    let apart = Scene::new(3).wishing(|d| d.obstacle = Some(Obstacle::PeerTls(Switch::On)));
    assert_eq!(said(&apart, "new"), None, "it has its effect");
    let other = said(&apart, "old").unwrap();
    let names = "has no effect: it names old, and the update revision is new";
    assert!(other.ends_with(names), "{other}");
    let plain = Scene::new(3);
    let needless = said(&plain, "new").unwrap();
    assert!(needless.contains("can be rolled one by one"), "{needless}");
    assert_eq!(said(&plain, "old"), Some(other), "as of an earlier rollout");
    let alone = Scene::new(1).wishing(|d| d.obstacle = Some(Obstacle::PeerTls(Switch::On)));
    assert_eq!(said(&alone, "new"), Some(needless));
}

#[test]
fn a_single_member_has_nobody_to_be_kept_from() {
    let scene = Scene::new(1).wishing(|d| d.obstacle = Some(Obstacle::PeerTls(Switch::On)));
    assert_eq!(scene.says(), "delete a: it is an outdated leader");
}

#[test]
fn the_annotated_revision_goes_on_one_member_at_a_time() {
    let accepted = |scene: Scene| {
        scene
            .wishing(|d| d.obstacle = Some(Obstacle::PeerTls(Switch::Off)))
            .in_world(|w| w.proceed_without_quorum = Some("new".into()))
    };
    let first = accepted(Scene::new(3));
    assert_eq!(first.says(), "delete c: it is an outdated follower");
    let on_its_way = accepted(Scene::new(3).updated("c").with("c", missing));
    assert_eq!(on_its_way.says(), "wait MissingPods");
    let starts = accepted(Scene::new(3).updated("c").with("c", starting));
    assert_eq!(starts.says(), "wait UpdatedMembers");
    let runs = accepted(Scene::new(3).updated("c").with("c", hung)).out_for("c", minutes(60));
    assert_eq!(runs.says(), "delete b: it is an outdated follower");
    let judged = quorumgate_core::quorum::decide(&runs.snapshot(), &runs.grants, &ask(&runs));
    assert!(
        matches!(judged, quorumgate_core::quorum::Verdict::Allow(_)),
        "{judged:?}"
    );
    let busy = runs.granted("a", false);
    assert_eq!(busy.says(), "wait InFlight");
}

fn ask(scene: &Scene) -> quorumgate_core::quorum::Disruption {
    match scene.next() {
        quorumgate_core::plan::Next::Act(steps) => steps.iter().next().unwrap().disruption(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn readiness_evidence_of_a_node_that_is_not_ready_is_no_evidence() {
    let scene = Scene::new(3)
        .with("c", on_a_lost_node)
        .in_world(|world| world.policy.evidence = EvidenceMode::Readiness);
    assert_eq!(scene.says(), "wait Evidence");
}

/// The pod's update may be what makes it Ready, and no other pod can go before it.
#[test]
fn ordered_ready_a_serving_leader_that_keeps_all_others_from_going_goes_first() {
    let unready = |m: &mut crate::world::Inhabitant| m.pod_mut(|pod| pod.ready = false);
    let scene = Scene::new(3)
        .with("a", unready)
        .wishing(|d| d.management = PodManagement::OrderedReady);
    let says = scene.says();
    assert!(
        says.starts_with("move leadership from a to member"),
        "{says}"
    );
    assert!(
        says.ends_with("then delete a: it is an outdated leader"),
        "{says}"
    );
}

#[test]
fn an_annotation_takes_no_quorum_from_a_change_that_can_be_rolled() {
    let scene = Scene::new(3)
        .with("b", hung)
        .wishing(|d| d.max_unavailable = quorumgate_core::plan::MaxUnavailable::Members(2))
        .in_world(|world| world.proceed_without_quorum = Some("new".into()));
    assert_eq!(scene.says(), "wait Permission");
}

#[test]
fn a_wait_that_ends_by_time_alone_says_how_long_it_lasts() {
    let remaining = |scene: &Scene| scene.waits_on().remaining();
    let lost = Scene::new(3)
        .with("abc", leaderless)
        .in_world(|world| world.quorum_lost_for = Some(minutes(4)));
    assert_eq!(remaining(&lost), Some(minutes(1)), "{}", lost.says());
    let learning = Scene::new(4)
        .with("d", learner)
        .in_world(|world| world.learners_are_stuck_for(minutes(8)));
    assert_eq!(remaining(&learning), Some(minutes(2)));
    let resting = Scene::new(3).updated("bc").wishing(|desired| {
        desired.handover = quorumgate_core::plan::Handover::Resting {
            remaining: minutes(3),
        };
    });
    assert_eq!(remaining(&resting), Some(minutes(3)));
    let missing = Scene::new(3).with("c", missing);
    assert_eq!(remaining(&missing), None, "it ends when the pod comes");
}

#[test]
fn a_rollout_is_stuck_where_somebody_has_to_do_something() {
    let is_stuck = |scene: &Scene| scene.waits_on().is_stuck();
    let updating = Scene::new(3).updated("c").with("c", crashed);
    assert!(!is_stuck(&updating));
    assert!(is_stuck(&updating.clone().out_for("c", minutes(10))));
    let apart = updating.wishing(|d| d.obstacle = Some(Obstacle::PeerTls(Switch::On)));
    assert!(is_stuck(&apart));
    let failed = WaitingOn::Failed {
        pod: "c".into(),
        because: "forbidden".into(),
    };
    assert!(failed.is_stuck());
    assert_eq!(failed.to_string(), "c could not be taken: forbidden");
}

#[test]
fn nothing_is_planned_for_more_replicas_than_any_etcd_has() {
    let with = |replicas| {
        Scene::new(3)
            .in_world(move |w| w.replicas = replicas)
            .says()
    };
    assert_eq!(with(MOST_REPLICAS + 1), "wait TooManyReplicas");
    assert_eq!(with(MOST_REPLICAS), "wait Joining");
}
