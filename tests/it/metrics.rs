//! The metrics, as the program registers them: `docs/metrics.md` is generated from the exposition
//! and from the table below, and the alerts are held against it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use quorumgate::quorum::ClusterRef;
use quorumgate::telemetry::metrics::{
    ClusterNumbers, ClusterState, MadeCertificate, Metrics, Phase,
};

use crate::pages::is_up_to_date;
use crate::sources::files_below;

/// The prefix of all metrics but those of the process.
const PREFIX: &str = "quorumgate_";

/// For each metric, without the prefix, when to look at it.
const WHEN: &[(&str, &str)] = &[
    (
        "api_requests",
        "The API server refuses or throttles the gate (`denied`, `throttled`), or does not answer.",
    ),
    ("build", "Which versions run, as during an upgrade."),
    (
        "certificate_expiry_timestamp_seconds",
        "Alert [QuorumgateCertificateEnds](troubleshoot.md#quorumgatecertificateends).",
    ),
    (
        "certificate_reload_failures",
        "A renewed certificate is not taken into use.",
    ),
    (
        "certificates_made",
        "Who made the gate's own certificates, and when. An authority between two planned ones: its Secret was lost or spoiled; the log says why.",
    ),
    (
        "certificate_reloads",
        "After a renewal: each replica counts it within seconds.",
    ),
    (
        "clock_skew_seconds",
        "Alert [QuorumgateClockOff](troubleshoot.md#quorumgateclockoff).",
    ),
    (
        "cluster_backup_timestamp_seconds",
        "Alert [QuorumgateBackupsOld](troubleshoot.md#quorumgatebackupsold): `time()` minus this is the age.",
    ),
    (
        "cluster_condition",
        "Most alerts of clusters: quorum, force, trust, rollout, cluster id, evidence.",
    ),
    (
        "cluster_disruptions_allowed",
        "Before a drain: how many members may be disrupted now. 0 also while the ledger is not trusted.",
    ),
    (
        "cluster_enforced",
        "Alert [QuorumgateWarnMode](troubleshoot.md#quorumgatewarnmode).",
    ),
    (
        "cluster_oldest_grant_timestamp_seconds",
        "Alert [QuorumgateGrantOld](troubleshoot.md#quorumgategrantold).",
    ),
    (
        "cluster_open_grants",
        "A drain waits though all members serve.",
    ),
    (
        "cluster_serving_voters",
        "Alert [QuorumgateNoHeadroom](troubleshoot.md#quorumgatenoheadroom).",
    ),
    (
        "cluster_voters",
        "The same; the majority is half of it, rounded down, and one.",
    ),
    (
        "decisions",
        "Who is refused and why. `verdict=\"warn\"`: what `Enforce` would refuse.",
    ),
    (
        "duties_broken",
        "Any increase is a bug: report it, with the error line of the log.",
    ),
    (
        "endpoint_failures",
        "A replica cannot read or write EndpointSlices: rights, or the API server.",
    ),
    ("endpoint_ready", "A replica is not called."),
    (
        "endpoints_kept_by_replicas",
        "After an installation: which of the two ways is in use ([Endpoints of the Service](install.md#endpoints-of-the-service)).",
    ),
    ("events_dropped", "Events are missing at pods or budgets."),
    (
        "feature_enabled",
        "Which features are on, and whether all replicas agree.",
    ),
    (
        "grants_unused",
        "Alert [QuorumgateGrantsUnused](troubleshoot.md#quorumgategrantsunused).",
    ),
    (
        "leader",
        "Alert [QuorumgateNoLeader](troubleshoot.md#quorumgatenoleader).",
    ),
    (
        "ledger_conflicts",
        "Answers are slow: many writers for one cluster. Each conflict is judged again.",
    ),
    ("log_lines_dropped", "Lines are missing in the log."),
    (
        "log_lines_left_out",
        "Somebody floods the port; the log shows only some of it.",
    ),
    ("peer_answers", "Which replica cannot reach which."),
    (
        "peer_strikes",
        "Alert [QuorumgateReplicaStruck](troubleshoot.md#quorumgatereplicastruck).",
    ),
    (
        "phase_duration_seconds",
        "Alert [QuorumgateWebhookSlow](troubleshoot.md#quorumgatewebhookslow): the phase says whether it is etcd or the API server.",
    ),
    (
        "probes",
        "How often members are asked; the failures among them are in the next.",
    ),
    (
        "probe_failures",
        "Alert [QuorumgateEvidenceWeak](troubleshoot.md#quorumgateevidenceweak): what goes wrong when members are asked.",
    ),
    ("process_cpu_seconds", "What a replica costs."),
    (
        "process_max_fds",
        "How many callers and members a replica can be connected to.",
    ),
    ("process_open_fds", "Whether it comes near that."),
    (
        "process_resident_memory_bytes",
        "Whether the limit of the Deployment fits the number of clusters ([Benchmarks](evidence.md#load)).",
    ),
    ("process_start_time_seconds", "When a replica began anew."),
    (
        "process_threads",
        "A thread that ends or multiplies is a bug.",
    ),
    (
        "process_virtual_memory_bytes",
        "Rarely: what is reserved need not be in use.",
    ),
    (
        "rejected_requests",
        "Alert [QuorumgateRequestsRejected](troubleshoot.md#quorumgaterequestsrejected).",
    ),
    (
        "replacement_steps",
        "Which step of a replacement is tried again and again.",
    ),
    ("requests_in_flight", "Load; `--max-judgements` bounds it."),
    ("rollout_duration_seconds", "How long rollouts take."),
    (
        "rollout_steps",
        "What a rollout did, and why in that order.",
    ),
    (
        "rollout_waited_seconds",
        "What rollouts wait for, summed up.",
    ),
    (
        "scale_steps",
        "Which step of a change of the number of members is tried again and again.",
    ),
    (
        "recovery_steps",
        "How far the recovery of a lost quorum is, and which step is tried again and again.",
    ),
];

const HEAD: &str = "# Metrics

<!-- Written by `make metrics`; edit the descriptions in src/telemetry/metrics and the last column in tests/it/metrics.rs. -->

`GET /metrics` at port 8080 of each replica, in the format of OpenMetrics. Counters end in `_total`, times are in seconds. Alerts on them: [Alerts](troubleshoot.md#alerts).

How many series there are is bounded: the values of every label are words of the program, but for `etcd_namespace`, `etcd_cluster` and `peer`. Series with `etcd_namespace` and `etcd_cluster` come from the replica
that leads only, and go with the budget. A cluster has six of them, one per kind of snapshot where its backups are known, and one per condition of its budget (at most eighteen). `peer` is a pod of another replica, and goes with it.

The chart has a Grafana dashboard of them (`dashboard.enabled`). Here are its panels while `make demo` plays, drawn by `make dashboard` from a Prometheus that reads both replicas every second:

![The panels of the dashboard: clusters, answers, replicas, rollouts and repairs](dashboard.svg)

| name | type | labels | meaning | when to look |
|---|---|---|---|---|
";

/// A metric as the program exposes it.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

/// All metrics by their names, without `_total` and the like.
pub(crate) struct Known(BTreeMap<String, Metric>);

impl Known {
    /// Shows each metric once, and reads the page.
    pub(crate) fn read() -> Self {
        let page = shown().exposition().unwrap();
        let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
        let mut current = String::new();
        for line in page.lines() {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next()) {
                (Some("#"), Some(word @ ("HELP" | "TYPE"))) => {
                    words.next().unwrap().clone_into(&mut current);
                    let rest = words.next().unwrap();
                    let metric = metrics.entry(current.clone()).or_default();
                    if word == "HELP" {
                        rest.clone_into(&mut metric.help);
                    } else {
                        rest.clone_into(&mut metric.kind);
                    }
                }
                (Some("#") | None, _) => {}
                (Some(series), _) => {
                    let labels = labels_of(series);
                    let labels = labels.filter(|label| *label != "le");
                    let metric = metrics.get_mut(&current).unwrap();
                    metric.labels.extend(labels.map(str::to_owned));
                }
            }
        }
        Self(metrics)
    }

    /// The names of all series with their labels.
    pub(crate) fn series(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut series = BTreeMap::new();
        for (name, metric) in &self.0 {
            let suffixes: &[&str] = match metric.kind.as_str() {
                "counter" => &["_total"],
                "histogram" => &["_bucket", "_sum", "_count"],
                "info" => &["_info"],
                _ => &[""],
            };
            for suffix in suffixes {
                let mut labels = metric.labels.clone();
                if *suffix == "_bucket" {
                    labels.insert("le".to_owned());
                }
                series.insert(format!("{name}{suffix}"), labels);
            }
        }
        series
    }

    fn document(&self) -> String {
        let when: BTreeMap<&str, &str> = WHEN.iter().copied().collect();
        let mut document = HEAD.to_owned();
        for (name, metric) in &self.0 {
            let short = name.strip_prefix(PREFIX).unwrap_or(name);
            let suffix = suffix(&metric.kind);
            let labels: Vec<String> = metric.labels.iter().map(|l| format!("`{l}`")).collect();
            let when = when.get(short).unwrap_or_else(|| {
                panic!("tests/it/metrics.rs does not say when to look at {short}")
            });
            writeln!(
                document,
                "| `{name}{suffix}` | {} | {} | {} | {when} |",
                metric.kind,
                labels.join(", "),
                metric.help.trim_end_matches('.'),
            )
            .unwrap();
        }
        document
    }
}

/// The ending of the name of a metric's series, beyond the name of the metric.
fn suffix(kind: &str) -> &'static str {
    match kind {
        "counter" => "_total",
        "info" => "_info",
        _ => "",
    }
}

/// The exposition in the older text format, which is the one that promtool checks. There a counter
/// and an info are called what their series are called. All values are 0, since those of the
/// process differ each time.
fn older_format() -> String {
    let page = shown().exposition().unwrap();
    let mut older = String::new();
    let mut suffix = "";
    // The help of a metric comes before its type, which tells what the metric is called.
    let mut help = String::new();
    for line in page.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", _, text] => text.clone_into(&mut help),
            ["#", "TYPE", name, kind] => {
                suffix = self::suffix(kind);
                let kind = if kind == "info" { "gauge" } else { kind };
                writeln!(older, "# HELP {name}{suffix} {help}").unwrap();
                writeln!(older, "# TYPE {name}{suffix} {kind}").unwrap();
            }
            ["#", ..] => {}
            _ => {
                let (series, _) = line.rsplit_once(' ').unwrap();
                assert!(series.contains(suffix), "{series} does not have {suffix}");
                writeln!(older, "{series} 0").unwrap();
            }
        }
    }
    older
}

/// The names of the labels in a series like `name{a="1",b="2"}`. No value here has a comma.
fn labels_of(series: &str) -> impl Iterator<Item = &str> {
    let inside = series.split_once('{').map_or("", |(_, labels)| labels);
    let pairs = inside.trim_end_matches('}').split(',');
    pairs.filter_map(|pair| pair.split_once('=').map(|(name, _)| name))
}

/// Metrics of which each has a series.
fn shown() -> Metrics {
    let metrics = Metrics::new();
    metrics.decided("a", "a", "a");
    metrics.rejected("a", "a");
    metrics.took(Phase::Total, Duration::ZERO);
    metrics.api_answered("a", "a");
    metrics.probe_failed("a");
    metrics.duty_broke("a");
    metrics.replacement_step("a");
    metrics.grants_unused(&ClusterRef::new("a", "b"), 1);
    metrics.certificate_made(MadeCertificate::Serving);
    metrics.feature("a", true);
    metrics.reachability.peer("a", true);
    metrics.scale_step("a");
    metrics.recovery_step("a");
    metrics.rollout.step("a", "a");
    metrics.rollout.waited("a", Duration::ZERO);
    metrics.clusters.leads(true);
    let cluster = ClusterRef::new("a", "a");
    let numbers = ClusterNumbers {
        disruptions_allowed: 0,
        voters: 0,
        serving: 0,
    };
    metrics.clusters.numbers(&cluster, numbers);
    let state = ClusterState {
        oldest_grant: Some(jiff::Timestamp::UNIX_EPOCH),
        conditions: vec![["a", "a", "a"]],
        backups: vec![("a", jiff::Timestamp::UNIX_EPOCH)],
        ..ClusterState::default()
    };
    metrics.clusters.state(&cluster, &state);
    metrics
}

#[test]
fn the_document_is_what_the_program_exposes() {
    is_up_to_date("docs/metrics.md", &Known::read().document(), "make metrics");
}

/// `make alerts` has promtool check names and units in this file.
#[test]
fn the_file_for_promtool_is_what_the_program_exposes() {
    is_up_to_date("tests/alerts/metrics.txt", &older_format(), "make metrics");
}

/// A metric without a series is not in the exposition, so it would be missing in the document.
#[test]
fn every_metric_that_is_registered_is_in_the_exposition_and_in_the_table() {
    let mut registered = BTreeSet::new();
    for (_, text) in files_below("src/telemetry", &["rs"]) {
        for (call, unit) in [
            ("registry.register(", ""),
            ("registry.register_with_unit(", "_seconds"),
            (" gauge(", ""),
        ] {
            let calls = text.split(call).skip(1);
            registered.extend(calls.map(|after| {
                let mut parts = after.split('"').skip(1);
                let (name, rest) = (parts.next().unwrap(), parts.next().unwrap());
                let of_seconds = call == " gauge(" && rest.contains("Unit::Seconds");
                format!("{name}{}", if of_seconds { "_seconds" } else { unit })
            }));
        }
    }
    let known = Known::read();
    let own = known.0.keys().filter_map(|name| name.strip_prefix(PREFIX));
    let own: BTreeSet<String> = own.map(str::to_owned).collect();
    assert_eq!(own, registered);
    let told: BTreeSet<&str> = WHEN.iter().map(|(name, _)| *name).collect();
    let exposed = known.0.keys();
    let exposed: BTreeSet<&str> = exposed
        .map(|name| name.strip_prefix(PREFIX).unwrap_or(name))
        .collect();
    assert_eq!(told, exposed);
}
