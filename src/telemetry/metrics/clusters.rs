//! Metrics of clusters. Only the replica that leads has any, so that there is one series of each,
//! and only for clusters that have a budget. A cluster has six numbers, and one series per
//! condition of its budget, whose labels hold what the condition says now.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::quorum::ClusterRef;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    namespace: String,
    cluster: String,
}

impl From<&ClusterRef> for ClusterLabel {
    fn from(cluster: &ClusterRef) -> Self {
        Self {
            namespace: cluster.namespace.clone(),
            cluster: cluster.name.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct ConditionLabel {
    namespace: String,
    cluster: String,
    condition: String,
    status: String,
    reason: String,
}

/// The numbers of one cluster, as the status of its budget shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterNumbers {
    /// Disruptions that would be allowed now.
    pub disruptions_allowed: i64,
    /// Voters that count towards the majority.
    pub voters: i64,
    /// Voters that serve.
    pub serving: i64,
}

/// The other facts of one cluster that its budget shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterState {
    /// Whether refusals are enforced, and not only reported.
    pub enforced: bool,
    /// The number of members with an open grant.
    pub open_grants: i64,
    /// The time of the permission that was given first, of those that are open.
    pub oldest_grant: Option<jiff::Timestamp>,
    /// The type, the status and the reason of each condition.
    pub conditions: Vec<[String; 3]>,
}

/// Whether this replica leads, and the conditions that it shows.
#[derive(Debug, Default)]
struct Shown {
    leads: bool,
    conditions: HashMap<ClusterRef, BTreeSet<ConditionLabel>>,
}

/// Metrics of every cluster.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    /// The lock is held while series of clusters change, so that none is left behind when
    /// leadership ends.
    shown: Mutex<Shown>,
    leader: Gauge,
    disruptions_allowed: Family<ClusterLabel, Gauge>,
    voters: Family<ClusterLabel, Gauge>,
    serving: Family<ClusterLabel, Gauge>,
    enforced: Family<ClusterLabel, Gauge>,
    open_grants: Family<ClusterLabel, Gauge>,
    oldest_grant: Family<ClusterLabel, Gauge<f64, AtomicU64>>,
    conditions: Family<ConditionLabel, Gauge>,
}

impl ClusterMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "leader",
            "1 on the replica that leads: it writes observations and shows the clusters",
            metrics.leader.clone(),
        );
        registry.register(
            "cluster_disruptions_allowed",
            "Disruptions that a cluster could take now",
            metrics.disruptions_allowed.clone(),
        );
        registry.register(
            "cluster_voters",
            "Voters that count towards a cluster's majority",
            metrics.voters.clone(),
        );
        registry.register(
            "cluster_serving_voters",
            "Voters of a cluster that proved to take part in quorum",
            metrics.serving.clone(),
        );
        registry.register(
            "cluster_enforced",
            "1 where refusals are enforced, 0 where a cluster's budget only warns",
            metrics.enforced.clone(),
        );
        registry.register(
            "cluster_open_grants",
            "Members of a cluster that have a permission to go which is still open",
            metrics.open_grants.clone(),
        );
        registry.register_with_unit(
            "cluster_oldest_grant_timestamp",
            "When the oldest open permission of a cluster was given, Unix time; absent without one",
            Unit::Seconds,
            metrics.oldest_grant.clone(),
        );
        registry.register(
            "cluster_condition",
            "1 for what each condition of a cluster's budget says now: its status and its reason",
            metrics.conditions.clone(),
        );
        metrics
    }

    /// Shows whether this replica leads. One that does not lead shows no clusters, since it does
    /// not see them change.
    pub fn leads(&self, leads: bool) {
        let mut shown = self.shown();
        shown.leads = leads;
        self.leader.set(leads.into());
        if !leads {
            shown.conditions.clear();
            self.disruptions_allowed.clear();
            self.voters.clear();
            self.serving.clear();
            self.enforced.clear();
            self.open_grants.clear();
            self.oldest_grant.clear();
            self.conditions.clear();
        }
    }

    /// Shows the numbers of a cluster, if this replica leads.
    pub fn numbers(&self, cluster: &ClusterRef, numbers: ClusterNumbers) {
        let ClusterNumbers {
            disruptions_allowed,
            voters,
            serving,
        } = numbers;
        let shown = self.shown();
        if !shown.leads {
            return;
        }
        let labels = ClusterLabel::from(cluster);
        self.disruptions_allowed
            .get_or_create(&labels)
            .set(disruptions_allowed);
        self.voters.get_or_create(&labels).set(voters);
        self.serving.get_or_create(&labels).set(serving);
    }

    /// Shows the other facts of a cluster, if this replica leads.
    pub fn state(&self, cluster: &ClusterRef, state: ClusterState) {
        let ClusterState {
            enforced,
            open_grants,
            oldest_grant,
            conditions,
        } = state;
        let mut shown = self.shown();
        if !shown.leads {
            return;
        }
        let labels = ClusterLabel::from(cluster);
        self.enforced.get_or_create(&labels).set(enforced.into());
        self.open_grants.get_or_create(&labels).set(open_grants);
        match oldest_grant {
            Some(at) => {
                let at = at.as_duration().as_secs_f64();
                self.oldest_grant.get_or_create(&labels).set(at);
            }
            None => {
                self.oldest_grant.remove(&labels);
            }
        }
        let conditions = conditions.into_iter();
        let conditions = conditions.map(|[condition, status, reason]| ConditionLabel {
            namespace: cluster.namespace.clone(),
            cluster: cluster.name.clone(),
            condition,
            status,
            reason,
        });
        let now: BTreeSet<ConditionLabel> = conditions.collect();
        for condition in &now {
            self.conditions.get_or_create(condition).set(1);
        }
        let before = shown.conditions.insert(cluster.clone(), now.clone());
        for gone in before.unwrap_or_default().difference(&now) {
            self.conditions.remove(gone);
        }
    }

    /// Removes a cluster whose budget is gone.
    pub fn forget(&self, cluster: &ClusterRef) {
        let mut shown = self.shown();
        let labels = ClusterLabel::from(cluster);
        self.disruptions_allowed.remove(&labels);
        self.voters.remove(&labels);
        self.serving.remove(&labels);
        self.enforced.remove(&labels);
        self.open_grants.remove(&labels);
        self.oldest_grant.remove(&labels);
        for gone in shown.conditions.remove(cluster).unwrap_or_default() {
            self.conditions.remove(&gone);
        }
    }

    fn shown(&self) -> std::sync::MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::Metrics;

    const NUMBERS: ClusterNumbers = ClusterNumbers {
        disruptions_allowed: 1,
        voters: 3,
        serving: 2,
    };

    fn state(status: &str, reason: &str) -> ClusterState {
        ClusterState {
            enforced: true,
            open_grants: 1,
            oldest_grant: Some(jiff::Timestamp::from_second(1_800_000_000).unwrap()),
            conditions: vec![["QuorumHealthy", status, reason].map(str::to_owned)],
        }
    }

    /// The series of clusters, in order.
    fn series(metrics: &Metrics) -> Vec<String> {
        let page = metrics.exposition().unwrap();
        let lines = page
            .lines()
            .filter(|l| l.starts_with("quorumgate_cluster_"));
        lines.map(str::to_owned).collect()
    }

    #[test]
    fn a_cluster_has_its_numbers_and_one_series_per_condition() {
        let metrics = Metrics::new();
        let cluster = ClusterRef::new("ns", "etcd");
        metrics.clusters.leads(true);
        metrics.clusters.numbers(&cluster, NUMBERS);
        metrics
            .clusters
            .state(&cluster, state("True", "AllServing"));
        metrics
            .clusters
            .state(&cluster, state("False", "QuorumLost"));
        let of = r#"{namespace="ns",cluster="etcd"}"#;
        let expected = [
            format!("quorumgate_cluster_disruptions_allowed{of} 1"),
            format!("quorumgate_cluster_voters{of} 3"),
            format!("quorumgate_cluster_serving_voters{of} 2"),
            format!("quorumgate_cluster_enforced{of} 1"),
            format!("quorumgate_cluster_open_grants{of} 1"),
            format!("quorumgate_cluster_oldest_grant_timestamp_seconds{of} 1800000000.0"),
            r#"quorumgate_cluster_condition{namespace="ns",cluster="etcd",condition="QuorumHealthy",status="False",reason="QuorumLost"} 1"#.to_owned(),
        ];
        assert_eq!(series(&metrics), expected);
        let settled = ClusterState {
            oldest_grant: None,
            open_grants: 0,
            ..state("True", "AllServing")
        };
        metrics.clusters.state(&cluster, settled);
        assert!(!series(&metrics).join("\n").contains("oldest_grant"));
    }

    #[test]
    fn a_cluster_that_is_gone_leaves_the_exposition() {
        let metrics = Metrics::new();
        let cluster = ClusterRef::new("ns", "etcd");
        metrics.clusters.leads(true);
        metrics.clusters.numbers(&cluster, NUMBERS);
        metrics
            .clusters
            .state(&cluster, state("True", "AllServing"));
        metrics.clusters.forget(&cluster);
        assert_eq!(series(&metrics), [""; 0]);
    }

    #[test]
    fn who_does_not_lead_shows_no_clusters() {
        let metrics = Metrics::new();
        let cluster = ClusterRef::new("ns", "etcd");
        let show = || {
            metrics.clusters.numbers(&cluster, NUMBERS);
            metrics
                .clusters
                .state(&cluster, state("True", "AllServing"));
        };
        show();
        assert_eq!(series(&metrics), [""; 0]);
        metrics.clusters.leads(true);
        show();
        assert_eq!(series(&metrics).len(), 7);
        metrics.clusters.leads(false);
        assert_eq!(series(&metrics), [""; 0]);
        metrics.clusters.leads(true);
        metrics
            .clusters
            .state(&cluster, state("False", "QuorumLost"));
        assert_eq!(series(&metrics).len(), 4);
    }
}
