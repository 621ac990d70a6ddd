//! Every metric of the process, in one struct that is passed to the code that counts. There is no
//! global registry.

mod clusters;
mod process;
mod reachability;
mod rollout;

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use clusters::{ClusterMetrics, ClusterNumbers, ClusterState};
pub use reachability::ReachabilityMetrics;
pub use rollout::RolloutMetrics;

use self::process::Process;
use super::unauthenticated::UNAUTHENTICATED;

/// Bucket bounds in seconds. A judgement ends within the 4.5 s that the webhook has; a decision
/// without a round trip takes well below 1 ms.
const SECONDS: [f64; 14] = [
    0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.5, 5.0,
];

/// A part of an answer whose duration is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Phase {
    /// Asking the members of etcd.
    Probe,
    /// Reading and writing the ledger.
    Ledger,
    /// From the first byte of a request to its answer.
    Total,
}

impl EncodeLabelValue for Phase {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        let word: &'static str = self.into();
        EncodeLabelValue::encode(&word, encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    hook: &'static str,
    verdict: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rejection {
    hook: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ApiRequest {
    method: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabel {
    phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabel {
    step: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    etcd_namespace: String,
    etcd_cluster: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MadeLabel {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DutyLabel {
    duty: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FeatureLabel {
    name: &'static str,
}

/// A certificate that the gate makes for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum MadeCertificate {
    /// An authority, which signs serving certificates.
    Authority,
    /// A serving certificate.
    Serving,
}

/// Returns the number of lines that the log has dropped.
type LinesDropped = Box<dyn Fn() -> u64 + Send + Sync>;

/// Every metric, and the registry that prints them.
pub struct Metrics {
    /// Metrics of rollouts.
    pub rollout: RolloutMetrics,
    /// Metrics of the endpoints of the gate's own Service.
    pub reachability: ReachabilityMetrics,
    /// Metrics of every cluster, on the replica that leads.
    pub clusters: ClusterMetrics,
    registry: Registry,
    /// The metrics of the process, whose names have no prefix.
    process: Registry,
    decisions: Family<Decision, Counter>,
    rejections: Family<Rejection, Counter>,
    durations: Family<PhaseLabel, Histogram>,
    in_flight: Gauge,
    api_requests: Family<ApiRequest, Counter>,
    ledger_conflicts: Counter,
    probes: Counter,
    probe_failures: Family<ReasonLabel, Counter>,
    certificate_expiry: Gauge<f64, AtomicU64>,
    clock_skew: Gauge<f64, AtomicU64>,
    certificate_reloads: Counter,
    certificate_failures: Counter,
    certificates_made: Family<MadeLabel, Counter>,
    events_dropped: Counter,
    duties_broken: Family<DutyLabel, Counter>,
    replacement_steps: Family<StepLabel, Counter>,
    scale_steps: Family<StepLabel, Counter>,
    recovery_steps: Family<StepLabel, Counter>,
    grants_unused: Family<ClusterLabel, Counter>,
    log_lines_dropped: Counter,
    log_lines_left_out: Counter,
    log: OnceLock<LinesDropped>,
    features: Family<FeatureLabel, Gauge>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Registers every metric, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("quorumgate");
        let mut process = Registry::default();
        process.register_collector(Box::new(Process));
        let mut metrics = Self {
            rollout: RolloutMetrics::registered(&mut registry),
            reachability: ReachabilityMetrics::registered(&mut registry),
            clusters: ClusterMetrics::registered(&mut registry),
            registry,
            process,
            decisions: Family::default(),
            rejections: Family::default(),
            durations: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            in_flight: Gauge::default(),
            api_requests: Family::default(),
            ledger_conflicts: Counter::default(),
            probes: Counter::default(),
            probe_failures: Family::default(),
            certificate_expiry: Gauge::default(),
            clock_skew: Gauge::default(),
            certificate_reloads: Counter::default(),
            certificate_failures: Counter::default(),
            certificates_made: Family::default(),
            events_dropped: Counter::default(),
            duties_broken: Family::default(),
            replacement_steps: Family::default(),
            scale_steps: Family::default(),
            recovery_steps: Family::default(),
            grants_unused: Family::default(),
            log_lines_dropped: Counter::default(),
            log_lines_left_out: Counter::default(),
            log: OnceLock::new(),
            features: Family::default(),
        };
        metrics.register_requests();
        metrics.register_server();
        metrics
    }

    fn register_requests(&mut self) {
        let registry = &mut self.registry;
        registry.register(
            "decisions",
            "Answers given to the API server, by webhook, verdict and reason",
            self.decisions.clone(),
        );
        registry.register(
            "rejected_requests",
            "Requests that were not admission reviews the webhook is for, or came when it was overloaded",
            self.rejections.clone(),
        );
        registry.register_with_unit(
            "phase_duration",
            "Time spent per phase of an answer",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Admission requests being answered now",
            self.in_flight.clone(),
        );
        registry.register(
            "ledger_conflicts",
            "Writes to a budget that the API server refused because somebody else wrote first; each was judged again",
            self.ledger_conflicts.clone(),
        );
        registry.register(
            "api_requests",
            "Requests to the API server, by HTTP method and outcome; a watch counts once, when it begins",
            self.api_requests.clone(),
        );
        registry.register(
            "probes",
            "Members of etcd that were asked for decisions",
            self.probes.clone(),
        );
        registry.register(
            "probe_failures",
            "Questions to etcd members that got no usable answer, by reason",
            self.probe_failures.clone(),
        );
    }

    fn register_server(&mut self) {
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        let registry = &mut self.registry;
        registry.register_with_unit(
            "certificate_expiry_timestamp",
            "When the serving certificate in use ends, Unix time",
            Unit::Seconds,
            self.certificate_expiry.clone(),
        );
        registry.register_with_unit(
            "clock_skew",
            "By how much the clock of this replica's node is at least ahead of the API server that answered last",
            Unit::Seconds,
            self.clock_skew.clone(),
        );
        registry.register(
            "certificate_reloads",
            "Changed serving certificates that were taken into use",
            self.certificate_reloads.clone(),
        );
        registry.register(
            "certificate_reload_failures",
            "Changed serving certificates that were not usable; the one before stays in use",
            self.certificate_failures.clone(),
        );
        registry.register(
            "certificates_made",
            "Certificates that this replica made for the gate, authorities and serving certificates",
            self.certificates_made.clone(),
        );
        registry.register(
            "events_dropped",
            "Kubernetes Events that were not written because too many were waiting or the API server refused them",
            self.events_dropped.clone(),
        );
        registry.register(
            "duties_broken",
            "Times that what is done for one cluster broke off by a bug and was begun again, by duty; the log names the cluster",
            self.duties_broken.clone(),
        );
        registry.register(
            "replacement_steps",
            "Steps by which members were replaced, by what was done",
            self.replacement_steps.clone(),
        );
        registry.register(
            "scale_steps",
            "Steps by which the number of members was changed, by what was done",
            self.scale_steps.clone(),
        );
        registry.register(
            "recovery_steps",
            "Steps by which a lost quorum was recovered, by what was done",
            self.recovery_steps.clone(),
        );
        registry.register(
            "grants_unused",
            "Permissions to delete a member that ended without a delete, by cluster",
            self.grants_unused.clone(),
        );
        registry.register(
            "log_lines_dropped",
            "Lines that are not in the log because whoever reads it is too slow",
            self.log_lines_dropped.clone(),
        );
        registry.register(
            "log_lines_left_out",
            "Failed handshakes and rejected requests that are not in the log because too many came",
            self.log_lines_left_out.clone(),
        );
        registry.register(
            "feature_enabled",
            "Whether a feature is switched on",
            self.features.clone(),
        );
        registry.register("build", "The running build", Info::new(version));
    }

    /// Counts an answer to the API server.
    pub fn decided(&self, hook: &'static str, verdict: &'static str, reason: &'static str) {
        let labels = Decision {
            hook,
            verdict,
            reason,
        };
        self.decisions.get_or_create(&labels).inc();
    }

    /// Shows an answer at zero that was not given yet. Prometheus does not see the first event of a
    /// series that begins with it, so what alerts and dashboards watch has to begin before.
    pub fn expect_decision(&self, hook: &'static str, verdict: &'static str, reason: &'static str) {
        let labels = Decision {
            hook,
            verdict,
            reason,
        };
        drop(self.decisions.get_or_create(&labels));
    }

    /// Shows a rejection at zero that did not happen yet.
    pub fn expect_rejection(&self, hook: &'static str, reason: &'static str) {
        drop(self.rejections.get_or_create(&Rejection { hook, reason }));
    }

    /// Shows a failure of a question to a member at zero that did not happen yet.
    pub fn expect_probe_failure(&self, reason: &'static str) {
        drop(self.probe_failures.get_or_create(&ReasonLabel { reason }));
    }

    /// Shows a step of a replacement at zero that was not made yet.
    pub fn expect_replacement_step(&self, step: &'static str) {
        let labels = StepLabel { step };
        drop(self.replacement_steps.get_or_create(&labels));
    }

    /// Shows a step of a change of the number of members at zero that was not made yet.
    pub fn expect_scale_step(&self, step: &'static str) {
        drop(self.scale_steps.get_or_create(&StepLabel { step }));
    }

    /// Shows a step of a recovery at zero that was not made yet.
    pub fn expect_recovery_step(&self, step: &'static str) {
        drop(self.recovery_steps.get_or_create(&StepLabel { step }));
    }

    /// Counts a request that was refused before it was judged.
    pub fn rejected(&self, hook: &'static str, reason: &'static str) {
        self.rejections
            .get_or_create(&Rejection { hook, reason })
            .inc();
    }

    /// Records the duration of one phase.
    pub fn took(&self, phase: Phase, time: Duration) {
        self.durations
            .get_or_create(&PhaseLabel { phase })
            .observe(time.as_secs_f64());
    }

    /// Counts a request as in flight until the returned value is dropped.
    pub fn answering(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Counts a write to a budget that failed because another writer was first.
    pub fn ledger_conflict(&self) {
        self.ledger_conflicts.inc();
    }

    /// Counts a request to the API server with its outcome.
    pub fn api_answered(&self, method: &'static str, outcome: &'static str) {
        let label = ApiRequest { method, outcome };
        self.api_requests.get_or_create(&label).inc();
    }

    /// Counts members that were asked.
    pub fn probed(&self, members: usize) {
        self.probes
            .inc_by(u64::try_from(members).unwrap_or(u64::MAX));
    }

    /// Counts a question to a member that got no usable answer.
    pub fn probe_failed(&self, reason: &'static str) {
        self.probe_failures
            .get_or_create(&ReasonLabel { reason })
            .inc();
    }

    /// Shows the expiry of the serving certificate that is in use from now on.
    pub fn certificate_in_use(&self, not_after: jiff::Timestamp) {
        self.certificate_expiry
            .set(not_after.as_duration().as_secs_f64());
    }

    /// Shows by how much the clock of this machine is ahead of an API server.
    pub fn clock_ahead(&self, by: jiff::SignedDuration) {
        self.clock_skew.set(by.as_secs_f64());
    }

    /// Counts a changed certificate that was taken into use.
    pub fn certificate_reloaded(&self) {
        self.certificate_reloads.inc();
    }

    /// Counts permissions to delete members of a cluster of which nobody made use.
    pub fn grants_unused(&self, cluster: &crate::quorum::ClusterRef, unused: usize) {
        let unused = u64::try_from(unused).unwrap_or(u64::MAX);
        if unused > 0 {
            let label = ClusterLabel {
                etcd_namespace: cluster.namespace.clone(),
                etcd_cluster: cluster.name.clone(),
            };
            self.grants_unused.get_or_create(&label).inc_by(unused);
        }
    }

    /// Counts a certificate that this replica made.
    pub fn certificate_made(&self, what: MadeCertificate) {
        let what = what.into();
        self.certificates_made
            .get_or_create(&MadeLabel { what })
            .inc();
    }

    /// Counts a changed certificate that cannot be used.
    pub fn certificate_failed(&self) {
        self.certificate_failures.inc();
    }

    /// Counts an Event that was not written.
    pub fn event_dropped(&self) {
        self.events_dropped.inc();
    }

    /// Counts a task of one cluster that broke off by a bug and was begun again.
    pub fn duty_broke(&self, duty: &'static str) {
        self.duties_broken.get_or_create(&DutyLabel { duty }).inc();
    }

    /// Counts a step of the replacement of a member.
    pub fn replacement_step(&self, step: &'static str) {
        let label = StepLabel { step };
        self.replacement_steps.get_or_create(&label).inc();
    }

    /// Counts a step of a change of the number of members.
    pub fn scale_step(&self, step: &'static str) {
        self.scale_steps.get_or_create(&StepLabel { step }).inc();
    }

    /// Counts a step of the recovery of a lost quorum.
    pub fn recovery_step(&self, step: &'static str) {
        self.recovery_steps.get_or_create(&StepLabel { step }).inc();
    }

    /// Sets the function that returns the number of lines the log has dropped since the process
    /// began.
    pub fn watch_log(&self, dropped: impl Fn() -> u64 + Send + Sync + 'static) {
        // Only the first call counts.
        let _ = self.log.set(Box::new(dropped));
    }

    /// Shows whether a feature is switched on.
    pub fn feature(&self, name: &'static str, on: bool) {
        let label = FeatureLabel { name };
        self.features.get_or_create(&label).set(on.into());
    }

    /// The exposition in the text format of `OpenMetrics`.
    pub fn exposition(&self) -> Result<String, fmt::Error> {
        if let Some(dropped) = self.log.get() {
            let counter = self.log_lines_dropped.inner();
            counter.store(dropped(), Ordering::Relaxed);
        }
        let left_out = self.log_lines_left_out.inner();
        left_out.store(UNAUTHENTICATED.left_out(), Ordering::Relaxed);
        let mut page = String::new();
        text::encode_registry(&mut page, &self.process)?;
        text::encode_registry(&mut page, &self.registry)?;
        text::encode_eof(&mut page)?;
        Ok(page)
    }
}

/// A guard for a request in flight.
#[derive(Debug)]
pub struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_the_log_dropped_are_asked_for_when_somebody_looks() {
        let metrics = Metrics::new();
        let dropped = std::sync::Arc::new(AtomicU64::new(0));
        let source = std::sync::Arc::clone(&dropped);
        metrics.watch_log(move || source.load(Ordering::Relaxed));
        for lines in [0, 7, 12] {
            dropped.store(lines, Ordering::Relaxed);
            let page = metrics.exposition().unwrap();
            let line = format!("quorumgate_log_lines_dropped_total {lines}\n");
            assert!(page.contains(&line), "{page}");
        }
    }

    #[test]
    fn the_exposition_names_counters_units_and_labels_by_convention() {
        let metrics = Metrics::new();
        metrics.decided("pods", "wait", "NoHeadroom");
        metrics.feature("QuorumAwareUpdatesWithOnDelete", true);
        metrics.took(Phase::Probe, Duration::from_millis(3));
        metrics.certificate_in_use(jiff::Timestamp::from_second(1_800_000_000).unwrap());
        let page = metrics.exposition().unwrap();
        for line in [
            r#"quorumgate_decisions_total{hook="pods",verdict="wait",reason="NoHeadroom"} 1"#,
            r#"quorumgate_phase_duration_seconds_bucket{le="0.005",phase="probe"} 1"#,
            r#"quorumgate_feature_enabled{name="QuorumAwareUpdatesWithOnDelete"} 1"#,
            "quorumgate_certificate_expiry_timestamp_seconds 1800000000.0",
            concat!(
                r#"quorumgate_build_info{version=""#,
                env!("CARGO_PKG_VERSION"),
                r#""} 1"#
            ),
            "quorumgate_ledger_conflicts_total 0",
            "# EOF",
        ] {
            assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
        }
    }

    #[test]
    fn a_request_counts_as_in_flight_until_it_is_answered() {
        let metrics = Metrics::new();
        let answering = metrics.answering();
        assert!(
            metrics
                .exposition()
                .unwrap()
                .contains("requests_in_flight 1")
        );
        drop(answering);
        assert!(
            metrics
                .exposition()
                .unwrap()
                .contains("requests_in_flight 0")
        );
    }
}
