//! The command line. Every option can also be given by an environment variable. A bad value is
//! refused before anything starts.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::api::{Enforcement, dns};
use crate::certificates::{SecretNames, Wishes};
use crate::features::{self, Switches};
use crate::reachability::Myself;
use crate::serve::Callers;
use crate::serve::certificate::Files;
use crate::telemetry::logs::{DEFAULT_FILTER, LogFormat};
use crate::telemetry::traces::Collector;

/// Keeps etcd clusters on Kubernetes quorate: asks etcd before a member is disrupted.
#[derive(Debug, Parser)]
#[command(name = "quorumgate", version, max_term_width = 110)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the webhooks and run the controllers.
    ///
    /// KUBECONFIG names the Kubernetes cluster; without it, it is the cluster of this pod. SIGTERM
    /// ends the process after requests in flight are answered.
    Run(Box<Run>),
    /// Print the custom resource definitions, for `kubectl apply -f -`.
    Crds {
        /// Print the definition of `EtcdMember`s instead, which the feature `EtcdMembers` needs.
        #[arg(long)]
        etcd_members: bool,
    },
    /// Ask the gate for its health as API servers reach it: at the address and by the authority
    /// that the webhook configurations name. For `helm test`.
    Check(Check),
    /// Take the gate out of the cluster: the webhook configurations first, then its replicas; then
    /// give back the update strategies, and remove what it made in namespaces of others and its
    /// certificates. Budgets and definitions stay. May be repeated. For the removal by helm.
    Uninstall(Uninstall),
    /// Print the version.
    Version,
}

/// Options of `quorumgate check`.
#[derive(Debug, Clone, Args)]
pub struct Check {
    /// Name of both webhook configurations of the gate.
    #[arg(long, env = "QUORUMGATE_WEBHOOK_CONFIGURATION", value_name = "NAME", default_value = "quorumgate", value_parser = dns_subdomain)]
    pub webhook_configuration: String,

    /// How long to ask again until the gate is well.
    #[arg(long, env = "QUORUMGATE_TIMEOUT", value_name = "DURATION", default_value = "30s", value_parser = up_to_an_hour)]
    pub timeout: Duration,
}

/// Options of `quorumgate uninstall`.
#[derive(Debug, Clone, Args)]
pub struct Uninstall {
    /// Name of both webhook configurations of the gate.
    #[arg(long, env = "QUORUMGATE_WEBHOOK_CONFIGURATION", value_name = "NAME", default_value = "quorumgate", value_parser = dns_subdomain)]
    pub webhook_configuration: String,

    /// Namespace of the gate: of its Lease and of its Deployment.
    #[arg(long, env = "QUORUMGATE_LEASE_NAMESPACE", value_name = "NAMESPACE", default_value = "quorumgate", value_parser = dns_label)]
    pub lease_namespace: String,

    /// Name of the Lease by which the replicas elect a leader. The Secrets of the gate's own
    /// certificates are named after it.
    #[arg(long, env = "QUORUMGATE_LEASE_NAME", value_name = "NAME", default_value = "quorumgate", value_parser = dns_subdomain)]
    pub lease_name: String,

    /// Goes on although a rollout is unfinished. The StatefulSet controller replaces the outdated
    /// pods then, in the order of its own and without asking whether etcd can spare them.
    #[arg(long, env = "QUORUMGATE_UNFINISHED_ROLLOUTS")]
    pub unfinished_rollouts: bool,

    /// Name of the Deployment of the replicas. It is scaled to 0, and its pods are waited for.
    #[arg(long, env = "QUORUMGATE_DEPLOYMENT", value_name = "NAME", default_value = "quorumgate", value_parser = dns_subdomain)]
    pub deployment: String,

    /// Name of the release of helm that is removed. Nothing is removed then that helm did not
    /// install as part of it. The hook of the chart says so, because its Job may also come to a
    /// cluster by somebody who applies rendered manifests.
    #[arg(long, env = "QUORUMGATE_RELEASE", value_name = "NAME", value_parser = dns_subdomain)]
    pub release: Option<String>,

    /// Namespace of the release of helm, if it is not that of the gate (`namespaceOverride` of the
    /// chart).
    #[arg(long, env = "QUORUMGATE_RELEASE_NAMESPACE", value_name = "NAMESPACE", value_parser = dns_label)]
    pub release_namespace: Option<String>,

    /// How long each step may take.
    #[arg(long, env = "QUORUMGATE_TIMEOUT", value_name = "DURATION", default_value = "2m", value_parser = up_to_an_hour)]
    pub timeout: Duration,
}

/// Options of `quorumgate run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// Address of the webhooks, which API servers call by HTTPS. `[::]` stands for every IPv4 and
    /// IPv6 address, or for every IPv4 address on machines without IPv6.
    #[arg(
        long,
        env = "QUORUMGATE_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "[::]:8443",
        help_heading = "Addresses"
    )]
    pub listen: SocketAddr,

    /// Address of /livez, /readyz and /metrics, by plain HTTP.
    #[arg(
        long,
        env = "QUORUMGATE_ADMIN_LISTEN",
        value_name = "ADDRESS:PORT",
        default_value = "[::]:8080",
        help_heading = "Addresses"
    )]
    pub admin_listen: SocketAddr,

    /// PEM file of the serving certificate and its chain. Read again whenever its content changes.
    #[arg(
        long,
        env = "QUORUMGATE_TLS_CERT",
        value_name = "FILE",
        required_unless_present = "own_certificates",
        requires = "tls_key",
        help_heading = "Certificate"
    )]
    pub tls_cert: Option<PathBuf>,

    /// PEM file of the private key of the serving certificate. Read again whenever its content
    /// changes.
    #[arg(
        long,
        env = "QUORUMGATE_TLS_KEY",
        value_name = "FILE",
        requires = "tls_cert",
        help_heading = "Certificate"
    )]
    pub tls_key: Option<PathBuf>,

    /// Make the serving certificate and the authority that signs it, instead of reading them from
    /// files. The replica that leads keeps them in the Secrets NAME-authority and NAME-serving,
    /// where NAME is --lease-name, and writes the authority into both webhook configurations.
    #[arg(long, env = "QUORUMGATE_OWN_CERTIFICATES", conflicts_with_all = ["tls_cert", "tls_key"], requires = "certificate_names", help_heading = "Certificate")]
    pub own_certificates: bool,

    /// With --own-certificates: DNS names and IP addresses, separated by commas, at which API
    /// servers call the gate.
    #[arg(long, env = "QUORUMGATE_CERTIFICATE_NAMES", value_name = "NAME", value_delimiter = ',', value_parser = name_or_address, help_heading = "Certificate")]
    pub certificate_names: Vec<String>,

    /// With --own-certificates: how long a serving certificate lives. It is replaced after two
    /// thirds of that.
    #[arg(long, env = "QUORUMGATE_CERTIFICATE_LIFETIME", value_name = "DURATION", default_value = "2160h", value_parser = lifetime, help_heading = "Certificate")]
    pub certificate_lifetime: Duration,

    /// With --own-certificates: how long an authority lives, at least twice as long as a serving
    /// certificate. It is replaced after two thirds of that, and trusted until its end.
    #[arg(long, env = "QUORUMGATE_AUTHORITY_LIFETIME", value_name = "DURATION", default_value = "8760h", value_parser = lifetime, help_heading = "Certificate")]
    pub authority_lifetime: Duration,

    /// PEM file of the authorities that sign the client certificates of API servers. Callers
    /// without such a certificate are refused. Without this option every caller that reaches the
    /// port is answered. Read again whenever its content changes.
    #[arg(
        long,
        env = "QUORUMGATE_CLIENT_CA",
        value_name = "FILE",
        help_heading = "Certificate"
    )]
    pub client_ca: Option<PathBuf>,

    /// Common names or DNS names, separated by commas, of which a client certificate has to carry
    /// one. Needed where the authority of --client-ca signs certificates for others too.
    #[arg(long, env = "QUORUMGATE_CLIENT_NAMES", value_name = "NAME", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new(), requires = "client_ca", help_heading = "Certificate")]
    pub client_names: Vec<String>,

    /// Namespaces to look after, separated by commas. Default: all.
    #[arg(long, env = "QUORUMGATE_NAMESPACES", value_name = "NAMESPACE", value_delimiter = ',', value_parser = dns_label, help_heading = "Scope")]
    pub namespaces: Vec<String>,

    /// Enforcement that is written into new budgets. `Warn` allows everything and reports what it
    /// would have denied. The chart and the manifests set `Warn`. Budgets that exist keep their
    /// own.
    #[arg(long, env = "QUORUMGATE_DEFAULT_ENFORCEMENT", value_name = "ENFORCEMENT", value_enum, default_value_t = Enforcement::Enforce, help_heading = "Scope")]
    pub default_enforcement: Enforcement,

    /// Most clusters that are enrolled in one namespace. A StatefulSet beyond that gets an Event
    /// instead of a budget, and its pods have to stay until you write a budget for it. Budgets that
    /// exist stay.
    #[arg(long, env = "QUORUMGATE_MAX_CLUSTERS_PER_NAMESPACE", value_name = "NUMBER", default_value_t = 100, value_parser = clusters, help_heading = "Scope")]
    pub max_clusters_per_namespace: usize,

    /// Most rollouts that take serving members at one time, over all clusters. The next begins when
    /// one is complete or is paused, of the namespace with the fewest under way. By default any
    /// number.
    #[arg(
        long,
        env = "QUORUMGATE_MAX_ROLLOUTS",
        value_name = "NUMBER",
        help_heading = "Scope"
    )]
    pub max_rollouts: Option<NonZeroUsize>,

    /// Name of the validating and of the mutating webhook configuration that call this gate. While
    /// one of them is missing or was only just created, the gate knows that disruptions may have
    /// passed unasked, and does not trust its ledgers.
    #[arg(long, env = "QUORUMGATE_WEBHOOK_CONFIGURATION", value_name = "NAME", default_value = "quorumgate", value_parser = dns_subdomain, help_heading = "Scope")]
    pub webhook_configuration: String,

    /// Namespace of the gate: of the Lease by which the replicas elect a leader, and of --service.
    /// The leader writes observations and rolls updates out; safety does not depend on it.
    #[arg(long, env = "QUORUMGATE_LEASE_NAMESPACE", value_name = "NAMESPACE", default_value = "quorumgate", value_parser = dns_label, help_heading = "Replicas")]
    pub lease_namespace: String,

    /// Name of that Lease.
    #[arg(long, env = "QUORUMGATE_LEASE_NAME", value_name = "NAME", default_value = "quorumgate", value_parser = dns_subdomain, help_heading = "Replicas")]
    pub lease_name: String,

    /// Name of this replica in the Lease and in Events. Default: the host name.
    #[arg(long, env = "QUORUMGATE_IDENTITY", value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = "Replicas")]
    pub identity: Option<String>,

    /// Accept any username of this process, for development with one's own kubeconfig. Without this
    /// option the username has to be a service account's, because requests under the gate's
    /// username count as its own steps: no override applies to them.
    #[arg(long, env = "QUORUMGATE_ANY_USERNAME", help_heading = "Replicas")]
    pub any_username: bool,

    /// Name of the Service that API servers call, in the gate's own namespace. Where the Service
    /// has no selector, each replica writes its own endpoint and takes out the endpoints of
    /// replicas that do not answer. Without this option the gate writes no endpoints.
    #[arg(long, env = "QUORUMGATE_SERVICE", value_name = "NAME", value_parser = dns_label, requires_all = ["pod_name", "pod_uid", "pod_ip"], help_heading = "Replicas")]
    pub service: Option<String>,

    /// Name of the pod that this replica runs in. Needed with --service.
    #[arg(long, env = "QUORUMGATE_POD_NAME", value_name = "NAME", value_parser = dns_subdomain, help_heading = "Replicas")]
    pub pod_name: Option<String>,

    /// UID of that pod, which owns the endpoint of this replica. Needed with --service.
    #[arg(long, env = "QUORUMGATE_POD_UID", value_name = "UID", value_parser = clap::builder::NonEmptyStringValueParser::new(), help_heading = "Replicas")]
    pub pod_uid: Option<String>,

    /// IP address of that pod. Needed with --service.
    #[arg(
        long,
        env = "QUORUMGATE_POD_IP",
        value_name = "ADDRESS",
        help_heading = "Replicas"
    )]
    pub pod_ip: Option<IpAddr>,

    /// Node of that pod.
    #[arg(long, env = "QUORUMGATE_NODE_NAME", value_name = "NAME", value_parser = dns_subdomain, help_heading = "Replicas")]
    pub node_name: Option<String>,

    /// How long a grant stays open when its delete was not seen to happen. Has to exceed the time
    /// that any request lives in an API server (60 s by default), and to be the same for all
    /// replicas.
    #[arg(long, env = "QUORUMGATE_SETTLE_TIME", value_name = "DURATION", default_value = "120s", value_parser = settle_time, help_heading = "Times")]
    pub settle_time: Duration,

    /// How long a member may take to answer a probe, where its budget does not say. Rises by itself
    /// with the latency of recent reads, up to 1.5 s.
    #[arg(long, env = "QUORUMGATE_PROBE_TIMEOUT", value_name = "DURATION", default_value = "400ms", value_parser = probe_timeout, help_heading = "Times")]
    pub probe_timeout: Duration,

    /// How long requests are still accepted after SIGTERM, while readiness fails and callers turn
    /// to other replicas.
    #[arg(long, env = "QUORUMGATE_LEAVE_TIME", value_name = "DURATION", default_value = "3s", value_parser = up_to_a_minute, help_heading = "Times")]
    pub leave_time: Duration,

    /// How long requests in flight may take after the leave time.
    #[arg(long, env = "QUORUMGATE_DRAIN_TIME", value_name = "DURATION", default_value = "10s", value_parser = up_to_a_minute, help_heading = "Times")]
    pub drain_time: Duration,

    /// Longest request body in bytes. An admission review holds up to two objects of at most 1.5
    /// MiB each, and each byte of them may be written as six.
    #[arg(long, env = "QUORUMGATE_MAX_BODY_BYTES", value_name = "BYTES", default_value_t = 20_971_520, value_parser = body_bytes, help_heading = "Limits")]
    pub max_body_bytes: usize,

    /// Most judgements at one time. Further requests are answered with 429, and may be tried again.
    #[arg(long, env = "QUORUMGATE_MAX_JUDGEMENTS", value_name = "NUMBER", default_value_t = 256, value_parser = judgements, help_heading = "Limits")]
    pub max_judgements: usize,

    /// Features to switch on or off, as `Name=true,Other=false`. All are off by default:
    /// `QuorumAwareUpdatesWithOnDelete` (also called `UpdateStrategyOnDelete`) keeps the update
    /// strategy `OnDelete` on enrolled StatefulSets and rolls them out; `EtcdMembers` keeps an
    /// `EtcdMember` for each member.
    #[arg(long, env = "QUORUMGATE_FEATURE_GATES", value_name = "NAME=BOOLEAN,...", value_parser = features::switches, help_heading = "Features")]
    pub feature_gates: Vec<Switches>,

    /// Form of the log lines.
    #[arg(long, env = "QUORUMGATE_LOG_FORMAT", value_enum, default_value_t = LogFormat::Json, help_heading = "Log")]
    pub log_format: LogFormat,

    /// Filter of the log: levels by module, for example `info` or `warn,quorumgate=debug`.
    /// Decisions about pods that are nobody's members are logged at `debug`.
    #[arg(long, env = "QUORUMGATE_LOG", value_name = "FILTER", default_value = DEFAULT_FILTER, help_heading = "Log")]
    pub log: String,

    /// URL of the OpenTelemetry collector that takes traces of admission requests, by OTLP over
    /// gRPC: `http://collector:4317`, or `https://…` with --otlp-ca. Without this option there are
    /// no traces. `OTEL_TRACES_SAMPLER` says which requests are traced; by default those that the
    /// API server traces, and all where it does not trace.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_ENDPOINT",
        value_name = "URL",
        help_heading = "Traces"
    )]
    pub otlp_endpoint: Option<String>,

    /// PEM file of the authorities that sign the collector's certificate. Read once, at the start.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_CERTIFICATE",
        value_name = "FILE",
        requires = "otlp_endpoint",
        help_heading = "Traces"
    )]
    pub otlp_ca: Option<PathBuf>,
}

/// Where the serving certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// The files that it is read from.
    Files(Files),
    /// The gate makes it, and keeps it in a Secret.
    Own {
        /// The names of the Secrets.
        names: SecretNames,
        /// The properties that the certificates are to have.
        wishes: Wishes,
    },
}

impl Run {
    /// The callers that the webhooks accept; `None` accepts every caller.
    pub fn callers(&self) -> Option<Callers> {
        Some(Callers {
            authorities: self.client_ca.clone()?,
            names: self.client_names.clone(),
        })
    }

    /// Where the serving certificate comes from.
    pub fn certificate(&self) -> CertificateSource {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => CertificateSource::Files(Files {
                certificate: certificate.clone(),
                key: key.clone(),
                callers: self.callers(),
            }),
            // The command line has --own-certificates then.
            _ => CertificateSource::Own {
                names: SecretNames::for_gate(&self.lease_name),
                wishes: Wishes {
                    names: self.certificate_names.clone(),
                    authority: self.authority_lifetime,
                    serving: self.certificate_lifetime,
                },
            },
        }
    }

    /// The collector of the traces; `None` where there are to be none.
    pub fn collector(&self) -> Option<Collector> {
        Some(Collector {
            endpoint: self.otlp_endpoint.clone()?,
            authorities: self.otlp_ca.clone(),
        })
    }

    /// The pod that this replica runs in; `None` where it does not maintain its own endpoint.
    pub fn myself(&self) -> Option<Myself> {
        Some(Myself {
            namespace: self.lease_namespace.clone(),
            service: self.service.clone()?,
            pod: self.pod_name.clone()?,
            uid: self.pod_uid.clone()?,
            address: self.pod_ip?,
            node: self.node_name.clone(),
            webhooks: self.listen.port(),
            admin: self.admin_listen.port(),
        })
    }

    /// The name of this replica: the option, else the host name, else a name made of the process
    /// id.
    pub fn identity(&self) -> String {
        let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        self.identity
            .clone()
            .or_else(|| host().map(|name| name.trim().to_owned()))
            .filter(|name| !name.is_empty())
            .unwrap_or_else(|| format!("quorumgate-{}", std::process::id()))
    }
}

fn lifetime(text: &str) -> Result<Duration, String> {
    // Every replica has to take a new certificate up in the last third of the one before.
    within(
        text,
        Duration::from_secs(45),
        Duration::from_secs(10 * 365 * 24 * 3600),
    )
}

fn name_or_address(text: &str) -> Result<String, String> {
    let is_address = text.parse::<IpAddr>().is_ok();
    if is_address || dns::is_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err("neither a DNS name in lower case nor an IP address".to_owned())
    }
}

fn settle_time(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_secs(1), Duration::from_secs(3600))
}

fn probe_timeout(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(50), Duration::from_millis(1500))
}

fn up_to_a_minute(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, Duration::from_secs(60))
}

fn up_to_an_hour(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, Duration::from_secs(3600))
}

/// Parses a duration such as `120s`, `2m`, `1m 30s` or `400ms` that lies between `least` and
/// `most`.
fn within(text: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    let given: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "not a duration like 400ms, 120s or 2m".to_owned())?;
    Duration::try_from(given)
        .ok()
        .filter(|given| (least..=most).contains(given))
        .ok_or_else(|| format!("has to be from {least:?} to {most:?}"))
}

fn body_bytes(text: &str) -> Result<usize, String> {
    // With less, large pods could be neither deleted nor evicted.
    number(text, 20 * 1024 * 1024, 64 * 1024 * 1024)
}

fn clusters(text: &str) -> Result<usize, String> {
    number(text, 1, 100_000)
}

fn judgements(text: &str) -> Result<usize, String> {
    number(text, 1, 65_536)
}

fn number(text: &str, least: usize, most: usize) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|given| (least..=most).contains(given))
        .ok_or_else(|| format!("has to be a number from {least} to {most}"))
}

fn dns_label(text: &str) -> Result<String, String> {
    if dns::is_label(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "not a namespace's name: lower case letters, digits and inner dashes, at most 63"
                .to_owned(),
        )
    }
}

fn dns_subdomain(text: &str) -> Result<String, String> {
    if dns::is_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err(
            "not an object's name: lower case letters, digits, inner dashes and dots, at most 253"
                .to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::features::Features;

    fn run(options: &[&str]) -> Result<Run, String> {
        let given = ["quorumgate", "run", "--tls-cert=c", "--tls-key=k"];
        let cli = Cli::try_parse_from(given.iter().chain(options)).map_err(|e| e.to_string())?;
        match cli.command {
            Command::Run(run) => Ok(*run),
            other => unreachable!("the command is run, not {other:?}"),
        }
    }

    #[test]
    fn the_definition_of_the_command_line_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_option_is_explained_and_has_an_environment_variable() {
        let command = Cli::command();
        let options = ["run", "check", "uninstall"].map(|name| {
            let subcommand = command.find_subcommand(name).unwrap();
            subcommand.get_arguments().filter(|a| a.get_id() != "help")
        });
        for option in options.into_iter().flatten() {
            assert!(
                option.get_help().is_some(),
                "{} is not explained",
                option.get_id()
            );
            let variable = option
                .get_env()
                .unwrap_or_else(|| panic!("{}", option.get_id()));
            // Those of OpenTelemetry have the names that operators set for every program.
            let prefixes = ["QUORUMGATE_", "OTEL_EXPORTER_OTLP_"];
            let variable = variable.to_str().unwrap();
            assert!(prefixes.iter().any(|prefix| variable.starts_with(prefix)));
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(run(&[]).unwrap().settle_time, Duration::from_secs(120));
        assert_eq!(
            run(&["--settle-time=2m"]).unwrap().settle_time,
            Duration::from_secs(120)
        );
        assert_eq!(
            run(&["--probe-timeout=1s"]).unwrap().probe_timeout,
            Duration::from_secs(1)
        );
    }

    #[test]
    fn bad_values_are_refused_with_what_would_be_good() {
        for (option, hint) in [
            ("--settle-time=soon", "like 400ms, 120s or 2m"),
            ("--settle-time=-5s", "from 1s to 3600s"),
            ("--probe-timeout=10s", "from 50ms to 1.5s"),
            ("--namespaces=a,B", "lower case"),
            ("--namespaces=a,", "lower case"),
            ("--listen=8443", "invalid socket address"),
            ("--max-body-bytes=10", "from 20971520"),
            ("--log-format=xml", "json, text"),
            ("--identity=", "a value is required"),
            (
                "--feature-gates=UseEtcdWrapper=true",
                "the features are: QuorumAwareUpdatesWithOnDelete",
            ),
        ] {
            let said = run(&[option]).unwrap_err();
            assert!(said.contains(hint), "{option}: {said}");
        }
    }

    #[test]
    fn certificates_come_from_files_or_are_the_gate_s_own() {
        let parse = |options: &[&str]| {
            let given = ["quorumgate", "run"];
            let cli = Cli::try_parse_from(given.iter().chain(options));
            match cli.map_err(|error| error.to_string())?.command {
                Command::Run(run) => Ok(run.certificate()),
                other => unreachable!("the command is run, not {other:?}"),
            }
        };
        for (options, hint) in [
            (&[] as &[&str], "--tls-cert"),
            (&["--tls-cert=c"], "--tls-key"),
            (&["--own-certificates"], "--certificate-names"),
            (
                &[
                    "--own-certificates",
                    "--certificate-names=a.svc",
                    "--tls-cert=c",
                    "--tls-key=k",
                ],
                "cannot be used with",
            ),
            (
                &["--own-certificates", "--certificate-names=A b"],
                "DNS name",
            ),
            (
                &[
                    "--own-certificates",
                    "--certificate-names=a.svc",
                    "--certificate-lifetime=5s",
                ],
                "from 45s",
            ),
        ] {
            let said: String = parse(options).unwrap_err();
            assert!(said.contains(hint), "{options:?}: {said}");
        }
        let own = parse(&[
            "--own-certificates",
            "--certificate-names=gate.ns.svc,10.0.0.1",
            "--lease-name=gate",
        ]);
        let Ok(CertificateSource::Own { names, wishes }) = own else {
            panic!("{own:?}");
        };
        assert_eq!(names.authority, "gate-authority");
        assert_eq!(names.serving, "gate-serving");
        assert_eq!(wishes.names, ["gate.ns.svc", "10.0.0.1"]);
        assert_eq!(wishes.problem(), None);
    }

    #[test]
    fn namespaces_are_separated_by_commas() {
        assert_eq!(
            run(&["--namespaces=a,b-1"]).unwrap().namespaces,
            ["a", "b-1"]
        );
        assert!(run(&[]).unwrap().namespaces.is_empty());
    }

    #[test]
    fn who_keeps_its_own_endpoint_knows_its_pod() {
        assert_eq!(run(&[]).unwrap().myself(), None);
        let said = run(&["--service=gate", "--pod-name=a"]).unwrap_err();
        assert!(said.contains("--pod-uid"), "{said}");
        let pod = [
            "--service=gate",
            "--pod-name=a",
            "--pod-uid=u",
            "--pod-ip=fd00::7",
        ];
        let myself = run(&pod).unwrap().myself().unwrap();
        assert_eq!((myself.webhooks, myself.admin), (8443, 8080));
        assert_eq!(myself.address, "fd00::7".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn features_are_given_in_one_list_or_in_several() {
        let features =
            |options: &[&str]| Features::from_switches(&run(options).unwrap().feature_gates);
        let on = Features {
            on_delete: true,
            etcd_members: false,
        };
        for given in [
            &["--feature-gates=QuorumAwareUpdatesWithOnDelete=true"] as &[&str],
            &[
                "--feature-gates=",
                "--feature-gates=UpdateStrategyOnDelete=true",
            ],
        ] {
            assert_eq!(features(given), Ok(on));
        }
        assert_eq!(features(&["--feature-gates="]), Ok(Features::default()));
    }

    #[test]
    fn a_replica_without_a_name_has_its_hosts() {
        assert_eq!(run(&["--identity=one"]).unwrap().identity(), "one");
        assert!(!run(&[]).unwrap().identity().is_empty());
    }
}
