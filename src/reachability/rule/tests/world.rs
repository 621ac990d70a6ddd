//! A simulation in rounds: each replica sees its peers as far as the network lets it, and all read
//! the same list of endpoints.

use super::*;

/// The health of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    Well,
    /// The process is gone.
    Dead,
    /// The replica reports that it is not ready.
    Unready,
    /// The replica does not reach the API server, and reports that.
    Blind,
}

/// Replicas that probe each other.
pub(super) struct World {
    rules: Vec<Rule>,
    pub(super) places: Vec<EndpointState>,
    /// Whether a probe by the first index gets an answer of the second.
    pub(super) open: Vec<Vec<bool>>,
    pub(super) health: Vec<Health>,
    /// Whether replicas answer only callers with client certificates.
    mute: bool,
    strikes: usize,
    changes: usize,
    knocks: usize,
    pub(super) emptied: bool,
}

fn name(index: usize) -> String {
    format!("gate-{index}")
}

impl World {
    pub(super) fn new(size: usize) -> Self {
        Self::with_mute(size, false)
    }

    pub(super) fn with_mute(size: usize, mute: bool) -> Self {
        let mut world = Self {
            rules: (0..size).map(|index| Rule::new(name(index))).collect(),
            places: vec![EndpointState::In; size],
            open: vec![vec![true; size]; size],
            health: vec![Health::Well; size],
            mute,
            strikes: 0,
            changes: 0,
            knocks: 0,
            emptied: false,
        };
        world.run(5);
        assert_eq!((world.strikes, world.changes), (0, 0));
        world
    }

    fn size(&self) -> usize {
        self.rules.len()
    }

    /// Whether each endpoint is ready.
    pub(super) fn endpoints(&self) -> Vec<bool> {
        self.places
            .iter()
            .map(|place| *place == EndpointState::In)
            .collect()
    }

    /// Whether each replica can judge requests.
    pub(super) fn well(&self) -> Vec<bool> {
        self.health.iter().map(|h| *h == Health::Well).collect()
    }

    /// Whether some endpoint is ready whose replica answers.
    pub(super) fn serves(&self) -> bool {
        let mut both = self.endpoints().into_iter().zip(self.well());
        both.any(|(called, well)| called && well)
    }

    pub(super) fn cut(&mut self, from: usize, to: usize) {
        self.open[from][to] = false;
    }

    pub(super) fn isolate(&mut self, replica: usize) {
        for other in (0..self.size()).filter(|other| *other != replica) {
            self.cut(replica, other);
            self.cut(other, replica);
        }
    }

    pub(super) fn mend(&mut self) {
        self.open = vec![vec![true; self.size()]; self.size()];
    }

    pub(super) fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            for index in 0..self.size() {
                self.turn(index);
            }
        }
    }

    fn answer(&self, to: usize, of: usize) -> PeerAnswer {
        match self.health[of] {
            Health::Dead => PeerAnswer::Silent,
            _ if !self.open[to][of] => PeerAnswer::Silent,
            _ if self.mute => PeerAnswer::Mute,
            Health::Unready | Health::Blind => PeerAnswer::Unready,
            Health::Well => {
                PeerAnswer::Ready(self.rules[of].reaches().map(str::to_owned).collect())
            }
        }
    }

    fn turn(&mut self, index: usize) {
        match self.health[index] {
            Health::Dead => return,
            Health::Blind => return self.rules[index].api_unreachable(),
            Health::Well | Health::Unready => {}
        }
        let size = self.size();
        let round = Round {
            ready: self.health[index] == Health::Well,
            listed: (0..size).map(|i| (name(i), self.places[i])).collect(),
            answers: (0..size)
                .filter(|other| *other != index)
                .map(|other| (name(other), self.answer(index, other)))
                .collect(),
        };
        let verdict = self.rules[index].judge(&round);
        self.changes += usize::from(
            (self.places[index] == EndpointState::In) != (verdict.place == EndpointState::In),
        );
        self.knocks += usize::from(
            self.places[index] != EndpointState::Knocks && verdict.place == EndpointState::Knocks,
        );
        self.places[index] = verdict.place;
        for struck in verdict.strike {
            let other = (0..size).find(|i| name(*i) == struck).unwrap();
            match self.places[other] {
                EndpointState::In => {
                    self.strikes += 1;
                    self.changes += 1;
                }
                EndpointState::Knocks => {}
                place => panic!("{struck} is {place:?} already"),
            }
            self.places[other] = EndpointState::Out;
        }
        self.emptied |= !self.places.contains(&EndpointState::In);
    }

    pub(super) fn changes_within(&mut self, rounds: usize) -> usize {
        self.changes_and_knocks_within(rounds).0
    }

    pub(super) fn changes_and_knocks_within(&mut self, rounds: usize) -> (usize, usize) {
        let before = (self.changes, self.knocks);
        self.run(rounds);
        (self.changes - before.0, self.knocks - before.1)
    }
}
