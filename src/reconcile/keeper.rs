//! One keeper per cluster and duty: a task that looks, does what is due, and sleeps until it is woken or its time has come.
//!
//! Keepers know no order among each other and share nothing but the ledger. A wake that comes while a keeper is at work is not
//! lost: it looks once more.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::force::OutOfForce;
use crate::quorum::ClusterRef;
use crate::supervise::{How, Supervisor};

/// Looks at everything this often although nothing happened: events may be lost while a watch is down.
pub(super) const RESYNC: Duration = Duration::from_secs(60);

/// What wakes the keepers of one cluster.
#[derive(Debug, Default)]
pub(super) struct Wake {
    ledger: Notify,
    observer: Notify,
    rollout: Notify,
    lapse: Mutex<Option<OutOfForce>>,
}

impl Wake {
    /// The ledger may have something due.
    pub(super) fn ledger(&self) {
        self.ledger.notify_one();
    }

    /// There may be something new to see.
    pub(super) fn observer(&self) {
        self.observer.notify_one();
    }

    /// A rollout may have something to do.
    pub(super) fn rollout(&self) {
        self.rollout.notify_one();
    }

    /// The gate was out of force at some moment.
    pub(super) fn lapsed(&self, why: OutOfForce) {
        *self.lapse.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.ledger();
    }

    /// Whether it was since this was last written down.
    pub(super) fn take_lapse(&self) -> Lapse<'_> {
        let mut lapse = self.lapse.lock().unwrap_or_else(PoisonError::into_inner);
        Lapse {
            wake: self,
            why: lapse.take(),
        }
    }

    /// Returns when the ledger's keeper is woken.
    pub(super) async fn for_ledger(&self) {
        self.ledger.notified().await;
    }

    /// Returns when the rollout is woken.
    pub(super) async fn for_rollout(&self) {
        self.rollout.notified().await;
    }

    /// Returns when the observer is woken.
    pub(super) async fn for_observer(&self) {
        self.observer.notified().await;
    }
}

/// A lapse that is to be written down. One that is dropped before is put back, however that came about; nobody is woken by it.
pub(super) struct Lapse<'a> {
    wake: &'a Wake,
    why: Option<OutOfForce>,
}

impl Lapse<'_> {
    /// Why the gate was out of force, if it was.
    pub(super) fn why(&self) -> Option<&OutOfForce> {
        self.why.as_ref()
    }

    /// Forgets it: it stands in the ledger.
    pub(super) fn forget(mut self) {
        self.why = None;
    }
}

impl Drop for Lapse<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.why.take() {
            let lapse = self.wake.lapse.lock();
            lapse
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(why);
        }
    }
}

/// Is told of each duty that broke: whose it is, its name, how it broke, and for how long it rests.
pub(super) type Broke = Arc<dyn Fn(&ClusterRef, &'static str, &How, Duration) + Send + Sync>;

/// The keepers of every cluster.
pub(super) struct Keepers {
    of: BTreeMap<ClusterRef, Keeper>,
    supervisor: Supervisor,
    broke: Broke,
    cancel: CancellationToken,
}

struct Keeper {
    wake: Arc<Wake>,
    /// Ends the duties with the keeper.
    _end: DropGuard,
}

impl Keepers {
    pub(super) fn new(supervisor: Supervisor, broke: Broke, cancel: CancellationToken) -> Self {
        Self {
            of: BTreeMap::new(),
            supervisor,
            broke,
            cancel,
        }
    }

    /// Has exactly one keeper for each of these clusters, and for no other.
    pub(super) fn keep<F, B, D>(&mut self, clusters: &[ClusterRef], duties: F)
    where
        F: Fn(ClusterRef, Arc<Wake>) -> Vec<(&'static str, B)>,
        B: FnMut() -> D + Send + 'static,
        D: Future<Output = ()> + Send + 'static,
    {
        let wanted: HashSet<&ClusterRef> = clusters.iter().collect();
        self.of.retain(|cluster, _| wanted.contains(cluster));
        for cluster in clusters {
            self.tend(cluster, &duties);
        }
    }

    /// Has exactly one keeper for this cluster. Each of its duties has a name, and is begun again where it ends by itself.
    pub(super) fn tend<F, B, D>(&mut self, cluster: &ClusterRef, duties: F)
    where
        F: Fn(ClusterRef, Arc<Wake>) -> Vec<(&'static str, B)>,
        B: FnMut() -> D + Send + 'static,
        D: Future<Output = ()> + Send + 'static,
    {
        if self.of.contains_key(cluster) {
            return;
        }
        let wake = Arc::new(Wake::default());
        let cancel = self.cancel.child_token();
        for (name, duty) in duties(cluster.clone(), Arc::clone(&wake)) {
            let (broke, cluster) = (Arc::clone(&self.broke), cluster.clone());
            let broke = move |how: &How, rest| broke(&cluster, name, how, rest);
            self.supervisor
                .spawn_again(name, cancel.clone(), duty, broke);
        }
        let keeper = Keeper {
            wake,
            _end: cancel.drop_guard(),
        };
        self.of.insert(cluster.clone(), keeper);
    }

    /// Has none for this cluster any more.
    pub(super) fn leave(&mut self, cluster: &ClusterRef) {
        self.of.remove(cluster);
    }

    /// What wakes the keepers of this cluster.
    pub(super) fn of(&self, cluster: &ClusterRef) -> Option<&Wake> {
        self.of.get(cluster).map(|keeper| keeper.wake.as_ref())
    }

    /// What wakes those of every cluster of a namespace.
    pub(super) fn within(&self, namespace: &str) -> impl Iterator<Item = &Wake> {
        self.of
            .range(ClusterRef::new(namespace, "")..)
            .take_while(move |(cluster, _)| cluster.namespace == namespace)
            .map(|(_, keeper)| keeper.wake.as_ref())
    }

    /// What wakes all of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Wake> {
        self.of.values().map(|keeper| keeper.wake.as_ref())
    }
}

#[cfg(test)]
mod tests;
