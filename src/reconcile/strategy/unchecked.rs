//! The StatefulSets whose update strategy has yet to be checked.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::quorum::ClusterRef;

/// The StatefulSets whose update strategy has yet to be checked, because they or their budgets
/// changed.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct Unchecked {
    clusters: Mutex<BTreeSet<ClusterRef>>,
    wake: Notify,
}

impl Unchecked {
    /// Has the strategy of this StatefulSet checked.
    pub(in crate::reconcile) fn add(&self, cluster: ClusterRef) {
        let mut clusters = self.clusters.lock();
        let clusters = clusters.as_mut().unwrap_or_else(|broken| broken.get_mut());
        clusters.insert(cluster);
        self.wake.notify_one();
    }

    pub(super) fn take(&self) -> BTreeSet<ClusterRef> {
        let clusters = self.clusters.lock();
        std::mem::take(&mut *clusters.unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when one is added.
    pub(super) async fn added(&self) {
        self.wake.notified().await;
    }
}
