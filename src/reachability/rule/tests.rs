//! Replicas in a world of rounds: each sees the others by what the network lets through, and everybody sees one list of endpoints.

use proptest::prelude::*;

use super::*;

/// Three replicas that probe each other.
struct World {
    rules: Vec<Rule>,
    endpoints: Vec<bool>,
    /// Whether `from` gets an answer of `to`.
    open: Vec<Vec<bool>>,
    /// Whether a replica runs at all.
    alive: Vec<bool>,
    strikes: usize,
    changes: usize,
    emptied: bool,
}

fn name(index: usize) -> String {
    format!("gate-{index}")
}

impl World {
    fn new(size: usize) -> Self {
        let mut world = Self {
            rules: (0..size).map(|index| Rule::new(name(index))).collect(),
            endpoints: vec![true; size],
            open: vec![vec![true; size]; size],
            alive: vec![true; size],
            strikes: 0,
            changes: 0,
            emptied: false,
        };
        world.run(5);
        assert_eq!((world.strikes, world.changes), (0, 0));
        world
    }

    fn cut(&mut self, from: usize, to: usize) {
        self.open[from][to] = false;
    }

    fn isolate(&mut self, replica: usize) {
        for other in (0..self.rules.len()).filter(|other| *other != replica) {
            self.cut(replica, other);
            self.cut(other, replica);
        }
    }

    fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for index in 0..self.rules.len() {
                self.turn(index);
            }
        }
    }

    fn turn(&mut self, index: usize) {
        if !self.alive[index] {
            return;
        }
        let size = self.rules.len();
        let answer = |other: usize| {
            if !self.alive[other] || !self.open[index][other] {
                return Answer::Silent;
            }
            Answer::Ready(self.rules[other].reaches().map(str::to_owned).collect())
        };
        let round = Round {
            ready: true,
            listed: (0..size).map(|i| (name(i), self.endpoints[i])).collect(),
            answers: (0..size)
                .filter(|other| *other != index)
                .map(|other| (name(other), answer(other)))
                .collect(),
        };
        let verdict = self.rules[index].judge(&round);
        if self.endpoints[index] != verdict.ready {
            self.endpoints[index] = verdict.ready;
            self.changes += 1;
        }
        for struck in verdict.strike {
            let other = (0..size).find(|i| name(*i) == struck).unwrap();
            assert!(self.endpoints[other], "{struck} is out already");
            self.endpoints[other] = false;
            self.strikes += 1;
            self.changes += 1;
        }
        self.emptied |= self.endpoints.iter().all(|ready| !ready);
    }

    fn changes_within(&mut self, rounds: usize) -> usize {
        let before = self.changes;
        self.run(rounds);
        self.changes - before
    }
}

#[test]
fn a_lost_replica_is_out_after_three_rounds_and_stays_out() {
    let mut world = World::new(3);
    world.alive[1] = false;
    world.run(2);
    assert_eq!(world.endpoints, [true, true, true]);
    world.run(1);
    assert_eq!(world.endpoints, [true, false, true]);
    assert_eq!(world.changes_within(2000), 0);
}

#[test]
fn two_that_are_lost_at_once_are_out_and_the_last_one_is_never_struck() {
    let mut world = World::new(3);
    world.alive[0] = false;
    world.alive[2] = false;
    world.run(3);
    assert_eq!(world.endpoints, [false, true, false]);
    // It goes on alone, and when it is lost as well nobody is there to strike it.
    world.alive[1] = false;
    world.run(100);
    assert_eq!(world.endpoints, [false, true, false]);
}

#[test]
fn one_that_comes_back_is_in_within_two_rounds_and_is_struck_as_quickly_the_next_time() {
    let mut world = World::new(3);
    for _ in 0..5 {
        world.alive[1] = false;
        world.run(3);
        assert_eq!(world.endpoints, [true, false, true]);
        world.alive[1] = true;
        world.run(2);
        assert_eq!(world.endpoints, [true, true, true]);
        world.run(5);
    }
}

#[test]
fn under_a_one_way_partition_that_another_peer_disproves_nothing_happens() {
    let mut world = World::new(3);
    world.cut(0, 1);
    assert_eq!(world.changes_within(5000), 0);
    // And one that is lost after all is out as soon as before.
    world.alive[1] = false;
    world.run(3);
    assert_eq!(world.endpoints, [true, false, true]);
}

#[test]
fn one_that_nobody_reaches_although_it_reaches_everybody_is_out_and_stays_out() {
    let mut world = World::new(3);
    world.cut(0, 1);
    world.cut(2, 1);
    world.run(3);
    assert_eq!(world.endpoints, [true, false, true]);
    assert_eq!(world.changes_within(5000), 0);
    // Unless it is the last one.
    world.alive[0] = false;
    world.alive[2] = false;
    world.run(20);
    assert!(world.endpoints[1]);
}

#[test]
fn a_replica_cut_off_from_its_peers_settles() {
    let mut world = World::new(3);
    world.isolate(2);
    world.run(1200);
    // Ten minutes later: less than a change in a minute, and ever less.
    let (first, second) = (world.changes_within(1200), world.changes_within(1200));
    assert!(first <= 10 && second <= 10, "{first}, {second}");
    assert!(!world.emptied);
    // The partition ends.
    world.open = vec![vec![true; 3]; 3];
    world.run(10);
    assert_eq!(world.endpoints, [true, true, true]);
    assert_eq!(world.changes_within(1000), 0);
}

#[test]
fn two_that_cannot_reach_each_other_both_ways_settle() {
    let mut world = World::new(2);
    world.isolate(0);
    world.run(1200);
    let later = world.changes_within(1200);
    assert!(later <= 10, "{later}");
    assert!(!world.emptied);
}

#[test]
fn one_that_was_struck_while_it_was_cut_off_returns_when_the_others_are_gone() {
    let mut world = World::new(3);
    world.isolate(2);
    world.run(6);
    world.alive[0] = false;
    world.alive[1] = false;
    // It cannot tell that from its partition, so it waits; but not for ever.
    world.run(1300);
    assert!(world.endpoints[2]);
    assert_eq!(world.endpoints, [false, false, true]);
}

#[test]
fn those_that_are_out_and_do_not_reach_each_other_do_not_leave_the_place_to_a_dead_one() {
    let mut world = World::new(4);
    for (from, to) in [(2, 1), (3, 1), (3, 2)] {
        world.cut(from, to);
    }
    world.endpoints = vec![true, false, false, false];
    world.alive[0] = false;
    world.run(1300);
    assert!(!world.endpoints[0]);
    assert!(world.endpoints[1..].iter().any(|ready| *ready));
}

#[test]
fn who_does_not_reach_the_api_server_counts_nobodys_silence() {
    let mut rule = Rule::new("me");
    let round = Round {
        ready: true,
        listed: [("me".into(), true), ("peer".into(), true)].into(),
        answers: [("peer".into(), Answer::Silent)].into(),
    };
    for _ in 0..2 {
        assert!(rule.judge(&round).strike.is_empty());
    }
    rule.blind();
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
        listed: [("me".into(), true), ("peer".into(), true)].into(),
        answers: [("peer".into(), Answer::Unready)].into(),
    };
    assert!(rule.judge(&round).strike.is_empty());
    assert_eq!(rule.judge(&round).strike, ["peer"]);
}

#[test]
fn one_that_was_not_ready_when_it_was_asked_first_is_struck_as_quickly_as_any() {
    let mut rule = Rule::new("me");
    let round = |listed, answer| Round {
        ready: true,
        listed: [("me".into(), true), ("peer".into(), listed)].into(),
        answers: [("peer".into(), answer)].into(),
    };
    rule.judge(&round(false, Answer::Unready));
    rule.judge(&round(true, Answer::Unready));
    rule.judge(&round(true, Answer::Ready(BTreeSet::new())));
    for _ in 0..2 {
        assert!(rule.judge(&round(true, Answer::Silent)).strike.is_empty());
    }
    assert_eq!(rule.judge(&round(true, Answer::Silent)).strike, ["peer"]);
}

#[test]
fn one_that_is_not_ready_is_out_and_strikes_nobody() {
    let mut rule = Rule::new("me");
    let round = Round {
        ready: false,
        listed: [("me".into(), true), ("peer".into(), true)].into(),
        answers: [("peer".into(), Answer::Silent)].into(),
    };
    for _ in 0..10 {
        assert_eq!(rule.judge(&round), Verdict::default());
    }
}

proptest! {
    /// Whatever is cut and whoever dies, and however often: no Service is emptied while a replica runs that was in it, and once the world
    /// rests, endpoints come to rest, too.
    #[test]
    fn whatever_happens_the_service_is_not_emptied_and_comes_to_rest(
        size in 2..5_usize,
        events in prop::collection::vec((0..5_usize, 0..5_usize, any::<bool>(), any::<bool>(), 0..12_usize), 0..40),
    ) {
        let mut world = World::new(size);
        for (from, to, cut, open, rounds) in events {
            let (from, to) = (from % size, to % size);
            if from == to {
                // Somebody has to run for the Service not to be empty.
                if open || world.alive.iter().filter(|alive| **alive).count() > 1 {
                    world.alive[from] = open;
                }
            } else if cut {
                world.cut(from, to);
            } else {
                world.open[from][to] = true;
            }
            world.run(rounds);
        }
        prop_assert!(!world.emptied);
        world.run(2400);
        let later = world.changes_within(1200);
        prop_assert!(later <= 2 * size * size, "{later} changes in ten minutes");
        let someone = (0..size).any(|i| world.alive[i] && world.endpoints[i]);
        prop_assert!(someone, "{:?} of {:?}", world.endpoints, world.alive);
        world.open = vec![vec![true; size]; size];
        world.run(1300);
        prop_assert_eq!(&world.endpoints, &world.alive);
    }
}
