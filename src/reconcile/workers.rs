//! Workers: the loop of each cluster, and the signals that wake it.
//!
//! A wake that comes while the loop is at work is not lost: it looks once more.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::in_force::OutOfForce;
use crate::quorum::ClusterRef;
use crate::supervise::{Supervisor, TaskEnd};

/// The longest time between two looks. Events may be lost while a watch is down.
pub(super) const RESYNC: Duration = Duration::from_secs(60);

/// The signals that wake the loop of one cluster.
#[derive(Debug, Default)]
pub(super) struct Wake {
    ledger: Notify,
    look: Notify,
    outage: Mutex<Option<OutOfForce>>,
}

impl Wake {
    /// Wakes the loop for a turn at the ledger.
    pub(super) fn ledger(&self) {
        self.ledger.notify_one();
    }

    /// Wakes the loop for a look at the cluster.
    pub(super) fn look(&self) {
        self.look.notify_one();
    }

    /// Returns when the loop is woken for a turn at the ledger.
    pub(super) async fn for_ledger(&self) {
        self.ledger.notified().await;
    }

    /// Returns when the loop is woken for a look.
    pub(super) async fn for_look(&self) {
        self.look.notified().await;
    }

    /// Wakes the loop for a turn at the ledger: the gate was out of force at some moment.
    pub(super) fn out_of_force(&self, why: OutOfForce) {
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        self.ledger();
    }

    /// Takes the outage that has yet to be recorded, if there is one.
    pub(super) fn take_outage(&self) -> Outage<'_> {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        Outage {
            wake: self,
            why: outage.take(),
        }
    }
}

/// An outage that is to be recorded. One that is dropped before that is put back, for whatever
/// reason, and wakes nobody.
pub(super) struct Outage<'a> {
    wake: &'a Wake,
    why: Option<OutOfForce>,
}

impl Outage<'_> {
    /// The reason why the gate was out of force, if it was.
    pub(super) fn why(&self) -> Option<&OutOfForce> {
        self.why.as_ref()
    }

    /// Forgets the record after it was written to the ledger.
    pub(super) fn forget(mut self) {
        self.why = None;
    }
}

impl Drop for Outage<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.why.take() {
            let outage = self.wake.outage.lock();
            outage
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(why);
        }
    }
}

/// A callback for each duty that broke: its cluster, its name, how it broke, and the time until it
/// starts again.
pub(super) type Broke = Arc<dyn Fn(&ClusterRef, &'static str, &TaskEnd, Duration) + Send + Sync>;

/// The workers of all clusters.
pub(super) struct Workers {
    of: BTreeMap<ClusterRef, Worker>,
    supervisor: Supervisor,
    broke: Broke,
    cancel: CancellationToken,
}

struct Worker {
    wake: Arc<Wake>,
    /// A guard that ends the duties with the worker.
    _end: DropGuard,
}

impl Workers {
    pub(super) fn new(supervisor: Supervisor, broke: Broke, cancel: CancellationToken) -> Self {
        Self {
            of: BTreeMap::new(),
            supervisor,
            broke,
            cancel,
        }
    }

    /// Keeps exactly one worker for each of these clusters, and none for others. Returns the others
    /// that had one.
    pub(super) fn set_clusters<F, B, D>(
        &mut self,
        clusters: &[ClusterRef],
        duties: F,
    ) -> Vec<ClusterRef>
    where
        F: Fn(ClusterRef, Arc<Wake>) -> Vec<(&'static str, B)>,
        B: FnMut() -> D + Send + 'static,
        D: Future<Output = ()> + Send + 'static,
    {
        let wanted: HashSet<&ClusterRef> = clusters.iter().collect();
        let unwanted = self.of.keys().filter(|cluster| !wanted.contains(cluster));
        let unwanted: Vec<ClusterRef> = unwanted.cloned().collect();
        for cluster in &unwanted {
            self.leave(cluster);
        }
        for cluster in clusters {
            self.tend(cluster, &duties);
        }
        unwanted
    }

    /// Keeps exactly one worker for this cluster. Each of its duties has a name, and is started
    /// again if it ends.
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
        let broke = {
            let (broke, cluster) = (Arc::clone(&self.broke), Arc::new(cluster.clone()));
            move |duty, how: &TaskEnd, rest| broke(&cluster, duty, how, rest)
        };
        let duties = duties(cluster.clone(), Arc::clone(&wake));
        self.supervisor
            .spawn_duties("duties of a cluster", cancel.clone(), duties, broke);
        let worker = Worker {
            wake,
            _end: cancel.drop_guard(),
        };
        self.of.insert(cluster.clone(), worker);
    }

    /// Ends the worker of this cluster.
    pub(super) fn leave(&mut self, cluster: &ClusterRef) {
        self.of.remove(cluster);
    }

    /// The signals for this cluster's tasks.
    pub(super) fn get(&self, cluster: &ClusterRef) -> Option<&Wake> {
        self.of.get(cluster).map(|worker| worker.wake.as_ref())
    }

    /// The signals for the tasks of all clusters in a namespace.
    pub(super) fn within(&self, namespace: &str) -> impl Iterator<Item = &Wake> {
        self.of
            .range(ClusterRef::new(namespace, "")..)
            .take_while(move |(cluster, _)| cluster.namespace == namespace)
            .map(|(_, worker)| worker.wake.as_ref())
    }

    /// The signals for the tasks of all clusters.
    pub(super) fn all(&self) -> impl Iterator<Item = &Wake> {
        self.of.values().map(|worker| worker.wake.as_ref())
    }
}

#[cfg(test)]
mod tests;
