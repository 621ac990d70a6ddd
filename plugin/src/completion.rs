//! Completion of commands, options and names: for the shell, and for `kubectl` when it completes a
//! plugin.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args as _, Command, CommandFactory as _, FromArgMatches as _};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate, complete};
use clap_complete::env::{CompleteEnv, Shells};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tokio::time::timeout;

use crate::cli::{Cli, Connection, Shell};
use crate::connect::Kubernetes;
use crate::show::one_line;
use crate::status::here;

/// Tells `kubectl` that files complete nothing (cobra's `ShellCompDirectiveNoFileComp`).
const NO_FILES: &str = ":4";

/// The variable by which the script of a shell asks for completions.
const ASKED: &str = "KUBECTL_QUORUM_COMPLETE";

/// The longest time to wait for names.
const PATIENCE: Duration = Duration::from_secs(3);

/// The kinds of names that the API server or the kubeconfig knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Names {
    Namespaces,
    Nodes,
    /// Guarded clusters of the namespace.
    Clusters,
    /// Pods of these.
    Members,
    /// Both.
    Targets,
    Contexts,
    ContextClusters,
    Users,
}

/// Answers the script of a shell, if that asks. Returns whether it did.
pub(crate) fn answer_shell() -> Result<bool> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let typed: Vec<String> = words
        .iter()
        .skip_while(|word| *word != "--")
        .skip(2)
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let answered = CompleteEnv::with_factory(|| command(&typed))
        .var(ASKED)
        .try_complete(words, std::env::current_dir().ok().as_deref())?;
    Ok(answered)
}

/// The script of a shell, which asks this program for what may come next.
pub(crate) fn script(shell: Shell) -> Result<String> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Elvish => "elvish",
        Shell::Fish => "fish",
        Shell::Powershell => "powershell",
        Shell::Zsh => "zsh",
    };
    let shells = Shells::builtins();
    let completer = shells.completer(name).context("unknown shell")?;
    let program = "kubectl-quorum";
    let mut script = Vec::new();
    completer.write_registration(ASKED, program, program, program, &mut script)?;
    Ok(String::from_utf8(script)?)
}

/// The candidates for the last word, in the form that `kubectl` reads from
/// `kubectl_complete-quorum`: a line each, with its description, and a directive at the end.
pub(crate) fn answer_kubectl(words: &[String]) -> String {
    let last = words.last().map_or("", String::as_str);
    let line = std::iter::once("kubectl-quorum")
        .chain(words.iter().map(String::as_str))
        .chain(words.is_empty().then_some(""));
    let line: Vec<OsString> = line.map(OsString::from).collect();
    let at = line.len() - 1;
    let current = std::env::current_dir().ok();
    let found = complete(&mut command(words), line, at, current.as_deref()).unwrap_or_default();
    // kubectl offers options only where one has begun.
    let shown = found.iter().filter(|found| {
        last.starts_with('-') || !found.get_value().to_string_lossy().starts_with('-')
    });
    let lines = shown.map(|found| {
        let about = found.get_help().map(ToString::to_string);
        let about = about.map(|about| format!("\t{}", one_line(&about)));
        let word = found.get_value().to_string_lossy();
        format!("{word}{}\n", about.unwrap_or_default())
    });
    lines.collect::<String>() + NO_FILES + "\n"
}

/// The command line, with where the names of its arguments come from.
fn command(typed: &[String]) -> Command {
    let connection = connection(typed);
    let names = |names| {
        let connection = connection.clone();
        ArgValueCandidates::new(move || {
            let found = look_up(&connection, names).unwrap_or_default();
            found.into_iter().map(CompletionCandidate::new).collect()
        })
    };
    let completes = |command: Command, argument: &'static str, what: Names| {
        command.mut_arg(argument, |argument| argument.add(names(what)))
    };
    let mut all = Cli::command();
    for (argument, what) in [
        ("namespace", Names::Namespaces),
        ("context", Names::Contexts),
        ("cluster", Names::ContextClusters),
        ("user", Names::Users),
    ] {
        all = completes(all, argument, what);
    }
    for (command, argument, what) in [
        ("status", "clusters", Names::Clusters),
        ("explain", "pod", Names::Members),
        ("drain", "nodes", Names::Nodes),
        ("override", "target", Names::Targets),
        ("replace", "member", Names::Members),
        ("scale", "name", Names::Clusters),
        ("recover", "name", Names::Clusters),
    ] {
        all = all.mut_subcommand(command, |command| completes(command, argument, what));
    }
    for gate in ["doctor", "report", "version"] {
        all = all.mut_subcommand(gate, |command| {
            completes(command, "gate_namespace", Names::Namespaces)
        });
    }
    all.mut_subcommand("rollout", |mut rollout| {
        for command in ["status", "pause", "resume", "proceed"] {
            rollout = rollout.mut_subcommand(command, |command| {
                completes(command, "name", Names::Clusters)
            });
        }
        rollout
    })
}

/// The connection that the words before the last one ask for. What else they say may be unfinished,
/// so only the flags of a connection are read.
fn connection(typed: &[String]) -> Connection {
    let flags = Connection::augment_args(Command::new("kubectl-quorum"));
    let mut before = typed.iter().take(typed.len().saturating_sub(1));
    let mut line = vec!["kubectl-quorum"];
    while let Some(word) = before.next() {
        let (name, value) = word.split_once('=').unzip();
        let name = name.unwrap_or(word);
        let is_short = name.starts_with('-') && !name.starts_with("--");
        let known = flags.get_arguments().find(|flag| {
            let short = flag.get_short().filter(|_| is_short);
            short.is_some_and(|short| name[1..].starts_with(short))
                || name
                    .strip_prefix("--")
                    .is_some_and(|long| flag.get_long() == Some(long))
        });
        let Some(known) = known else { continue };
        let has_value = value.is_some() || is_short && name.len() > 2;
        if !known.get_action().takes_values() || has_value {
            line.push(word);
        } else if let Some(value) = before.next() {
            line.extend([word.as_str(), value]);
        }
    }
    let matches = flags.try_get_matches_from(line);
    let connection = matches.map(|found| Connection::from_arg_matches(&found));
    connection.ok().and_then(Result::ok).unwrap_or_default()
}

fn look_up(connection: &Connection, what: Names) -> Result<Vec<String>> {
    if let Names::Contexts | Names::ContextClusters | Names::Users = what {
        let file = connection.kubeconfig()?;
        return Ok(match what {
            Names::Contexts => file.contexts.into_iter().map(|named| named.name).collect(),
            Names::ContextClusters => file.clusters.into_iter().map(|named| named.name).collect(),
            _ => file
                .auth_infos
                .into_iter()
                .map(|named| named.name)
                .collect(),
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let found = async { read(&connection.open().await?, what).await };
        timeout(PATIENCE, found).await?
    })
}

async fn read(of: &Kubernetes, what: Names) -> Result<Vec<String>> {
    let all = ListParams::default();
    Ok(match what {
        Names::Namespaces => {
            let namespaces = Api::<Namespace>::all(of.client.clone());
            namespaces
                .list_metadata(&all)
                .await?
                .iter()
                .map(ResourceExt::name_any)
                .collect()
        }
        Names::Nodes => {
            let nodes = Api::<Node>::all(of.client.clone());
            nodes
                .list_metadata(&all)
                .await?
                .iter()
                .map(ResourceExt::name_any)
                .collect()
        }
        Names::Clusters | Names::Members | Names::Targets => {
            let clusters = here(of).await?;
            let names = clusters.iter().map(|cluster| cluster.name.clone());
            let members = clusters.iter().flat_map(|cluster| &cluster.members);
            let members = members.filter_map(|member| member.pod.clone());
            match what {
                Names::Clusters => names.collect(),
                Names::Members => members.collect(),
                _ => names.chain(members).collect(),
            }
        }
        Names::Contexts | Names::ContextClusters | Names::Users => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cluster::tests::degraded_budget;
    use crate::connect::tests::{api_server, list};

    fn given(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    fn words(typed: &[&str]) -> Vec<String> {
        let answer = answer_kubectl(&given(typed));
        let mut lines: Vec<_> = answer.lines().map(str::to_owned).collect();
        assert_eq!(lines.pop().as_deref(), Some(NO_FILES));
        let word = |line: String| line.split('\t').next().unwrap_or_default().to_owned();
        lines.into_iter().map(word).collect()
    }

    #[test]
    fn commands_and_options_are_completed() {
        assert_eq!(words(&["ex"]), ["explain"]);
        assert_eq!(words(&["rollout", "p"]), ["pause", "proceed"]);
        assert_eq!(words(&["override", "etcd-0", "--reas"]), ["--reason"]);
        assert_eq!(words(&["status", "--namesp"]), ["--namespace"]);
        assert_eq!(words(&["status", "-o", "w"]), ["wide"]);
        assert!(words(&[""]).contains(&"doctor".to_owned()));
        assert!(!words(&[""]).contains(&"__complete".to_owned()));
        assert!(words(&[]).iter().all(|word| !word.starts_with('-')));
    }

    #[test]
    fn names_of_the_kubeconfig_are_completed_by_the_flags_so_far() {
        let file = std::env::temp_dir().join(format!("kubectl-quorum-c{}", std::process::id()));
        let text = json!({"apiVersion": "v1", "kind": "Config",
            "contexts": [{"name": "north", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "https://c"}}],
            "users": [{"name": "u", "user": {}}]});
        std::fs::write(&file, text.to_string()).unwrap();
        let flag = format!("--kubeconfig={}", file.display());
        let after = |typed: &[&str]| words(&[&[flag.as_str()], typed].concat());
        assert_eq!(after(&["status", "--context", "n"]), ["north"]);
        assert_eq!(after(&["status", "--cluster", ""]), ["c"]);
        assert_eq!(after(&["status", "--user=u"]), ["--user=u"]);
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn the_connection_is_that_of_the_words_before() {
        let typed = given(&["status", "-n", "db", "--as=jane", "et"]);
        let found = connection(&typed);
        assert_eq!(found.namespace.as_deref(), Some("db"));
        assert_eq!(found.as_user.as_deref(), Some("jane"));
        for flag in [
            &["-n", "db"][..],
            &["-ndb"],
            &["-n=db"],
            &["--namespace=db"],
        ] {
            let typed = [&["override", "--for", "soon"], flag, &[""]].concat();
            let unfinished = connection(&given(&typed));
            assert_eq!(unfinished.namespace.as_deref(), Some("db"), "{flag:?}");
        }
    }

    #[tokio::test]
    async fn names_in_the_cluster_are_completed() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        let (of, _) = api_server(&[
            (
                "/api/v1/nodes",
                list("PartialObjectMetadata", &[named("node-1")]),
            ),
            (
                "/api/v1/namespaces",
                list("PartialObjectMetadata", &[named("db")]),
            ),
            (
                "/apis/quorumgate.io/v1alpha1/namespaces/db/quorumdisruptionbudgets",
                list("QuorumDisruptionBudget", &[degraded_budget()]),
            ),
        ]);
        let pods = ["etcd-0", "etcd-1", "etcd-2"];
        assert_eq!(read(&of, Names::Nodes).await.unwrap(), ["node-1"]);
        assert_eq!(read(&of, Names::Namespaces).await.unwrap(), ["db"]);
        assert_eq!(read(&of, Names::Clusters).await.unwrap(), ["etcd"]);
        assert_eq!(read(&of, Names::Members).await.unwrap(), pods);
        assert_eq!(read(&of, Names::Targets).await.unwrap().len(), 4);
    }

    #[test]
    fn each_shell_has_a_script_that_asks_this_program() {
        for shell in [
            Shell::Bash,
            Shell::Elvish,
            Shell::Fish,
            Shell::Powershell,
            Shell::Zsh,
        ] {
            let script = script(shell).unwrap();
            assert!(script.contains(ASKED), "{shell:?}: {script}");
        }
    }
}
