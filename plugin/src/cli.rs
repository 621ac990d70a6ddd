//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::show::Paint;

/// Shows the etcd clusters that quorumgate guards, and explains why a pod may not be deleted.
///
/// Exit codes: 0, success; 1, an error, and the message says what to do; 2, the command line is
/// wrong; 3, the answer is no. `explain`: the pod may not be deleted. `drain`: a drain would not
/// end. `rollout status --watch=false`: the rollout is not complete. `doctor`: a check failed.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-quorum",
    bin_name = "kubectl quorum",
    version,
    max_term_width = 100
)]
pub(crate) struct Cli {
    /// When to use colours. `NO_COLOR` in the environment has the effect of `never`.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Paint::Auto, global = true)]
    pub(crate) color: Paint,

    #[command(flatten)]
    pub(crate) connection: Connection,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The cluster that is asked, and the user who asks: the flags of kubectl, with its meanings.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Flags of kubectl")]
pub(crate) struct Connection {
    /// Namespace. Default: that of the context.
    #[arg(long, short, value_name = "NAME", global = true)]
    pub(crate) namespace: Option<String>,

    /// Context in the kubeconfig file. Default: its current context.
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) context: Option<String>,

    /// Kubeconfig file. Default: KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// Cluster in the kubeconfig file. Default: that of the context.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    pub(crate) cluster: Option<String>,

    /// User in the kubeconfig file. Default: that of the context.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    pub(crate) user: Option<String>,

    /// User to impersonate.
    #[arg(
        long = "as",
        value_name = "USER",
        global = true,
        hide_short_help = true
    )]
    pub(crate) as_user: Option<String>,

    /// Group to impersonate. May be repeated.
    #[arg(
        long,
        value_name = "GROUP",
        global = true,
        hide_short_help = true,
        requires = "as_user"
    )]
    pub(crate) as_group: Vec<String>,

    /// UID to impersonate.
    #[arg(
        long,
        value_name = "UID",
        global = true,
        hide_short_help = true,
        requires = "as_user"
    )]
    pub(crate) as_uid: Option<String>,

    /// Time limit of a single request, for example 5s. Default: none.
    #[arg(long, value_name = "DURATION", value_parser = time_limit, global = true, hide_short_help = true)]
    pub(crate) request_timeout: Option<Duration>,

    /// Address of the API server.
    #[arg(long, short, value_name = "URL", global = true, hide_short_help = true)]
    pub(crate) server: Option<String>,

    /// Bearer token.
    #[arg(long, value_name = "TOKEN", global = true, hide_short_help = true)]
    pub(crate) token: Option<String>,

    /// File with the certificate of the API server's authority.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, global = true, hide_short_help = true)]
    pub(crate) certificate_authority: Option<PathBuf>,

    /// File with the client's certificate.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, global = true, hide_short_help = true, requires = "client_key")]
    pub(crate) client_certificate: Option<PathBuf>,

    /// File with the key of the client's certificate.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, global = true, hide_short_help = true, requires = "client_certificate")]
    pub(crate) client_key: Option<PathBuf>,

    /// Name in the API server's certificate. Default: the host of its address.
    #[arg(long, value_name = "NAME", global = true, hide_short_help = true)]
    pub(crate) tls_server_name: Option<String>,

    /// Accept every certificate of the API server. The connection is not secure then.
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        conflicts_with = "certificate_authority"
    )]
    pub(crate) insecure_skip_tls_verify: bool,
}

/// The form of the output of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// JSON, with a code for each reason.
    Json,
    /// The same as YAML.
    Yaml,
}

/// The form of the output of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListForm {
    /// A table with more columns.
    Wide,
    /// Names, one per line, for other commands.
    Name,
    /// JSON, with a code for each reason.
    Json,
    /// The same as YAML.
    Yaml,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the guarded clusters.
    ///
    /// A line has the voters that serve, the disruptions that are allowed, and the rollout.
    /// Clusters that are not healthy, and those that are named, are shown with their members.
    Status(Status),
    /// Explain whether a pod may be deleted now, and if not, why.
    ///
    /// Asks the gate by a server-side dry run, which deletes and records nothing. You need the
    /// right to delete the pod.
    Explain(Explain),
    /// Drain nodes in the order that costs the guarded clusters least.
    ///
    /// Prints the plan, asks for confirmation, and runs `kubectl drain` for one node after the
    /// other. Drains nothing if the plan cannot end. `--dry-run` only prints the plan.
    Drain(Drain),
    /// Watch a rollout, pause it or resume it.
    Rollout {
        #[command(subcommand)]
        command: Rollout,
    },
    /// Allow deletes against the gate's verdict, for a limited time.
    ///
    /// Prints what it may cost, and asks for confirmation.
    Override(Override),
    /// Have the gate replace a member whose data is lost or damaged.
    ///
    /// The member gets a new, empty volume, and its data from the other members. Asks for
    /// confirmation.
    Replace(Replace),
    /// Have the gate add or remove members, one at a time.
    ///
    /// A new member joins as a learner, and is promoted once it has caught up. One that leaves is
    /// removed from etcd before its pod goes. Asks for confirmation where members leave.
    Scale(Scale),
    /// List what each survivor of a lost quorum has, and have the gate start one of them alone.
    ///
    /// Without --member-id it changes nothing. The member keeps its data, and the others join it
    /// with empty volumes. Asks for confirmation.
    Recover(Recover),
    /// Check the installation and the guarded clusters.
    ///
    /// Checks the clusters of all namespaces, or of --namespace. Each finding is OK, WARN, FAIL, or
    /// SKIP where you may not read what the check needs. The exit code is 3 if a check fails.
    Doctor(Doctor),
    /// Write an archive for the report of a problem.
    ///
    /// It holds budgets, Events, webhook configurations, the gate's Deployment, pods, logs and
    /// metrics, and versions: of all namespaces, or of --namespace. Secrets, tokens, passwords and
    /// keys are left out.
    Report(Report),
    /// Print the versions of the plugin, the gate and Kubernetes.
    ///
    /// Warns if the plugin and the gate have different minor versions, or if quorumgate is not
    /// tested with this version of Kubernetes.
    Version(Version),
    /// Print the completion script of a shell.
    ///
    /// For example: source <(kubectl quorum completion bash). It completes `kubectl-quorum`. For
    /// `kubectl quorum`, put `kubectl_complete-quorum` into your PATH.
    Completion {
        /// Shell.
        shell: Shell,
    },
    /// Answer kubectl when it completes `kubectl quorum`.
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The words so far.
        #[arg(last = true)]
        words: Vec<String>,
    },
    /// Print the manual page.
    Man {
        /// Write a page for each command into this directory instead.
        #[arg(long, value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
        directory: Option<PathBuf>,
    },
}

/// A shell that has completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Status {
    /// Clusters, by the names of their StatefulSets. Default: all.
    #[arg(value_name = "CLUSTER")]
    pub(crate) clusters: Vec<String>,

    /// List the clusters of all namespaces.
    #[arg(long, short = 'A')]
    pub(crate) all_namespaces: bool,

    /// Only clusters whose budgets have these labels.
    #[arg(long, short = 'l', value_name = "SELECTOR")]
    pub(crate) selector: Option<String>,

    /// Print again after each change, until interrupted.
    #[arg(long, short)]
    pub(crate) watch: bool,

    /// Form of the output. Default: a table.
    #[arg(long, short, value_enum, value_name = "FORM")]
    pub(crate) output: Option<ListForm>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Explain {
    /// Pod: NAME or pod/NAME.
    pub(crate) pod: String,

    /// Ask by an eviction, as drains and autoscalers do. PodDisruptionBudgets count then.
    #[arg(long)]
    pub(crate) eviction: bool,

    /// Form of the output. Default: text.
    #[arg(long, short, value_enum, value_name = "FORM")]
    pub(crate) output: Option<Form>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Drain {
    /// Nodes.
    #[arg(required_unless_present = "selector", value_name = "NODE")]
    pub(crate) nodes: Vec<String>,

    /// Drain the nodes with these labels.
    #[arg(long, short = 'l', value_name = "SELECTOR", conflicts_with = "nodes")]
    pub(crate) selector: Option<String>,

    /// Only print the plan. `server` asks the gate about each eviction by a server-side dry run.
    /// `client` takes what the budgets say, and sends no eviction.
    #[arg(long, value_enum, value_name = "MODE", default_value_t = DryRun::None, num_args = 0..=1, default_missing_value = "client", require_equals = true)]
    pub(crate) dry_run: DryRun,

    /// Have `kubectl drain` also delete pods with emptyDir volumes. Their data is lost.
    #[arg(long)]
    pub(crate) delete_emptydir_data: bool,

    /// Have `kubectl drain` also delete pods without a controller.
    #[arg(long)]
    pub(crate) force: bool,

    /// Seconds that each pod gets to end. Default: those of the pod.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) grace_period: Option<u32>,

    /// Accepted because `kubectl drain` has it. Pods of a `DaemonSet` are always ignored.
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) ignore_daemonsets: Option<bool>,

    /// Time limit of the drain of each node.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub(crate) timeout: Duration,

    #[command(flatten)]
    pub(crate) yes: Yes,
}

/// The modes of a dry run, as kubectl has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Do it.
    None,
    /// Send no request that could change something.
    Client,
    /// Send requests that the API server does not carry out.
    Server,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Rollout {
    /// Wait until the rollout is complete, and print its progress.
    Status {
        #[command(flatten)]
        cluster: Cluster,
        #[command(flatten)]
        wait: Wait,
    },
    /// Start no new step (`spec.paused: true`). Steps that have started are finished.
    Pause(Clusters),
    /// Continue (`spec.paused: false`).
    Resume(Clusters),
    /// Let the present change cost the quorum, where old and new members cannot talk to each
    /// other: for example when the members switch to TLS between them. Asks for confirmation.
    Proceed {
        #[command(flatten)]
        cluster: Cluster,
        #[command(flatten)]
        yes: Yes,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Wait {
    /// Wait until the rollout is complete. With `--watch=false`, print its state and return.
    #[arg(long, short, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) watch: bool,

    /// Time limit of the wait, for example 10m. 0 means none.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = time_limit)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Clusters {
    /// Cluster, by the name of its StatefulSet.
    #[arg(
        value_name = "CLUSTER",
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub(crate) name: Option<String>,

    /// Every cluster of the namespace.
    #[arg(long)]
    pub(crate) all: bool,

    /// With `--all`, every cluster of all namespaces.
    #[arg(long, short = 'A', requires = "all")]
    pub(crate) all_namespaces: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Cluster {
    /// Cluster, by the name of its StatefulSet.
    #[arg(value_name = "CLUSTER")]
    pub(crate) name: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Override {
    /// Pod, or cluster by the name of its StatefulSet, which means every pod of it. `pod/NAME` and
    /// `qdb/NAME` say which one is meant.
    #[arg(value_name = "POD|CLUSTER")]
    pub(crate) target: String,

    /// Duration, at most 24h.
    #[arg(long = "for", value_name = "DURATION", value_parser = up_to_a_day)]
    pub(crate) lasts: Duration,

    /// Reason. It is written beside the override, for other people.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) reason: String,

    #[command(flatten)]
    pub(crate) yes: Yes,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Replace {
    /// Member, by the name of its pod.
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,

    #[command(flatten)]
    pub(crate) yes: Yes,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Scale {
    /// Cluster, by the name of its StatefulSet.
    #[arg(value_name = "CLUSTER")]
    pub(crate) name: String,

    /// Number of members.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) replicas: u8,

    #[command(flatten)]
    pub(crate) yes: Yes,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Recover {
    /// Cluster, by the name of its StatefulSet.
    #[arg(value_name = "CLUSTER")]
    pub(crate) name: String,

    /// Id of the member that starts alone, hexadecimal.
    #[arg(long, value_name = "ID")]
    pub(crate) member_id: Option<String>,

    /// Snapshot of that member (`etcdctl snapshot save`), which is checked first.
    #[arg(long, value_name = "FILE", requires = "member_id")]
    pub(crate) snapshot: Option<std::path::PathBuf>,

    /// Continue without a snapshot.
    #[arg(long, requires = "member_id", conflicts_with = "snapshot")]
    pub(crate) without_snapshot: bool,

    #[command(flatten)]
    pub(crate) yes: Yes,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Yes {
    /// Do not ask for confirmation.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) gate: Gate,

    /// Check the cluster before the installation: versions, your rights, other webhooks, nodes.
    #[arg(long)]
    pub(crate) pre: bool,

    /// Repeat the checks until none fails, for at most this time: for example 2m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) wait: Option<Duration>,

    /// Form of the output. Default: text.
    #[arg(long, short, value_enum, value_name = "FORM")]
    pub(crate) output: Option<Form>,
}

/// The gate, where it is not the one that the webhook configurations name.
#[derive(Debug, Clone, Default, Args)]
#[expect(
    clippy::struct_field_names,
    reason = "the names of the arguments, of which the connection has `namespace`"
)]
pub(crate) struct Gate {
    /// Namespace of the gate. Default: that of the service in the webhook configuration.
    #[arg(long, value_name = "NAME")]
    pub(crate) gate_namespace: Option<String>,

    /// Name of the gate's Deployment, Service and Lease. Default: that of the service in the
    /// webhook configuration.
    #[arg(long = "gate", value_name = "NAME")]
    pub(crate) gate_name: Option<String>,

    /// Name of the gate's webhook configurations. Default: the one with the webhook
    /// `pods.quorumgate.io`.
    #[arg(long, value_name = "NAME")]
    pub(crate) webhook_configuration: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Report {
    #[command(flatten)]
    pub(crate) gate: Gate,

    /// File to write. Default: quorum-report-TIME.tar.gz in the working directory.
    #[arg(long, short, value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,

    /// Logs since this time ago.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub(crate) since: Duration,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Version {
    #[command(flatten)]
    pub(crate) gate: Gate,

    /// Print only the version of the plugin.
    #[arg(long)]
    pub(crate) client: bool,

    /// Form of the output. Default: text.
    #[arg(long, short, value_enum, value_name = "FORM")]
    pub(crate) output: Option<Form>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let given = time_limit(text)?;
    if given.is_zero() {
        return Err("has to be longer than zero".to_owned());
    }
    Ok(given)
}

/// A duration, or a number of seconds, as kubectl takes it. Zero is no limit.
fn time_limit(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let given: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "not a duration like 30m, 90s or 1h30m".to_owned())?;
    Duration::try_from(given).map_err(|_| "has to be longer than zero".to_owned())
}

/// The gate takes no override that lasts longer.
fn up_to_a_day(text: &str) -> Result<Duration, String> {
    let given = duration(text)?;
    if given <= Duration::from_secs(24 * 3600) {
        Ok(given)
    } else {
        Err("the gate takes no override for more than 24h".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_drain_acts_unless_it_is_a_dry_run_as_kubectls_does() {
        let parsed = |args: &[&str]| {
            let all: Vec<_> = ["q", "drain"].iter().chain(args).collect();
            match Cli::try_parse_from(all).unwrap().command {
                Command::Drain(drain) => (drain.nodes, drain.dry_run),
                other => panic!("{other:?}"),
            }
        };
        let nodes = vec!["a".to_owned(), "b".to_owned()];
        for (mode, expected) in [
            ("--dry-run=none", DryRun::None),
            ("--dry-run=client", DryRun::Client),
            ("--dry-run=server", DryRun::Server),
            ("--dry-run", DryRun::Client),
            ("--ignore-daemonsets", DryRun::None),
        ] {
            assert_eq!(parsed(&[mode, "a", "b"]), (nodes.clone(), expected));
        }
        assert!(Cli::try_parse_from(["q", "drain"]).is_err());
        assert!(Cli::try_parse_from(["q", "drain", "-l", "a=b"]).is_ok());
    }

    #[test]
    fn flags_of_kubectl_are_taken_before_and_after_the_command() {
        let flags = [
            "--as=jane",
            "--as-group=a",
            "--as-group=b",
            "--as-uid=7",
            "--cluster=c",
            "--user=u",
            "--request-timeout=5s",
            "--context=x",
            "-n=db",
        ];
        let before = ["q"].iter().chain(&flags).chain(&["status"]);
        let after = ["q", "status"].iter().chain(&flags);
        for line in [before.collect::<Vec<_>>(), after.collect()] {
            let given = Cli::try_parse_from(line).unwrap().connection;
            assert_eq!(given.as_user.as_deref(), Some("jane"));
            assert_eq!(given.as_group, ["a", "b"]);
            assert_eq!(given.as_uid.as_deref(), Some("7"));
            assert_eq!(given.cluster.as_deref(), Some("c"));
            assert_eq!(given.user.as_deref(), Some("u"));
            assert_eq!(given.request_timeout, Some(Duration::from_secs(5)));
            assert_eq!(given.context.as_deref(), Some("x"));
            assert_eq!(given.namespace.as_deref(), Some("db"));
        }
    }

    #[test]
    fn an_override_lasts_a_day_at_most() {
        assert_eq!(up_to_a_day("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(up_to_a_day("24h"), Ok(Duration::from_secs(86_400)));
        assert!(up_to_a_day("24h 1s").is_err());
        assert!(up_to_a_day("0s").is_err());
        assert!(up_to_a_day("soon").is_err());
    }

    #[test]
    fn times_are_written_as_kubectl_takes_them() {
        assert_eq!(time_limit("0"), Ok(Duration::ZERO));
        assert_eq!(time_limit("90"), Ok(Duration::from_secs(90)));
        assert_eq!(time_limit("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(time_limit("500ms"), Ok(Duration::from_millis(500)));
        assert!(time_limit("-5s").is_err());
    }
}
