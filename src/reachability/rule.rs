//! Whom to strike from the Service, and when to put oneself back. No clock and no IO: time is counted in rounds.
//!
//! A strike takes a peer's endpoint out. It is for peers that are gone and cannot do that themselves. Whoever is there undoes it, so a wrong
//! one costs little; but two replicas that strike and return in turns would never end. Five rules end that:
//!
//! - A peer is struck after [`FAILURES`] looks in a row without an answer, and not while another peer that answers now reaches it.
//! - Only a replica strikes whose own endpoint is ready, and it stays so: see [`super::keeper`] for why no Service becomes empty by that.
//! - A struck replica returns at once when a peer reaches it, or when no other endpoint is ready. It stays out while a peer answers that is in
//!   and says that it does not reach it.
//! - Otherwise it cannot tell whether those that are in do not reach it, or are dead. So it knocks: it says on its own slice that it wants to
//!   return, and does so unless somebody turns it away within [`HEARD`] rounds. The dead turn nobody away. Of the living, those do that are in, do
//!   not reach it, and are reached by somebody themselves: where nobody reaches anybody, nothing says who is cut off, and all may be in.
//! - A peer that returned after this replica's strike while it still does not answer is given more time before the next one, and more after each.

use std::collections::{BTreeMap, BTreeSet};

/// So many looks in a row without an answer make a peer lost.
const FAILURES: u32 = 3;
/// So many answers in a row end the doubts about a peer.
const ANSWERS: u32 = 4;
/// What every needless strike, and every knock that is turned away, multiplies the next delay by.
const GROWTH: u32 = 4;
/// The longest time that a peer is given, rounds: ten minutes.
const LONGEST: u32 = 1200;
/// Rounds that a knock stands before its replica returns: a peer has to see it, and to answer by a write.
const HEARD: u32 = 4;
/// Rounds before the first knock.
const FIRST_PAUSE: u32 = 2;
/// Rounds between two knocks at most: with [`HEARD`], how long a replica stays out for one that has died meanwhile.
const LONGEST_PAUSE: u32 = 12;

/// What one look at a peer showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is ready, and reaches these.
    Ready(BTreeSet<String>),
    /// It says that it should not be called.
    Unready,
    /// It is there, and says nothing of itself or of others, because it answers only callers that show a certificate, or knows no such question.
    Mute,
    /// Nothing, or nothing that could be understood.
    Silent,
}

/// How an endpoint stands in the Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// It is called.
    In,
    /// It is called, and no replica keeps it: it was left behind by somebody else.
    Unkept,
    /// It is not called, and its replica asks to return.
    Knocks,
    /// It is not called.
    #[default]
    Out,
}

/// What one round showed. Endpoints go by their pods' names, those that no replica keeps by their addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Whether this replica is ready.
    pub(super) ready: bool,
    /// Every endpoint of the Service, this replica's too.
    pub(super) listed: BTreeMap<String, Place>,
    /// What the peers answered. One that is listed and not here was not asked yet.
    pub(super) answers: BTreeMap<String, Answer>,
}

/// What is to be done after a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// How this replica's own endpoint is to stand.
    pub(super) place: Place,
    /// Whose endpoint is to be taken out, and whose knock to be turned away.
    pub(super) strike: Vec<String>,
}

#[derive(Debug)]
struct Peer {
    failures: u32,
    answers: u32,
    /// How many failures make it lost.
    needed: u32,
    /// Whether this replica struck it, and it has neither answered nor been given more time since.
    struck: bool,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            failures: 0,
            answers: 0,
            needed: FAILURES,
            struck: false,
        }
    }
}

/// What one replica remembers from round to round.
#[derive(Debug)]
pub(super) struct Rule {
    me: String,
    peers: BTreeMap<String, Peer>,
    /// Whether it knocked, and neither returned nor was turned away since.
    knocked: bool,
    /// Rounds that it waits by now: to knock, or to be turned away.
    waited: u32,
    /// How many rounds it waits before it knocks.
    pause: u32,
}

impl Rule {
    pub(super) fn new(me: impl Into<String>) -> Self {
        Self {
            me: me.into(),
            peers: BTreeMap::new(),
            knocked: false,
            waited: 0,
            pause: FIRST_PAUSE,
        }
    }

    /// The peers that answered when they were last asked: what others are told.
    pub(super) fn reaches(&self) -> impl Iterator<Item = &str> {
        let reached = self.peers.iter().filter(|(_, peer)| peer.answers > 0);
        reached.map(|(name, _)| name.as_str())
    }

    /// A round in which this replica did not reach the API server. Who is blind to one thing may be to another: it counts nobody's silence.
    pub(super) fn blind(&mut self) {
        for peer in self.peers.values_mut() {
            peer.failures = 0;
        }
    }

    /// Takes a round in, and says what is to be done.
    pub(super) fn judge(&mut self, round: &Round) -> Verdict {
        self.peers.retain(|name, _| round.listed.contains_key(name));
        for (name, answer) in &round.answers {
            if let Some(place) = round.listed.get(name) {
                let peer = self.peers.entry(name.clone()).or_default();
                peer.note(answer, *place);
            }
        }
        let stands = round.listed.get(&self.me).copied();
        let place = self.place(round, stands);
        // A replica that is out itself, or was not seen to be in, keeps nobody's place.
        let strike = if place == Place::In && stands == Some(Place::In) {
            self.lost(round)
        } else {
            Vec::new()
        };
        for name in &strike {
            if let Some(peer) = self.peers.get_mut(name) {
                peer.struck = true;
            }
        }
        Verdict { place, strike }
    }

    fn lost(&self, round: &Round) -> Vec<String> {
        let is_reached = |name: &str| is_reached(name, round, &self.me);
        let lost = self.peers.iter().filter(|(name, peer)| {
            let needed = match round.listed.get(*name) {
                Some(Place::In) => peer.needed,
                Some(Place::Unkept) => FAILURES,
                Some(Place::Knocks) if is_reached(&self.me) => FAILURES,
                _ => return false,
            };
            peer.failures >= needed && !is_reached(name)
        });
        lost.map(|(name, _)| name.clone()).collect()
    }

    /// How this replica's own endpoint is to stand.
    fn place(&mut self, round: &Round, stands: Option<Place>) -> Place {
        let is_out = matches!(stands, Some(Place::Out | Place::Knocks));
        let mut peers = round.listed.iter().filter(|(name, _)| **name != self.me);
        let alone = peers.all(|(_, place)| !matches!(place, Place::In | Place::Unkept));
        let keeps_the_place = |(name, answer): (&String, &Answer)| {
            matches!(answer, Answer::Ready(_)) && round.listed.get(name) == Some(&Place::In)
        };
        let place = if !round.ready {
            Place::Out
        } else if !is_out {
            Place::In
        } else if alone || is_reached(&self.me, round, &self.me) {
            self.pause = FIRST_PAUSE;
            Place::In
        } else if round.answers.iter().any(keeps_the_place) {
            Place::Out
        } else {
            return self.wait(stands == Some(Place::Knocks));
        };
        (self.knocked, self.waited) = (false, 0);
        place
    }

    /// Waits to knock, or for an answer.
    fn wait(&mut self, knocks: bool) -> Place {
        if knocks != self.knocked {
            if self.knocked {
                self.pause = (self.pause * GROWTH).min(LONGEST_PAUSE);
            }
            (self.knocked, self.waited) = (knocks, 0);
        }
        self.waited += 1;
        if knocks && self.waited >= HEARD {
            (self.knocked, self.waited) = (false, 0);
            return Place::In;
        }
        if !knocks && self.waited >= self.pause {
            (self.knocked, self.waited) = (true, 0);
        }
        if self.knocked {
            Place::Knocks
        } else {
            Place::Out
        }
    }
}

/// Whether a peer other than the one in question, which answered just now, says that it reaches it.
fn is_reached(name: &str, round: &Round, me: &str) -> bool {
    let mut others = round.answers.iter().filter(|(other, _)| *other != name);
    others.any(|(other, answer)| {
        other != me && matches!(answer, Answer::Ready(reached) if reached.contains(name))
    })
}

impl Peer {
    fn note(&mut self, answer: &Answer, place: Place) {
        match answer {
            Answer::Ready(_) | Answer::Mute => {
                self.failures = 0;
                self.struck = false;
                self.answers = self.answers.saturating_add(1);
                if self.answers >= ANSWERS {
                    self.needed = FAILURES;
                }
            }
            // Its own word weighs more than silence, but one that is behind by a moment is not to be taken at it.
            Answer::Unready => self.failed(2),
            Answer::Silent => self.failed(1),
        }
        // It came back by itself, so it is there, and reaches the API server: only this replica does not reach it.
        if self.struck && place == Place::In && *answer == Answer::Silent {
            self.struck = false;
            self.failures = 0;
            self.needed = (self.needed * GROWTH).min(LONGEST);
        }
    }

    fn failed(&mut self, weight: u32) {
        self.failures = self.failures.saturating_add(weight);
        self.answers = 0;
    }
}

#[cfg(test)]
mod tests;
