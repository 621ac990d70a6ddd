//! Decides which peers to strike from the Service, and when this replica returns to it. Pure; time
//! is counted in rounds.
//!
//! To *strike* a peer is to set its endpoint to not ready. Strikes are for peers that are gone and
//! cannot do that themselves. A peer that is alive undoes the strike, so a wrong one costs little;
//! but two replicas that strike each other and return in turns would never end. Five rules prevent
//! that:
//!
//! - A peer is struck after [`FAILURES`] failed probes in a row, and not while another peer that
//!   answers now reaches it.
//! - Only a replica whose own endpoint is ready strikes, and it stays ready: see [`super::worker`]
//!   for why no Service becomes empty by that.
//! - A struck replica returns at once when a peer reaches it, or when no other endpoint is ready.
//!   It stays out while a peer answers whose endpoint is ready and which says that it does not
//!   reach this replica.
//! - Otherwise the replica cannot tell whether the peers in the Service do not reach it or are
//!   dead. So it *knocks*: it notes on its own slice that it wants to return, and returns unless a
//!   peer refuses within [`HEARD`] rounds. Dead peers do not refuse. Of the living peers, those
//!   refuse that are in the Service, do not reach the replica, and are reached by some peer
//!   themselves. Where nobody reaches anybody, nothing shows who is cut off, and all may be in the
//!   Service.
//! - A peer that returned while it still does not answer the replica that struck it is given more
//!   time before that replica strikes it again, and more after each strike.

use std::collections::{BTreeMap, BTreeSet};

/// Failed probes in a row that make a peer lost.
const FAILURES: u32 = 3;
/// Successful probes in a row after which a peer is treated like a new one.
const ANSWERS: u32 = 4;
/// The factor by which the next delay grows after every needless strike and every refused knock.
const GROWTH: u32 = 4;
/// Most failed probes that a peer is given, in rounds: ten minutes.
const LONGEST: u32 = 1200;
/// Rounds for which a knock stands before its replica returns: a peer has to see the knock and to
/// refuse it by a write.
const HEARD: u32 = 4;
/// Rounds before the first knock.
const FIRST_PAUSE: u32 = 2;
/// Most rounds between two knocks. Together with [`HEARD`] it bounds how long a replica stays out
/// because of a peer that has died meanwhile.
const LONGEST_PAUSE: u32 = 12;

/// The result of one probe of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PeerAnswer {
    /// The peer is ready, and reaches these peers.
    Ready(BTreeSet<String>),
    /// The peer reports that it is not ready.
    Unready,
    /// The peer is alive, but gives no information: it answers only callers with a client
    /// certificate, or is of a release without the page.
    Mute,
    /// The peer gave no answer, or none that could be understood.
    Silent,
}

/// The state of an endpoint in the Service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum EndpointState {
    /// Ready: API servers call it.
    In,
    /// Ready, but no replica writes it: a leftover (see [`super::leftover`]).
    Leftover,
    /// Not ready, and its replica asks to return.
    Knocks,
    /// Not ready.
    #[default]
    Out,
}

/// The observations of one round. Endpoints are named by pod, those that no replica writes by
/// address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Whether this replica is ready.
    pub(super) ready: bool,
    /// The state of every endpoint of the Service, including this replica's.
    pub(super) listed: BTreeMap<String, EndpointState>,
    /// The answers of the peers. A listed peer that is missing here was not probed yet.
    pub(super) answers: BTreeMap<String, PeerAnswer>,
}

/// The decisions after a round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The state that this replica's own endpoint should have.
    pub(super) place: EndpointState,
    /// The peers to strike, or to refuse where they knock.
    pub(super) strike: Vec<String>,
}

#[derive(Debug)]
struct Peer {
    failures: u32,
    answers: u32,
    /// Failed probes in a row that make this peer lost.
    needed: u32,
    /// Whether this replica struck the peer, and the peer has neither answered nor been given more
    /// time since.
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

/// The state that one replica keeps from round to round.
#[derive(Debug)]
pub(super) struct Rule {
    me: String,
    peers: BTreeMap<String, Peer>,
    /// Whether this replica knocks, and has neither returned nor been refused since.
    knocked: bool,
    /// Rounds waited so far, before a knock or for its refusal.
    waited: u32,
    /// Rounds to wait before a knock.
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

    /// The peers that answered their last probe. This replica tells them to others.
    pub(super) fn reaches(&self) -> impl Iterator<Item = &str> {
        let reached = self.peers.iter().filter(|(_, peer)| peer.answers > 0);
        reached.map(|(name, _)| name.as_str())
    }

    /// Notes a round in which this replica did not reach the API server. It may be cut off from its
    /// peers too, so earlier failures of peers do not count any more.
    pub(super) fn api_unreachable(&mut self) {
        for peer in self.peers.values_mut() {
            peer.failures = 0;
        }
    }

    /// Takes in the results of a round, and decides what to do.
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
        // A replica that is out, or that was not seen in the Service, strikes nobody.
        let strike = if place == EndpointState::In && stands == Some(EndpointState::In) {
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
                Some(EndpointState::In) => peer.needed,
                Some(EndpointState::Leftover) => FAILURES,
                Some(EndpointState::Knocks) if is_reached(&self.me) => FAILURES,
                _ => return false,
            };
            peer.failures >= needed && !is_reached(name)
        });
        lost.map(|(name, _)| name.clone()).collect()
    }

    /// The state that this replica's own endpoint should have.
    fn place(&mut self, round: &Round, stands: Option<EndpointState>) -> EndpointState {
        let is_out = matches!(stands, Some(EndpointState::Out | EndpointState::Knocks));
        let mut peers = round.listed.iter().filter(|(name, _)| **name != self.me);
        let alone =
            peers.all(|(_, place)| !matches!(place, EndpointState::In | EndpointState::Leftover));
        let keeps_the_place = |(name, answer): (&String, &PeerAnswer)| {
            matches!(answer, PeerAnswer::Ready(_))
                && round.listed.get(name) == Some(&EndpointState::In)
        };
        let place = if !round.ready {
            EndpointState::Out
        } else if !is_out {
            EndpointState::In
        } else if alone || is_reached(&self.me, round, &self.me) {
            self.pause = FIRST_PAUSE;
            EndpointState::In
        } else if round.answers.iter().any(keeps_the_place) {
            EndpointState::Out
        } else {
            return self.wait(stands == Some(EndpointState::Knocks));
        };
        (self.knocked, self.waited) = (false, 0);
        place
    }

    /// Waits for the next knock, or for a refusal.
    fn wait(&mut self, knocks: bool) -> EndpointState {
        if knocks != self.knocked {
            if self.knocked {
                self.pause = (self.pause * GROWTH).min(LONGEST_PAUSE);
            }
            (self.knocked, self.waited) = (knocks, 0);
        }
        self.waited += 1;
        if knocks && self.waited >= HEARD {
            (self.knocked, self.waited) = (false, 0);
            return EndpointState::In;
        }
        if !knocks && self.waited >= self.pause {
            (self.knocked, self.waited) = (true, 0);
        }
        if self.knocked {
            EndpointState::Knocks
        } else {
            EndpointState::Out
        }
    }
}

/// Whether some peer that answered in this round, other than `name` and this replica, reaches
/// `name`.
fn is_reached(name: &str, round: &Round, me: &str) -> bool {
    let mut others = round.answers.iter().filter(|(other, _)| *other != name);
    others.any(|(other, answer)| {
        other != me && matches!(answer, PeerAnswer::Ready(reached) if reached.contains(name))
    })
}

impl Peer {
    fn note(&mut self, answer: &PeerAnswer, place: EndpointState) {
        match answer {
            PeerAnswer::Ready(_) | PeerAnswer::Mute => {
                self.failures = 0;
                self.struck = false;
                self.answers = self.answers.saturating_add(1);
                if self.answers >= ANSWERS {
                    self.needed = FAILURES;
                }
            }
            // A peer's own word weighs more than silence. One such answer is not enough, since the
            // peer may only be behind by a moment.
            PeerAnswer::Unready => self.failed(2),
            PeerAnswer::Silent => self.failed(1),
        }
        // The peer came back by itself, so it lives and reaches the API server; only this replica
        // does not reach it.
        if self.struck && place == EndpointState::In && *answer == PeerAnswer::Silent {
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
