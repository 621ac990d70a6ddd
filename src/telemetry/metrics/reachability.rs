//! Metrics of the endpoints of the gate's own Service, as this replica sees them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabel {
    peer: String,
}

/// Metrics of the endpoints of the gate's own Service.
#[derive(Debug, Default)]
pub struct ReachabilityMetrics {
    kept_by_replicas: Gauge,
    own: Gauge,
    peers: Family<PeerLabel, Gauge>,
    shown: Mutex<BTreeSet<String>>,
    strikes: Family<PeerLabel, Counter>,
    troubles: Counter,
}

impl ReachabilityMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "endpoints_kept_by_replicas",
            "1 where the replicas keep the endpoints of their Service, 0 where its selector does",
            metrics.kept_by_replicas.clone(),
        );
        registry.register(
            "endpoint_ready",
            "Whether this replica's own endpoint was ready when it was last written",
            metrics.own.clone(),
        );
        registry.register(
            "peer_answers",
            "Whether another replica answered that it is ready when it was last asked",
            metrics.peers.clone(),
        );
        registry.register(
            "peer_strikes",
            "Endpoints of other replicas that this one took out of the Service because they did not answer",
            metrics.strikes.clone(),
        );
        registry.register(
            "endpoint_failures",
            "Rounds in which the endpoints could not be read or written",
            metrics.troubles.clone(),
        );
        metrics
    }

    /// Shows whether the replicas write the endpoints, or the Service's selector does.
    pub fn kept_by_replicas(&self, by_replicas: bool) {
        self.kept_by_replicas.set(by_replicas.into());
    }

    /// Shows whether this replica's own endpoint was ready when it was last written.
    pub fn own(&self, ready: bool) {
        self.own.set(ready.into());
    }

    /// Shows whether the replica `peer` answered that it is ready.
    pub fn peer(&self, peer: &str, answers: bool) {
        let peer = PeerLabel { peer: peer.into() };
        self.peers.get_or_create(&peer).set(answers.into());
        // From 0 on, so that the first strike is seen as an increase.
        drop(self.strikes.get_or_create(&peer));
    }

    /// Removes every peer but these from the exposition.
    pub fn keep_peers<'a>(&self, peers: impl Iterator<Item = &'a String>) {
        let now: BTreeSet<String> = peers.cloned().collect();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in shown.difference(&now) {
            let gone = PeerLabel { peer: gone.clone() };
            self.peers.remove(&gone);
            self.strikes.remove(&gone);
        }
        *shown = now;
    }

    /// Counts an endpoint of `peer` that this replica took out of the Service.
    pub fn struck(&self, peer: &str) {
        let peer = PeerLabel { peer: peer.into() };
        self.strikes.get_or_create(&peer).inc();
    }

    /// Counts a round in which the endpoints could not be read or written.
    pub fn round_failed(&self) {
        self.troubles.inc();
    }
}
