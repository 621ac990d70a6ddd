//! Which objects have a key, so that nobody has to search all objects for it.

use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The objects `O` of each key `K`, fed by a watch. It may be behind, and an object whose key
/// changed keeps the old one too, so whoever asks looks at the objects themselves.
#[derive(Debug)]
pub struct Index<K, O>(Mutex<HashMap<K, BTreeSet<O>>>);

impl<K, O> Default for Index<K, O> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, O: Ord + Clone> Index<K, O> {
    /// Notes whether there is an object with the key.
    pub fn note(&self, key: K, object: O, exists: bool) {
        let mut index = self.lock();
        if exists {
            index.entry(key).or_default().insert(object);
        } else if let Entry::Occupied(mut objects) = index.entry(key) {
            objects.get_mut().remove(&object);
            if objects.get().is_empty() {
                objects.remove();
            }
        }
    }

    /// The objects with the key, in order.
    pub fn get<Q>(&self, key: &Q) -> Vec<O>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let index = self.lock();
        index.get(key).into_iter().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, BTreeSet<O>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The names of the `PodDisruptionBudget`s in each namespace, fed by the watch of the reconcile
/// loop. They say which of them to read for an eviction, and decide nothing: each is read again.
#[derive(Debug, Default)]
pub struct DisruptionBudgetNames {
    names: Index<String, String>,
    complete: AtomicBool,
}

impl DisruptionBudgetNames {
    /// The names by namespace.
    pub fn index(&self) -> &Index<String, String> {
        &self.names
    }

    /// Says that the watch has shown every `PodDisruptionBudget` that existed when it began.
    pub fn are_complete(&self) {
        self.complete.store(true, Ordering::Release);
    }

    /// The names in a namespace. `None` until all are known.
    pub(super) fn in_namespace(&self, namespace: &str) -> Option<Vec<String>> {
        let complete = self.complete.load(Ordering::Acquire);
        complete.then(|| self.names.get(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_knows_the_objects_of_a_key_until_they_go() {
        let index = Index::default();
        for (key, object) in [("a", 2), ("a", 1), ("b", 3), ("a", 1)] {
            index.note(key, object, true);
        }
        assert_eq!(index.get("a"), [1, 2]);
        for (key, object) in [("a", 1), ("a", 3), ("c", 1)] {
            index.note(key, object, false);
        }
        assert_eq!((index.get("a"), index.get("b")), (vec![2], vec![3]));
        index.note("b", 3, false);
        assert!(!index.lock().contains_key("b"), "nothing is left of it");
    }

    #[test]
    fn names_are_known_only_when_all_are() {
        let names = DisruptionBudgetNames::default();
        names.index().note("db".to_owned(), "etcd".to_owned(), true);
        assert_eq!(names.in_namespace("db"), None);
        names.are_complete();
        assert_eq!(names.in_namespace("db"), Some(vec!["etcd".to_owned()]));
        assert_eq!(names.in_namespace("web"), Some(vec![]));
    }
}
