//! What a cluster looked like the last time, so that the next reading can ask for everything at once. Never an answer.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use super::volumes::TlsSecrets;
use crate::api::OwnerStatus;
use crate::etcd::Endpoint;
use crate::quorum::ClusterRef;

/// The last look of every cluster that was looked at.
#[derive(Default)]
pub(super) struct Hints(Mutex<HashMap<ClusterRef, Hint>>);

/// What will probably be needed.
#[derive(Debug, Clone, Default)]
pub(super) struct Hint {
    pub(super) selector: Option<String>,
    pub(super) nodes: BTreeSet<String>,
    pub(super) owners: Vec<OwnerStatus>,
    pub(super) tls: Option<TlsSecrets>,
    pub(super) endpoints: Vec<Endpoint>,
}

impl Hints {
    pub(super) fn of(&self, cluster: &ClusterRef) -> Hint {
        let hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hints.get(cluster).cloned().unwrap_or_default()
    }

    pub(super) fn keep(&self, cluster: &ClusterRef, hint: Hint) {
        let mut hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hints.insert(cluster.clone(), hint);
    }

    pub(super) fn forget(&self, cluster: &ClusterRef) {
        let mut hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hints.remove(cluster);
    }
}
