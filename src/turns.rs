//! Turns at what only a few may do at one time, and fewer of one namespace, so that nobody keeps
//! other tenants waiting.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The turns.
#[derive(Debug)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    most_of_a_namespace: usize,
    /// The turns of each namespace that has one, or waits for one.
    by_namespace: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A turn, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    _all: Option<OwnedSemaphorePermit>,
    _of_the_namespace: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// So many turns at one time.
    pub(crate) fn new(all: usize, most_of_a_namespace: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            most_of_a_namespace,
            by_namespace: Mutex::default(),
        }
    }

    /// Waits for a turn.
    pub(crate) async fn take(&self, namespace: &str) -> Turn {
        // Whoever waits for its namespace holds nothing of the others'. No semaphore is ever
        // closed.
        let of_the_namespace = self.of(namespace).acquire_owned().await.ok();
        Turn {
            _all: Arc::clone(&self.all).acquire_owned().await.ok(),
            _of_the_namespace: of_the_namespace,
        }
    }

    fn of(&self, namespace: &str) -> Arc<Semaphore> {
        let mut all = self
            .by_namespace
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(namespace).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, known| known.strong_count() > 0);
        let new = Arc::new(Semaphore::new(self.most_of_a_namespace));
        all.insert(namespace.to_owned(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
impl Turns {
    /// The turns that nobody has.
    pub(crate) fn left(&self) -> usize {
        self.all.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_crowd_of_one_namespace_leaves_turns_to_others() {
        let turns = Turns::new(16, 4);
        let take = |namespace: &str| turns.take(namespace).now_or_never();
        let crowd: Vec<_> = std::iter::from_fn(|| take("crowded")).collect();
        assert_eq!(crowd.len(), 4);
        let others: Vec<_> = (0..12)
            .map(|n| take(&format!("other-{n}")).unwrap())
            .collect();
        assert!(take("one-more").is_none());
        drop((crowd, others));
        assert_eq!(turns.left(), 16);
        assert!(take("crowded").is_some());
        assert!(
            turns.by_namespace.lock().unwrap().len() <= 2,
            "the rest is forgotten"
        );
    }
}
