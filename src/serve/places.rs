//! Places for connections, shared fairly among the addresses that they come from.
//!
//! Every connection is accepted while a place is free. When none is free, a new connection takes
//! the place of one from the address with the most connections; if its own address has as many, it
//! takes one of its own address. So no address, and no fifty addresses, can keep an API server out.
//! Of the address that loses a place, idle connections go first, then those that have not sent
//! their whole request yet, the oldest first. A request that is being answered is cut only where
//! its address has more than its share.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::stage::{SharedStage, Stage};

/// Most TLS handshakes of one address at one time. A handshake is the most expensive work that an
/// unauthenticated peer can ask for; with this limit the handshakes of an address wait for at most
/// so many of each other address.
const HANDSHAKES: usize = 8;

/// The places of one listener.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    occupants: HashMap<u64, Occupant>,
    from: HashMap<IpAddr, Origin>,
}

/// The connections of one address.
#[derive(Debug)]
struct Origin {
    /// The number of its connections.
    count: usize,
    handshakes: Arc<Semaphore>,
}

impl Default for Origin {
    fn default() -> Self {
        Self {
            count: 0,
            handshakes: Arc::new(Semaphore::new(HANDSHAKES)),
        }
    }
}

#[derive(Debug)]
struct Occupant {
    peer: IpAddr,
    stage: SharedStage,
    leave: CancellationToken,
}

/// A place for a connection, which is free again when this value is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    /// Permits for the handshakes of all connections of this address.
    pub(super) handshakes: Arc<Semaphore>,
    /// The stage of the connection.
    pub(super) stage: SharedStage,
    /// Cancelled when the connection has to end for the sake of another.
    pub(super) leave: CancellationToken,
}

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            taken: Mutex::default(),
        })
    }

    /// Takes a place for a connection from `peer`. `leave` is cancelled when the connection loses
    /// the place later. `None`: all places are taken, and `peer` has its share already.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr, leave: CancellationToken) -> Option<Place> {
        let peer = peer.to_canonical();
        let stage = SharedStage::arriving();
        let mut taken = self.taken();
        if taken.occupants.len() >= self.most {
            let loser = taken.loser(peer)?;
            if let Some(occupant) = taken.remove(loser) {
                occupant.leave.cancel();
            }
        }
        let number = taken.next;
        taken.next += 1;
        let origin = taken.from.entry(peer).or_default();
        origin.count += 1;
        let handshakes = Arc::clone(&origin.handshakes);
        let occupant = Occupant {
            peer,
            stage: stage.clone(),
            leave: leave.clone(),
        };
        taken.occupants.insert(number, occupant);
        Some(Place {
            places: Arc::clone(self),
            number,
            handshakes,
            stage,
            leave,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    fn count(&self, peer: IpAddr) -> usize {
        self.from.get(&peer).map_or(0, |origin| origin.count)
    }

    /// The connection that makes room for one more from `newcomer`: one of the address with the
    /// most connections.
    fn loser(&self, newcomer: IpAddr) -> Option<u64> {
        let own = self.count(newcomer);
        let losers = self.occupants.iter().filter_map(|(number, occupant)| {
            let (rank, since) = match occupant.stage.get() {
                Stage::Idle(since) => (0, Some(since)),
                Stage::Arriving(since) | Stage::Head(since) | Stage::Body(since) => {
                    (1, Some(since))
                }
                Stage::Answering => (2, None),
            };
            let count = self.count(occupant.peer);
            let may = if since.is_some() {
                count > own || occupant.peer == newcomer
            } else {
                // With a difference of one the two addresses would only change places.
                count > own + 1
            };
            may.then_some((Reverse(count), rank, since, *number))
        });
        losers.min().map(|(.., number)| number)
    }

    fn remove(&mut self, number: u64) -> Option<Occupant> {
        let occupant = self.occupants.remove(&number)?;
        if let Some(origin) = self.from.get_mut(&occupant.peer) {
            origin.count -= 1;
            if origin.count == 0 {
                self.from.remove(&occupant.peer);
            }
        }
        Some(occupant)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    fn enter(places: &Arc<Places>, last: u8) -> Option<Place> {
        places.enter(address(last), CancellationToken::new())
    }

    fn gone(occupants: &[Place]) -> Vec<usize> {
        let gone = occupants.iter().enumerate();
        gone.filter(|(_, occupant)| occupant.leave.is_cancelled())
            .map(|(number, _)| number)
            .collect()
    }

    #[test]
    fn an_address_that_has_all_places_gives_way_to_another() {
        let places = Places::new(4);
        let mut crowd: Vec<Place> = (0..4).filter_map(|_| enter(&places, 1)).collect();
        assert_eq!(crowd.len(), 4);
        crowd[2].stage.idle();
        let first = enter(&places, 2).unwrap();
        assert_eq!(gone(&crowd), [2], "what is idle goes first");
        let second = enter(&places, 2).unwrap();
        assert_eq!(gone(&crowd), [0, 2], "then what came first");
        // Each address has two places: a new connection takes the place of one of its own address.
        let third = enter(&places, 2).unwrap();
        assert!(first.leave.is_cancelled() && !second.leave.is_cancelled());
        assert_eq!(gone(&crowd), [0, 2]);
        assert!(!third.leave.is_cancelled());
        // A place that was given up is free again.
        crowd.truncate(3);
        assert!(enter(&places, 3).is_some());
        assert_eq!(gone(&crowd), [0, 2]);
    }

    #[test]
    fn whoever_has_one_place_keeps_it_while_others_have_two() {
        let places = Places::new(5);
        let api_server = enter(&places, 200).unwrap();
        let crowd: Vec<Place> = (0..4).filter_map(|n| enter(&places, 1 + n % 2)).collect();
        for place in &crowd {
            place.stage.body();
        }
        let _one_more = enter(&places, 3).unwrap();
        assert_eq!(gone(&crowd).len(), 1);
        assert!(
            !api_server.leave.is_cancelled(),
            "it had shaken no hands yet, and lost its place"
        );
    }

    #[test]
    fn an_answer_is_given_up_only_where_an_address_has_more_than_its_share() {
        let places = Places::new(3);
        let busy: Vec<Place> = (0..3).filter_map(|_| enter(&places, 1)).collect();
        let answers: Vec<_> = busy.iter().map(|place| place.stage.answering()).collect();
        assert!(enter(&places, 1).is_none());
        assert!(gone(&busy).is_empty());
        let other = enter(&places, 2).unwrap();
        let answer = other.stage.answering();
        assert_eq!(gone(&busy).len(), 1);
        assert!(
            enter(&places, 2).is_none(),
            "two and two is no more even than two and one"
        );
        drop((answers, answer));
    }

    #[test]
    fn an_ipv4_address_is_the_same_however_it_is_written() {
        let places = Places::new(2);
        let _plain = enter(&places, 1);
        let mapped = std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        let _mapped = places.enter(mapped.into(), CancellationToken::new());
        assert_eq!(places.taken().from.len(), 1);
    }

    #[test]
    fn nothing_is_left_of_those_that_went() {
        let places = Places::new(2);
        for last in 1..100 {
            drop(enter(&places, last));
        }
        let taken = places.taken();
        assert!(taken.from.is_empty() && taken.occupants.is_empty());
    }
}
