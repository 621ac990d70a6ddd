//! Which objects have a key, so that nobody has to search all objects for it.

use std::borrow::Borrow;
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
    /// Notes that the object has the key.
    pub fn insert(&self, key: K, object: O) {
        self.lock().entry(key).or_default().insert(object);
    }

    /// Forgets that the object has the key.
    pub fn remove<Q>(&self, key: &Q, object: &O)
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let mut index = self.lock();
        let Some(objects) = index.get_mut(key) else {
            return;
        };
        objects.remove(object);
        if objects.is_empty() {
            index.remove(key);
        }
    }

    /// The objects with the key, in order.
    pub fn of<Q>(&self, key: &Q) -> Vec<O>
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
    pub(super) fn of(&self, namespace: &str) -> Option<Vec<String>> {
        let complete = self.complete.load(Ordering::Acquire);
        complete.then(|| self.names.of(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_knows_the_objects_of_a_key_until_they_go() {
        let index = Index::default();
        for (key, object) in [("a", 2), ("a", 1), ("b", 3), ("a", 1)] {
            index.insert(key, object);
        }
        assert_eq!(index.of("a"), [1, 2]);
        index.remove("a", &1);
        index.remove("a", &3);
        index.remove("c", &1);
        assert_eq!((index.of("a"), index.of("b")), (vec![2], vec![3]));
        index.remove("b", &3);
        assert!(!index.lock().contains_key("b"), "nothing is left of it");
    }

    #[test]
    fn names_are_known_only_when_all_are() {
        let names = DisruptionBudgetNames::default();
        names.index().insert("db".to_owned(), "etcd".to_owned());
        assert_eq!(names.of("db"), None);
        names.are_complete();
        assert_eq!(names.of("db"), Some(vec!["etcd".to_owned()]));
        assert_eq!(names.of("web"), Some(vec![]));
    }
}
