//! How long each cluster's members may take to answer, learnt from how long they took.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::etcd::Pace;
use crate::quorum::ClusterRef;

/// More clusters than one process ever serves at once: beyond it everything is learnt anew.
const MOST: usize = 20_000;

/// The pace of each cluster, with the base it was made for.
#[derive(Debug, Default)]
pub(super) struct Paces(Mutex<HashMap<ClusterRef, (Duration, Arc<Pace>)>>);

impl Paces {
    /// The pace of a cluster with this probe timeout.
    pub(super) fn of(&self, cluster: &ClusterRef, base: Duration) -> Arc<Pace> {
        let mut paces = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made_for, pace)) = paces.get(cluster)
            && *made_for == base
        {
            return Arc::clone(pace);
        }
        if paces.len() >= MOST {
            paces.clear();
        }
        let pace = Arc::new(Pace::new(base));
        paces.insert(cluster.clone(), (base, Arc::clone(&pace)));
        pace
    }
}
