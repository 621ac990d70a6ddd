//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::show::Paint;

/// Shows the etcd clusters that quorumgate guards, and why a pod may or may not go.
///
/// Exit codes: 0, it is well, or it is done; 1, something failed, and the message says what to do;
/// 2, the command line is wrong; 3, the answer is no: `explain`, the pod may not go; `drain`, a
/// pod would be held; `rollout status`, it is not done; `doctor`, something is wrong.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-quorum",
    bin_name = "kubectl quorum",
    version,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,

    /// When to use colours. `NO_COLOR` in the environment stands for `never`.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Paint::Auto, global = true)]
    pub(crate) color: Paint,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where the cluster is, and who asks.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connection {
    /// The kubeconfig file. Default: KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context in the kubeconfig file. Default: its current context.
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) context: Option<String>,

    /// The namespace. Default: that of the context.
    #[arg(long, short, value_name = "NAME", global = true)]
    pub(crate) namespace: Option<String>,
}

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For programs.
    Json,
    /// For programs, and for people.
    Yaml,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The guarded clusters: who serves, how many may go, the rollout. Clusters that are not well,
    /// and those that are named, are shown with their members.
    Status(Status),
    /// Whether a pod may go now, and why not. Asks the gate by a delete that is never carried out
    /// (a server-side dry run), which needs the right to delete the pod.
    Explain(Explain),
    /// What a drain of nodes would meet, and in which order it works. Drains only with
    /// `--dry-run=false`.
    Drain(Drain),
    /// How a rollout goes, and to stop it or to let it go on.
    Rollout {
        #[command(subcommand)]
        command: Rollout,
    },
    /// Let pods go against the gate's verdict, for a limited time. Asks before.
    Override(Override),
    /// Have the gate replace a member whose data is lost or bad: its volume is given up, and it
    /// joins again with an empty one. Asks before.
    Replace(Replace),
    /// What is wrong with the installation or with what the gate needs to see. Looks at the clusters
    /// of all namespaces, or of --namespace.
    Doctor(Doctor),
    /// Print the completion script of a shell.
    Completion {
        /// The shell.
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
    Man,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Status {
    /// Clusters, by the names of their StatefulSets. Default: all.
    #[arg(value_name = "CLUSTER")]
    pub(crate) clusters: Vec<String>,

    /// Clusters of all namespaces.
    #[arg(long, short = 'A')]
    pub(crate) all_namespaces: bool,

    /// Show it anew whenever it changes, until interrupted.
    #[arg(long, short, conflicts_with = "output")]
    pub(crate) watch: bool,

    /// The form of the output. Default: a table.
    #[arg(long, short, value_enum)]
    pub(crate) output: Option<Form>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Explain {
    /// The pod.
    pub(crate) pod: String,

    /// Ask by an eviction, as drains and autoscalers do. PodDisruptionBudgets count then.
    #[arg(long)]
    pub(crate) eviction: bool,

    /// The form of the output. Default: text.
    #[arg(long, short, value_enum)]
    pub(crate) output: Option<Form>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Drain {
    /// The nodes.
    #[arg(required = true, value_name = "NODE")]
    pub(crate) nodes: Vec<String>,

    /// Only say what would happen. With `false`, `kubectl drain` is run for one node after the
    /// other, in the order that is shown.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) dry_run: bool,

    /// Have `kubectl drain` delete pods with emptyDir volumes too. What is in these is lost.
    #[arg(long)]
    pub(crate) delete_emptydir_data: bool,

    /// How long each drain may take, with `--dry-run=false`.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Rollout {
    /// How many members are updated, and what the rollout waits for.
    Status(Cluster),
    /// Begin no new step (`spec.paused: true`). Steps that have begun are finished.
    Pause(Cluster),
    /// Go on (`spec.paused: false`).
    Resume(Cluster),
    /// Let the change that is rolled out now cost the quorum: old and new members cannot talk to
    /// each other, as when the members switch to TLS between them. Asks before.
    Proceed {
        #[command(flatten)]
        cluster: Cluster,
        #[command(flatten)]
        yes: Yes,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Cluster {
    /// The cluster, by the name of its StatefulSet.
    #[arg(value_name = "CLUSTER")]
    pub(crate) name: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Override {
    /// The pod, or the cluster by the name of its StatefulSet: then every pod of it. `pod/NAME` and
    /// `qdb/NAME` say which one is meant.
    #[arg(value_name = "POD|CLUSTER")]
    pub(crate) target: String,

    /// For how long, at most 24h.
    #[arg(long = "for", value_name = "DURATION", value_parser = up_to_a_day)]
    pub(crate) lasts: Duration,

    /// Why. It is written beside the override, for those who come after.
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) reason: String,

    #[command(flatten)]
    pub(crate) yes: Yes,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Replace {
    /// The member, by the name of its pod.
    #[arg(value_name = "MEMBER")]
    pub(crate) member: String,

    #[command(flatten)]
    pub(crate) yes: Yes,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Yes {
    /// Do not ask.
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    /// Namespace of the gate.
    #[arg(long, value_name = "NAME", default_value = "quorumgate")]
    pub(crate) gate_namespace: String,

    /// Name of the gate's Deployment, Service and Lease.
    #[arg(long, value_name = "NAME", default_value = "quorumgate")]
    pub(crate) gate: String,

    /// Name of its webhook configurations.
    #[arg(long, value_name = "NAME", default_value = "quorumgate")]
    pub(crate) webhook_configuration: String,

    /// The form of the output. Default: a table.
    #[arg(long, short, value_enum)]
    pub(crate) output: Option<Form>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let given: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "not a duration like 30m, 90s or 1h 30m".to_owned())?;
    Duration::try_from(given)
        .ok()
        .filter(|given| !given.is_zero())
        .ok_or_else(|| "has to be longer than nothing".to_owned())
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
    fn a_drain_is_a_dry_run_unless_told_otherwise() {
        let parsed = |args: &[&str]| match Cli::try_parse_from(args).unwrap().command {
            Command::Drain(drain) => (drain.nodes, drain.dry_run),
            other => panic!("{other:?}"),
        };
        let nodes = vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(parsed(&["q", "drain", "a", "b"]), (nodes.clone(), true));
        let told = ["q", "drain", "--dry-run=false", "a", "b"];
        assert_eq!(parsed(&told), (nodes.clone(), false));
        assert_eq!(
            parsed(&["q", "drain", "--dry-run", "a", "b"]),
            (nodes, true)
        );
    }

    #[test]
    fn an_override_lasts_a_day_at_most() {
        assert_eq!(up_to_a_day("30m"), Ok(Duration::from_secs(1800)));
        assert_eq!(up_to_a_day("24h"), Ok(Duration::from_secs(86_400)));
        assert!(up_to_a_day("24h 1s").is_err());
        assert!(up_to_a_day("0s").is_err());
        assert!(up_to_a_day("soon").is_err());
    }
}
