//! Metrics of clusters. Only the replica that leads has any, so that there is one series of each,
//! and only for clusters that have a budget. A cluster has six numbers, the times of its backups
//! where they are known, and one series per condition of its budget, whose labels hold what the
//! condition says now.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::quorum::ClusterRef;

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
pub struct ClusterState<'a> {
    /// Whether refusals are enforced, and not only reported.
    pub enforced: bool,
    /// The number of members with an open grant.
    pub open_grants: i64,
    /// The time of the permission that was given first, of those that are open.
    pub oldest_grant: Option<jiff::Timestamp>,
    /// The type, the status and the reason of each condition.
    pub conditions: Vec<[&'a str; 3]>,
    /// The times of the latest snapshots, each with its kind.
    pub backups: Vec<(&'static str, jiff::Timestamp)>,
}

/// The facts of one cluster, as they are kept for the next scrape.
#[derive(Debug, Clone)]
struct ClusterGauges {
    enforced: bool,
    open_grants: i64,
    /// In seconds of Unix time.
    oldest_grant: Option<f64>,
    conditions: Box<[[Arc<str>; 3]]>,
    /// In seconds of Unix time, each with the kind of the snapshot.
    backups: Box<[(&'static str, f64)]>,
}

/// The part of a cluster that is shown.
#[derive(Debug, Clone, Default)]
struct Cluster {
    numbers: Option<ClusterNumbers>,
    gauges: Option<ClusterGauges>,
}

/// Whether this replica leads, and the clusters that it shows. Their series are written at each
/// scrape: a gauge for each of them, of which ten thousand clusters have more than a hundred
/// thousand, would take most of the memory.
#[derive(Debug, Default)]
struct Shown {
    leads: bool,
    clusters: BTreeMap<ClusterRef, Arc<Cluster>>,
    /// The words of conditions, each once.
    words: HashSet<Arc<str>>,
}

/// The number of words from which on those are forgotten that no condition has any more. The gate
/// knows fewer; whoever writes the status of a budget may use any.
const WORDS: usize = 256;

impl Shown {
    fn word(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.words.get(word) {
            return Arc::clone(known);
        }
        if self.words.len() >= WORDS {
            self.words.retain(|word| Arc::strong_count(word) > 1);
        }
        let word: Arc<str> = word.into();
        self.words.insert(Arc::clone(&word));
        word
    }

    /// The cluster that changes, if this replica leads.
    fn cluster(&mut self, cluster: &ClusterRef) -> Option<&mut Cluster> {
        self.leads.then(|| {
            let cluster = self.clusters.entry(cluster.clone()).or_default();
            Arc::make_mut(cluster)
        })
    }
}

/// Metrics of every cluster.
#[derive(Debug, Default)]
pub struct ClusterMetrics {
    leader: Gauge,
    shown: Arc<Mutex<Shown>>,
}

impl ClusterMetrics {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "leader",
            "1 on the replica that leads: it writes observations and shows the clusters",
            metrics.leader.clone(),
        );
        registry.register_collector(Box::new(Series(Arc::clone(&metrics.shown))));
        metrics
    }

    /// Shows whether this replica leads. One that does not lead shows no clusters, since it does
    /// not see them change.
    pub fn leads(&self, leads: bool) {
        let mut shown = lock(&self.shown);
        shown.leads = leads;
        self.leader.set(leads.into());
        if !leads {
            shown.clusters = BTreeMap::new();
            shown.words = HashSet::new();
        }
    }

    /// Shows the numbers of a cluster, if this replica leads.
    pub fn numbers(&self, cluster: &ClusterRef, numbers: ClusterNumbers) {
        if let Some(cluster) = lock(&self.shown).cluster(cluster) {
            cluster.numbers = Some(numbers);
        }
    }

    /// Shows the other facts of a cluster, if this replica leads.
    pub fn state(&self, cluster: &ClusterRef, state: &ClusterState<'_>) {
        let mut shown = lock(&self.shown);
        if !shown.leads {
            return;
        }
        let conditions = state.conditions.iter();
        let conditions = conditions.map(|condition| condition.map(|word| shown.word(word)));
        let conditions = conditions.collect();
        if let Some(cluster) = shown.cluster(cluster) {
            let seconds = |at: jiff::Timestamp| at.as_duration().as_secs_f64();
            let backups = state.backups.iter();
            cluster.gauges = Some(ClusterGauges {
                enforced: state.enforced,
                open_grants: state.open_grants,
                oldest_grant: state.oldest_grant.map(seconds),
                conditions,
                backups: backups.map(|(kind, at)| (*kind, seconds(*at))).collect(),
            });
        }
    }

    /// Removes a cluster whose budget is gone.
    pub fn forget(&self, cluster: &ClusterRef) {
        lock(&self.shown).clusters.remove(cluster);
    }
}

fn lock(shown: &Mutex<Shown>) -> MutexGuard<'_, Shown> {
    shown.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The series of all clusters, at each scrape.
#[derive(Debug)]
struct Series(Arc<Mutex<Shown>>);

impl Collector for Series {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        // Observers do not wait for a scrape.
        let clusters = lock(&self.0).clusters.clone();
        let clusters = clusters.iter();
        let numbers = clusters
            .clone()
            .filter_map(|(cluster, shown)| Some((labels(cluster), shown.numbers.as_ref()?)));
        let gauges =
            clusters.filter_map(|(cluster, shown)| Some((labels(cluster), shown.gauges.as_ref()?)));
        let encoder = &mut encoder;
        gauge(
            ("cluster_disruptions_allowed", None),
            "Disruptions that a cluster could take now",
            numbers.clone().map(|(of, n)| (of, n.disruptions_allowed)),
            encoder,
        )?;
        gauge(
            ("cluster_voters", None),
            "Voters that count towards a cluster's majority",
            numbers.clone().map(|(of, n)| (of, n.voters)),
            encoder,
        )?;
        gauge(
            ("cluster_serving_voters", None),
            "Voters of a cluster that proved to take part in quorum and have no permission to go",
            numbers.map(|(of, n)| (of, n.serving)),
            encoder,
        )?;
        gauge(
            ("cluster_enforced", None),
            "1 where refusals are enforced, 0 where a cluster's budget only warns",
            gauges.clone().map(|(of, f)| (of, i64::from(f.enforced))),
            encoder,
        )?;
        gauge(
            ("cluster_open_grants", None),
            "Members of a cluster that have a permission to go which is still open",
            gauges.clone().map(|(of, f)| (of, f.open_grants)),
            encoder,
        )?;
        gauge(
            ("cluster_oldest_grant_timestamp", Some(&Unit::Seconds)),
            "When the oldest open permission of a cluster was given, Unix time; absent without one",
            gauges
                .clone()
                .filter_map(|(of, f)| Some((of, f.oldest_grant?))),
            encoder,
        )?;
        let backups = gauges.clone().flat_map(|([namespace, cluster], gauges)| {
            let backups = gauges.backups.iter();
            backups.map(move |(kind, at)| ([namespace, cluster, ("kind", *kind)], *at))
        });
        gauge(
            ("cluster_backup_timestamp", Some(&Unit::Seconds)),
            "When a cluster was last backed up, by the kind of the snapshot, Unix time; absent where no Lease tells it",
            backups,
            encoder,
        )?;
        let conditions = gauges.flat_map(|([namespace, cluster], gauges)| {
            let conditions = gauges.conditions.iter();
            conditions.map(move |[condition, status, reason]| {
                let labels = [
                    namespace,
                    cluster,
                    ("condition", &**condition),
                    ("status", &**status),
                    ("reason", &**reason),
                ];
                (labels, 1)
            })
        });
        gauge(
            ("cluster_condition", None),
            "1 for what each condition of a cluster's budget says now: its status and its reason",
            conditions,
            encoder,
        )
    }
}

fn labels(cluster: &ClusterRef) -> [(&str, &str); 2] {
    [
        ("etcd_namespace", &cluster.namespace),
        ("etcd_cluster", &cluster.name),
    ]
}

/// Writes a gauge with its name and unit, its help, and its series.
fn gauge<L: EncodeLabelSet, N: EncodeGaugeValue>(
    (name, unit): (&str, Option<&Unit>),
    help: &str,
    series: impl Iterator<Item = (L, N)>,
    encoder: &mut DescriptorEncoder<'_>,
) -> std::fmt::Result {
    let help = format!("{help}.");
    let mut gauge = encoder.encode_descriptor(name, &help, unit, MetricType::Gauge)?;
    for (labels, number) in series {
        gauge.encode_family(&labels)?.encode_gauge(&number)?;
    }
    Ok(())
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

    fn state<'a>(status: &'a str, reason: &'a str) -> ClusterState<'a> {
        ClusterState {
            enforced: true,
            open_grants: 1,
            oldest_grant: Some(jiff::Timestamp::from_second(1_800_000_000).unwrap()),
            conditions: vec![["QuorumHealthy", status, reason]],
            backups: vec![("full", jiff::Timestamp::from_second(1_700_000_000).unwrap())],
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
            .state(&cluster, &state("True", "AllServing"));
        metrics
            .clusters
            .state(&cluster, &state("False", "QuorumLost"));
        let of = r#"{etcd_namespace="ns",etcd_cluster="etcd"}"#;
        let expected = [
            format!("quorumgate_cluster_disruptions_allowed{of} 1"),
            format!("quorumgate_cluster_voters{of} 3"),
            format!("quorumgate_cluster_serving_voters{of} 2"),
            format!("quorumgate_cluster_enforced{of} 1"),
            format!("quorumgate_cluster_open_grants{of} 1"),
            format!("quorumgate_cluster_oldest_grant_timestamp_seconds{of} 1800000000.0"),
            r#"quorumgate_cluster_backup_timestamp_seconds{etcd_namespace="ns",etcd_cluster="etcd",kind="full"} 1700000000.0"#.to_owned(),
            r#"quorumgate_cluster_condition{etcd_namespace="ns",etcd_cluster="etcd",condition="QuorumHealthy",status="False",reason="QuorumLost"} 1"#.to_owned(),
        ];
        assert_eq!(series(&metrics), expected);
        let settled = ClusterState {
            oldest_grant: None,
            open_grants: 0,
            ..state("True", "AllServing")
        };
        metrics.clusters.state(&cluster, &settled);
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
            .state(&cluster, &state("True", "AllServing"));
        metrics.clusters.forget(&cluster);
        assert_eq!(series(&metrics), [""; 0]);
    }

    #[test]
    fn words_that_no_condition_has_any_more_are_forgotten() {
        let metrics = Metrics::new();
        let cluster = ClusterRef::new("ns", "etcd");
        metrics.clusters.leads(true);
        for n in 0..3 * WORDS {
            let reason = format!("Reason{n}");
            let state = state("False", &reason);
            metrics.clusters.state(&cluster, &state);
        }
        assert!(lock(&metrics.clusters.shown).words.len() <= WORDS);
        assert!(
            series(&metrics)
                .join("")
                .contains(&format!("Reason{}", 3 * WORDS - 1))
        );
        metrics.clusters.leads(false);
        metrics.clusters.state(&cluster, &state("False", "Unseen"));
        assert_eq!(lock(&metrics.clusters.shown).words.len(), 0);
    }

    #[test]
    fn who_does_not_lead_shows_no_clusters() {
        let metrics = Metrics::new();
        let cluster = ClusterRef::new("ns", "etcd");
        let show = || {
            metrics.clusters.numbers(&cluster, NUMBERS);
            metrics
                .clusters
                .state(&cluster, &state("True", "AllServing"));
        };
        show();
        assert_eq!(series(&metrics), [""; 0]);
        metrics.clusters.leads(true);
        show();
        assert_eq!(series(&metrics).len(), 8);
        metrics.clusters.leads(false);
        assert_eq!(series(&metrics), [""; 0]);
        metrics.clusters.leads(true);
        metrics
            .clusters
            .state(&cluster, &state("False", "QuorumLost"));
        assert_eq!(series(&metrics).len(), 5);
    }
}
