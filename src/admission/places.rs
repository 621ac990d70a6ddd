//! Places for judgements, shared among the addresses that ask for them.
//!
//! A judgement may take 4.5 s, if others about the same cluster go first. So one caller could
//! occupy all places for as long as it likes. To prevent that, an address gets another place only
//! while it has fewer places than are free. A single address gets half of the places, the next one
//! half of the rest, and an address without any gets one as long as one is free. The requests of
//! all tenants come from the address of the API server, so namespaces share its places in the same
//! way.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::serve::Peer;

/// The places. All requests without a connection count as one address.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// The number of places that each address has. Addresses without any are not in the map.
    by: HashMap<Option<Peer>, usize>,
    /// The same for each namespace of an address.
    within: HashMap<(Option<Peer>, String), usize>,
}

/// A place for one judgement, free again when this value is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    places: &'a Places,
    peer: Option<Peer>,
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            taken: Mutex::default(),
        }
    }

    /// Takes a place for a request from this address. `None` if the address gets none now.
    pub(super) fn take(&self, peer: Option<Peer>) -> Option<Place<'_>> {
        let mut taken = self.taken();
        let free = self.most.saturating_sub(taken.all);
        let own = taken.by.get(&peer).copied().unwrap_or_default();
        if own >= free {
            return None;
        }
        taken.all += 1;
        taken.by.insert(peer, own + 1);
        Some(Place { places: self, peer })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Place<'a> {
    /// The share of a namespace in the places of this address. `None` if it gets no more now, so
    /// that others of the same address get one.
    pub(super) fn within(&self, namespace: &str) -> Option<Share<'a>> {
        let sharer = (self.peer, namespace.to_owned());
        let mut taken = self.places.taken();
        let free = self.places.most.saturating_sub(taken.all);
        let of_address = taken.by.get(&self.peer).copied().unwrap_or_default();
        let own = taken.within.get(&sharer).copied().unwrap_or_default();
        // One without any gets what its address has taken for it.
        if own > 0 && own + of_address > free {
            return None;
        }
        taken.within.insert(sharer.clone(), own + 1);
        let places = self.places;
        Some(Share { places, sharer })
    }
}

/// A namespace's share in the places of an address, free again when this value is dropped.
#[derive(Debug)]
pub(super) struct Share<'a> {
    places: &'a Places,
    sharer: (Option<Peer>, String),
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        give_back(&mut self.places.taken().within, &self.sharer);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        taken.all = taken.all.saturating_sub(1);
        give_back(&mut taken.by, &self.peer);
    }
}

fn give_back<K: Eq + Hash>(places: &mut HashMap<K, usize>, sharer: &K) {
    if let Some(own) = places.get_mut(sharer) {
        *own = own.saturating_sub(1);
        if *own == 0 {
            places.remove(sharer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<'a>(places: &'a Places, from: &str) -> Option<Place<'a>> {
        places.take(Some(Peer::at(from.parse().unwrap())))
    }

    #[test]
    fn an_address_has_half_of_the_places_and_fewer_beside_others() {
        let places = Places::new(12);
        let crowd = |address: &str| -> Vec<Place<'_>> {
            std::iter::from_fn(|| take(&places, address)).collect()
        };
        let first = crowd("10.0.0.1");
        assert_eq!(first.len(), 6);
        assert!(
            take(&places, "::ffff:10.0.0.1").is_none(),
            "the same address"
        );
        let second = crowd("10.0.0.2");
        assert_eq!(second.len(), 3);
        let third = crowd("fd00::3");
        assert_eq!(third.len(), 2);
        let fourth = crowd("fd00::4");
        assert_eq!(fourth.len(), 1);
        assert!(take(&places, "fd00::5").is_none(), "there is none left");
        drop(first);
        assert_eq!(crowd("fd00::5").len(), 3);
        drop((second, third, fourth));
        let taken = places.taken();
        assert_eq!((taken.all, taken.by.len()), (0, 0));
    }

    #[test]
    fn a_namespace_leaves_places_of_its_address_to_others() {
        let places = Places::new(64);
        let crowd = |namespace: &str| -> Vec<_> {
            let next = || {
                let place = take(&places, "10.0.0.1")?;
                let share = place.within(namespace)?;
                Some((place, share))
            };
            std::iter::from_fn(next).collect()
        };
        let first = crowd("tenant");
        assert_eq!(first.len(), 21);
        let second = crowd("other");
        assert_eq!(second.len(), 7);
        assert!(!crowd("third").is_empty());
        let stranger = take(&places, "10.0.0.2").unwrap();
        assert!(stranger.within("tenant").is_some(), "of another address");
        drop((first, second, stranger));
        let taken = places.taken();
        assert_eq!((taken.all, taken.by.len(), taken.within.len()), (0, 0, 0));
    }
}
