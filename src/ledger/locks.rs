//! A queue for each cluster's ledger inside this process, so that judgements go one at a time.
//!
//! The compare-and-swap alone keeps replicas from overwriting each other. The queue spares the
//! judgements of one process the conflicts with each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use crate::quorum::ClusterRef;

/// The queues, one for each cluster.
#[derive(Debug, Clone, Default)]
pub struct LedgerLocks {
    gates: Arc<Mutex<HashMap<ClusterRef, Gate>>>,
}

#[derive(Debug, Default)]
struct Gate {
    lock: Arc<tokio::sync::Mutex<()>>,
    pending: usize,
}

/// The turn at a cluster's ledger, until it is dropped.
#[derive(Debug)]
pub struct LedgerGuard {
    waited: bool,
    _turn: OwnedMutexGuard<()>,
    _place: Place,
}

/// A place in a queue, given up on drop. So a judgement that runs out of time leaves the queue.
#[derive(Debug)]
struct Place {
    locks: LedgerLocks,
    cluster: ClusterRef,
}

impl LedgerLocks {
    /// Waits for the turn at a cluster's ledger. The caller gives up by dropping the future.
    pub async fn enter(&self, cluster: &ClusterRef) -> LedgerGuard {
        let (place, lock) = self.queue(cluster);
        let (waited, turn) = match Arc::clone(&lock).try_lock_owned() {
            Ok(turn) => (false, turn),
            Err(_) => (true, lock.lock_owned().await),
        };
        LedgerGuard {
            waited,
            _turn: turn,
            _place: place,
        }
    }

    /// The number of judgements of the cluster that are under way or wait for their turn. Reports
    /// let them go first.
    pub fn pending(&self, cluster: &ClusterRef) -> usize {
        let gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        gates.get(cluster).map_or(0, |gate| gate.pending)
    }

    fn queue(&self, cluster: &ClusterRef) -> (Place, Arc<tokio::sync::Mutex<()>>) {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = gates.entry(cluster.clone()).or_default();
        gate.pending = gate.pending.saturating_add(1);
        let place = Place {
            locks: self.clone(),
            cluster: cluster.clone(),
        };
        (place, Arc::clone(&gate.lock))
    }
}

impl LedgerGuard {
    /// Whether another turn had to end first.
    pub fn has_waited(&self) -> bool {
        self.waited
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let gates = &self.locks.gates;
        let mut gates = gates.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(gate) = gates.get_mut(&self.cluster) {
            gate.pending = gate.pending.saturating_sub(1);
            if gate.pending == 0 {
                gates.remove(&self.cluster);
            }
        }
    }
}
