//! Decisions after single rounds, and simulations of several replicas.

use proptest::prelude::*;

use super::*;

mod world;

use world::{Health, World};

/// The longest time, in rounds, for which no endpoint that answers is ready once nothing changes
/// any more: nine seconds. It consists of a pause, a knock that nobody refuses, and a round in
/// which either was missed.
const RECOVERED: usize = 18;

#[test]
fn a_lost_replica_is_out_after_three_rounds_and_stays_out() {
    let mut world = World::new(3);
    world.health[1] = Health::Dead;
    world.run(2);
    assert_eq!(world.endpoints(), [true, true, true]);
    world.run(1);
    assert_eq!(world.endpoints(), [true, false, true]);
    assert_eq!(world.changes_within(2000), 0);
}

#[test]
fn two_that_are_lost_at_once_are_out_and_the_last_one_is_never_struck() {
    let mut world = World::new(3);
    world.health[0] = Health::Dead;
    world.health[2] = Health::Dead;
    world.run(3);
    assert_eq!(world.endpoints(), [false, true, false]);
    // The replica goes on alone. When it dies too, nobody is there to strike it.
    world.health[1] = Health::Dead;
    world.run(100);
    assert_eq!(world.endpoints(), [false, true, false]);
}

#[test]
fn one_that_comes_back_is_in_within_two_rounds_and_is_struck_as_quickly_the_next_time() {
    let mut world = World::new(3);
    for _ in 0..5 {
        world.health[1] = Health::Dead;
        world.run(3);
        assert_eq!(world.endpoints(), [true, false, true]);
        world.health[1] = Health::Well;
        world.run(2);
        assert_eq!(world.endpoints(), [true, true, true]);
        world.run(5);
    }
}

#[test]
fn under_a_one_way_partition_that_another_peer_disproves_nothing_happens() {
    let mut world = World::new(3);
    world.cut(0, 1);
    assert_eq!(world.changes_within(5000), 0);
    // A peer that does die is out as soon as before.
    world.health[1] = Health::Dead;
    world.run(3);
    assert_eq!(world.endpoints(), [true, false, true]);
}

#[test]
fn one_that_nobody_reaches_although_it_reaches_everybody_is_out_and_stays_out() {
    let mut world = World::new(3);
    world.cut(0, 1);
    world.cut(2, 1);
    world.run(3);
    assert_eq!(world.endpoints(), [true, false, true]);
    assert_eq!(world.changes_within(5000), 0);
    // Except where it is the last one.
    world.health[0] = Health::Dead;
    world.health[2] = Health::Dead;
    world.run(20);
    assert!(world.endpoints()[1]);
}

#[test]
fn a_replica_cut_off_from_its_peers_settles() {
    let mut world = World::new(3);
    world.isolate(2);
    world.run(30);
    // Those that reach each other keep it out, and it knocks ever more rarely.
    assert_eq!(world.endpoints(), [true, true, false]);
    let (later, asked) = world.changes_and_knocks_within(1200);
    assert_eq!(later, 0);
    assert!(asked <= 1200 / LONGEST_PAUSE as usize, "{asked}");
    assert!(!world.emptied);
    // The partition ends.
    world.mend();
    world.run(10);
    assert_eq!(world.endpoints(), [true, true, true]);
    assert_eq!(world.changes_within(1000), 0);
}

#[test]
fn two_that_cannot_reach_each_other_both_ways_are_both_in_most_of_the_time() {
    let mut world = World::new(2);
    world.isolate(0);
    world.run(1200);
    let later = world.changes_within(1200);
    assert!(later <= 10, "{later}");
    assert_eq!(world.endpoints(), [true, true]);
    assert!(!world.emptied);
}

#[test]
fn one_that_was_struck_while_it_was_cut_off_returns_when_the_others_are_gone() {
    for partition in [6, 100, 5000] {
        let mut world = World::new(3);
        world.isolate(2);
        world.run(partition);
        assert!(!world.endpoints()[2]);
        world.health[0] = Health::Dead;
        world.health[1] = Health::Dead;
        // The replica cannot tell that from its partition, but nobody refuses its knock any more.
        world.run(RECOVERED);
        assert!(world.endpoints()[2], "after {partition} rounds");
        world.run(5);
        assert_eq!(world.endpoints(), [false, false, true]);
    }
}

#[test]
fn after_a_partition_of_two_however_long_the_one_that_is_left_is_in_at_once() {
    for partition in (1..1500).step_by(13) {
        let mut world = World::new(2);
        world.isolate(0);
        world.run(partition);
        let dies = world.endpoints().iter().position(|called| *called).unwrap();
        world.health[dies] = Health::Dead;
        world.run(RECOVERED);
        assert!(world.serves(), "after {partition} rounds");
    }
}

#[test]
fn replicas_that_answer_only_callers_with_certificates_are_all_in_and_the_dead_are_not() {
    let mut world = World::with_mute(3, true);
    // As after a start or a stall: all are out.
    world.places = vec![EndpointState::Out; 3];
    world.run(RECOVERED);
    assert_eq!(world.endpoints(), [true; 3]);
    assert_eq!(world.changes_within(1000), 0);
    world.health[1] = Health::Dead;
    world.run(3);
    assert_eq!(world.endpoints(), [true, false, true]);
    assert_eq!(world.changes_within(1000), 0);
    world.health[1] = Health::Well;
    world.run(RECOVERED);
    assert_eq!(world.endpoints(), [true; 3]);
}

#[test]
fn those_that_are_out_and_do_not_reach_each_other_do_not_leave_the_place_to_a_dead_one() {
    let mut world = World::new(4);
    for (from, to) in [(2, 1), (3, 1), (3, 2)] {
        world.cut(from, to);
    }
    world.places = vec![
        EndpointState::In,
        EndpointState::Out,
        EndpointState::Out,
        EndpointState::Out,
    ];
    world.health[0] = Health::Dead;
    world.run(RECOVERED + 3);
    assert!(!world.endpoints()[0]);
    assert!(world.endpoints()[1..].iter().any(|ready| *ready));
}

#[test]
fn who_does_not_reach_the_api_server_counts_nobodys_silence() {
    let mut rule = Rule::new("me");
    let round = Round {
        ready: true,
        listed: [
            ("me".into(), EndpointState::In),
            ("peer".into(), EndpointState::In),
        ]
        .into(),
        answers: [("peer".into(), PeerAnswer::Silent)].into(),
    };
    for _ in 0..2 {
        assert!(rule.judge(&round).strike.is_empty());
    }
    rule.api_unreachable();
    for _ in 0..2 {
        assert!(rule.judge(&round).strike.is_empty());
    }
    assert_eq!(rule.judge(&round).strike, ["peer"]);
}

#[test]
fn one_that_says_that_it_should_not_be_called_is_struck_after_two_rounds() {
    let mut rule = Rule::new("me");
    let round = Round {
        ready: true,
        listed: [
            ("me".into(), EndpointState::In),
            ("peer".into(), EndpointState::In),
        ]
        .into(),
        answers: [("peer".into(), PeerAnswer::Unready)].into(),
    };
    assert!(rule.judge(&round).strike.is_empty());
    assert_eq!(rule.judge(&round).strike, ["peer"]);
}

#[test]
fn one_that_was_not_ready_when_it_was_asked_first_is_struck_as_quickly_as_any() {
    let mut rule = Rule::new("me");
    let round = |listed, answer| Round {
        ready: true,
        listed: [("me".into(), EndpointState::In), ("peer".into(), listed)].into(),
        answers: [("peer".into(), answer)].into(),
    };
    rule.judge(&round(EndpointState::Out, PeerAnswer::Unready));
    rule.judge(&round(EndpointState::In, PeerAnswer::Unready));
    rule.judge(&round(
        EndpointState::In,
        PeerAnswer::Ready(BTreeSet::new()),
    ));
    for _ in 0..2 {
        assert!(
            rule.judge(&round(EndpointState::In, PeerAnswer::Silent))
                .strike
                .is_empty()
        );
    }
    assert_eq!(
        rule.judge(&round(EndpointState::In, PeerAnswer::Silent))
            .strike,
        ["peer"]
    );
}

#[test]
fn one_that_is_not_ready_is_out_and_strikes_nobody() {
    let mut rule = Rule::new("me");
    let round = Round {
        ready: false,
        listed: [
            ("me".into(), EndpointState::In),
            ("peer".into(), EndpointState::In),
        ]
        .into(),
        answers: [("peer".into(), PeerAnswer::Silent)].into(),
    };
    for _ in 0..10 {
        assert_eq!(rule.judge(&round), Verdict::default());
    }
}

#[test]
fn an_endpoint_that_no_replica_keeps_is_struck_when_nobody_answers_there_and_keeps_nobodys_place() {
    let mut rule = Rule::new("me");
    let round = |stands, answer| Round {
        ready: true,
        listed: [
            ("me".into(), stands),
            ("10.0.0.7:8443".into(), EndpointState::Leftover),
        ]
        .into(),
        answers: [("10.0.0.7:8443".into(), answer)].into(),
    };
    // Whatever it answers, it reaches no peer: a replica that is out returns beside it.
    let answers = [PeerAnswer::Ready(BTreeSet::new()), PeerAnswer::Mute];
    for answer in answers.clone() {
        let mut stands = EndpointState::Out;
        for _ in 0..RECOVERED {
            stands = rule.judge(&round(stands, answer.clone())).place;
        }
        assert_eq!(stands, EndpointState::In, "{answer:?}");
    }
    for answer in answers {
        for _ in 0..100 {
            assert!(
                rule.judge(&round(EndpointState::In, answer.clone()))
                    .strike
                    .is_empty()
            );
        }
    }
    for _ in 0..2 {
        assert!(
            rule.judge(&round(EndpointState::In, PeerAnswer::Silent))
                .strike
                .is_empty()
        );
    }
    // A write that was lost is made again at once.
    for _ in 0..3 {
        let verdict = rule.judge(&round(EndpointState::In, PeerAnswer::Silent));
        assert_eq!(verdict.strike, ["10.0.0.7:8443"]);
    }
}

#[test]
fn one_that_knocks_is_turned_away_by_those_only_who_are_reached_themselves() {
    let round = |answer| Round {
        ready: true,
        listed: [
            ("me".into(), EndpointState::In),
            ("other".into(), EndpointState::In),
            ("peer".into(), EndpointState::Knocks),
        ]
        .into(),
        answers: [
            ("peer".into(), PeerAnswer::Silent),
            ("other".into(), answer),
        ]
        .into(),
    };
    let mut rule = Rule::new("me");
    for _ in 0..10 {
        assert!(rule.judge(&round(PeerAnswer::Mute)).strike.is_empty());
    }
    let reached =
        |names: &[&str]| PeerAnswer::Ready(names.iter().map(|n| (*n).to_owned()).collect());
    assert_eq!(rule.judge(&round(reached(&["me"]))).strike, ["peer"]);
    // The other peer reaches it.
    assert!(
        rule.judge(&round(reached(&["me", "peer"])))
            .strike
            .is_empty()
    );
}

/// An event: two replicas, two flags, and the rounds that pass after it (see [`happens`]).
type Event = (usize, usize, bool, bool, usize);

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (
        0..5_usize,
        0..5_usize,
        any::<bool>(),
        any::<bool>(),
        0..12_usize,
    );
    prop::collection::vec(event, 0..40)
}

/// Applies an event. With two different replicas, the first flag cuts or restores the way of the
/// first one's probes to the second. With one and the same, the second flag says whether it becomes
/// well or `ill`; one replica always stays well, or the Service might become empty.
fn happens(world: &mut World, (from, to, cut, open, rounds): Event, ill: Health) {
    let size = world.health.len();
    let (from, to) = (from % size, to % size);
    if from == to {
        if open {
            world.health[from] = Health::Well;
        } else if world.well().iter().filter(|well| **well).count() > 1 {
            world.health[from] = ill;
        }
    } else {
        world.open[from][to] = !cut;
    }
    world.run(rounds);
}

proptest! {
    /// Under any cuts and deaths no Service is emptied while a replica runs that was in it. Once
    /// nothing changes any more, the endpoints do not change either.
    #[test]
    fn whatever_happens_the_service_is_not_emptied_and_comes_to_rest(
        size in 2..5_usize,
        events in events(),
    ) {
        let mut world = World::new(size);
        for event in events {
            happens(&mut world, event, Health::Dead);
        }
        prop_assert!(!world.emptied);
        world.run(2400);
        let (later, asked) = world.changes_and_knocks_within(1200);
        prop_assert!(later <= 2 * size * size, "{later} changes in ten minutes");
        prop_assert!(asked <= size * 1200 / LONGEST_PAUSE as usize, "{asked} knocks");
        world.mend();
        world.run(1300);
        prop_assert_eq!(world.endpoints(), world.well());
    }

    /// Soon after the last change an endpoint that answers is ready, and from then on one always
    /// is, after any history, with or without client certificates.
    #[test]
    fn soon_after_the_last_change_somebody_is_called_who_answers_and_ever_after(
        size in 2..5_usize,
        mute in any::<bool>(),
        events in prop::collection::vec((events(), 0..1500_usize, 0..3_usize), 0..3),
    ) {
        let mut world = World::with_mute(size, mute);
        for (events, lasts, ill) in events {
            for event in events {
                happens(&mut world, event, [Health::Dead, Health::Unready, Health::Blind][ill]);
            }
            world.run(lasts);
        }
        world.run(RECOVERED);
        for round in 0..100 {
            prop_assert!(world.serves(), "{:?} of {:?}, {round}", world.places, world.health);
            world.run(1);
        }
        // Where the network is whole, every replica that is well is in the Service.
        world.mend();
        world.run(RECOVERED);
        for (called, well) in world.endpoints().into_iter().zip(world.well()) {
            prop_assert!(called || !well, "{:?} of {:?}", world.places, world.health);
        }
    }
}
