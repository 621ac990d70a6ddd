//! Whom to strike from the Service, and when to put oneself back. No clock and no IO: time is counted in rounds.
//!
//! A strike takes a peer's endpoint out. It is for peers that are gone and cannot do that themselves. Whoever is there undoes it, so a wrong
//! one costs little; but two replicas that strike and return in turns would never end. Four rules end that:
//!
//! - A peer is struck after [`FAILURES`] looks in a row without an answer, and not while another peer that answers now reaches it.
//! - Only a replica strikes whose own endpoint is ready, and it stays so: see [`super::keeper`] for why no Service becomes empty by that.
//! - A struck replica returns at once when a peer reaches it, or when no other endpoint is ready. It stays out while a peer answers that is in
//!   and does not reach it. Otherwise nothing is proven either way: it returns after a delay that grows with every such return.
//! - A peer that returned after this replica's strike while it still does not answer is given more time before the next one, and more after each.

use std::collections::{BTreeMap, BTreeSet};

/// So many looks in a row without an answer make a peer lost.
const FAILURES: u32 = 3;
/// So many answers in a row end the doubts about a peer, or about oneself.
const ANSWERS: u32 = 4;
/// What every needless strike, and every unproven return, multiplies the next delay by.
const GROWTH: u32 = 4;
/// Rounds until the first unproven return.
const FIRST_RETURN: u32 = 2;
/// The longest delay, rounds: ten minutes.
const LONGEST: u32 = 1200;

/// What one look at a peer showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is ready, and reaches these.
    Ready(BTreeSet<String>),
    /// It says that it should not be called.
    Unready,
    /// Nothing, or nothing that could be understood.
    Silent,
}

/// What one round showed. Endpoints go by their pods' names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Whether this replica is ready.
    pub(super) ready: bool,
    /// Every endpoint of the Service, this replica's too, and whether it is ready there.
    pub(super) listed: BTreeMap<String, bool>,
    /// What the peers answered. One that is listed and not here was not asked yet.
    pub(super) answers: BTreeMap<String, Answer>,
}

/// What is to be done after a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether this replica's own endpoint is to be ready.
    pub(super) ready: bool,
    /// Whose endpoint is to be taken out.
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
    /// Rounds since this replica was struck without proof of being reached.
    out: u32,
    /// How many rounds it waits before it returns without proof.
    delay: u32,
    /// Rounds in a row in which it was reached.
    reached: u32,
}

impl Rule {
    pub(super) fn new(me: impl Into<String>) -> Self {
        Self {
            me: me.into(),
            peers: BTreeMap::new(),
            out: 0,
            delay: FIRST_RETURN,
            reached: 0,
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
            if let Some(listed) = round.listed.get(name) {
                let peer = self.peers.entry(name.clone()).or_default();
                peer.note(answer, *listed);
            }
        }
        let stands = round.listed.get(&self.me).copied();
        let ready = round.ready && self.may_be_in(round, stands);
        // A replica that is out itself, or was not seen to be in, keeps nobody's place.
        let strike = if ready && stands == Some(true) {
            self.lost(round)
        } else {
            Vec::new()
        };
        for name in &strike {
            if let Some(peer) = self.peers.get_mut(name) {
                peer.struck = true;
            }
        }
        Verdict { ready, strike }
    }

    fn lost(&self, round: &Round) -> Vec<String> {
        let in_service = |name: &&String| round.listed.get(*name) == Some(&true);
        let lost = self.peers.iter().filter(|(name, peer)| {
            peer.failures >= peer.needed && !is_reached(name, round, &self.me)
        });
        lost.map(|(name, _)| name)
            .filter(in_service)
            .cloned()
            .collect()
    }

    /// Whether this replica's own endpoint may be ready, as far as others are concerned.
    fn may_be_in(&mut self, round: &Round, stands: Option<bool>) -> bool {
        let reached = is_reached(&self.me, round, &self.me);
        self.reached = if reached {
            self.reached.saturating_add(1)
        } else {
            0
        };
        if self.reached >= ANSWERS {
            self.delay = FIRST_RETURN;
        }
        if stands != Some(false) || !round.ready {
            self.out = 0;
            return true;
        }
        let peers = || round.listed.iter().filter(|(name, _)| **name != self.me);
        let alone = peers().all(|(_, ready)| !ready);
        if reached || alone {
            self.out = 0;
            return true;
        }
        let keeps_the_place = |(name, answer): (&String, &Answer)| {
            matches!(answer, Answer::Ready(_)) && round.listed.get(name) == Some(&true)
        };
        if round.answers.iter().any(keeps_the_place) {
            return false;
        }
        self.out += 1;
        if self.out < self.delay {
            return false;
        }
        self.out = 0;
        self.delay = (self.delay * GROWTH).min(LONGEST);
        true
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
    fn note(&mut self, answer: &Answer, listed: bool) {
        match answer {
            Answer::Ready(_) => {
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
        if self.struck && listed && *answer == Answer::Silent {
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
