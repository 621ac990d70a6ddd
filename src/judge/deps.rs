//! The parts that the judge works with.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::api::Enforcement;
use crate::clock::Clock;
use crate::etcd::Admin;
use crate::ledger::{Ledger, Page};
use crate::observe::Observer;
use crate::quorum::{OpenMove, Snapshot};
use crate::telemetry::metrics::Metrics;

/// The parts that the judge works with.
pub struct JudgeDeps {
    /// Reads the Kubernetes API and the ledgers.
    pub observer: Arc<Observer>,
    /// Moves leadership.
    pub admin: Admin,
    /// The clock.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Whether refusals are enforced for a cluster that has no budget yet.
    pub enforcement: Enforcement,
    /// Runs work that outlives an answer.
    pub spawn: Box<dyn Fn(Afterwards) + Send + Sync>,
}

/// Work that outlives an answer. It is started again if it breaks off.
pub type Afterwards = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

impl JudgeDeps {
    pub(super) fn ledger(&self) -> &Ledger {
        self.observer.ledger()
    }

    /// The move of leadership that the page records, with what this replica saw of it.
    pub(super) fn open_move(&self, page: &Page, snapshot: &Snapshot) -> Option<OpenMove> {
        self.ledger().seen().open_move(page, snapshot)
    }
}
