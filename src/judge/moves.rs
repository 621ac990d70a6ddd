//! When leadership may be moved: at most once per request, and not again within half a minute in one cluster.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::quorum::ClusterRef;

/// How long a cluster is left alone after leadership was moved in it: each move costs its writers a round trip or two.
const REST: Duration = Duration::from_secs(30);

/// The latest move in each cluster, as this replica made them.
#[derive(Debug, Default)]
pub(super) struct Moves(Mutex<HashMap<ClusterRef, Instant>>);

impl Moves {
    /// Takes the right to move leadership in this cluster now, if it is to be had.
    pub(super) fn take(&self, cluster: &ClusterRef, now: Instant) -> bool {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        latest.retain(|_, at| now.saturating_duration_since(*at) < REST);
        if latest.contains_key(cluster) {
            return false;
        }
        latest.insert(cluster.clone(), now);
        true
    }

    /// For how long leadership is still left alone in this cluster; `None` where it may be moved.
    pub(super) fn rests(&self, cluster: &ClusterRef, now: Instant) -> Option<Duration> {
        let latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = latest.get(cluster)?;
        let left = REST.saturating_sub(now.saturating_duration_since(*at));
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leadership_moves_at_most_once_in_half_a_minute_per_cluster() {
        let moves = Moves::default();
        let (one, other) = (ClusterRef::new("a", "etcd"), ClusterRef::new("b", "etcd"));
        let start = crate::clock::Clock::system().instant();
        assert!(moves.take(&one, start));
        assert!(!moves.take(&one, start + Duration::from_secs(29)));
        let left = moves.rests(&one, start + Duration::from_secs(29));
        assert_eq!(left, Some(Duration::from_secs(1)));
        assert_eq!(moves.rests(&one, start + REST), None);
        assert!(moves.take(&other, start + Duration::from_secs(29)));
        assert!(moves.take(&one, start + REST));
    }
}
