//! Completion: the scripts of shells, and the answers to `kubectl` when it completes a plugin.

use clap::{Command, CommandFactory as _};

use crate::cli::Cli;

/// Tells `kubectl` that files complete nothing (cobra's `ShellCompDirectiveNoFileComp`).
const NO_FILES: &str = ":4";

/// What may stand in the place of the last word, in the form that `kubectl` reads from
/// `kubectl_complete-quorum`: a line each, with its description, and a directive at the end.
pub(crate) fn answer(words: &[String]) -> String {
    let (last, before) = words
        .split_last()
        .map_or(("", words), |(l, b)| (l.as_str(), b));
    let top = Cli::command();
    let mut at = &top;
    for word in before {
        at = at.find_subcommand(word).unwrap_or(at);
    }
    let mut found = if last.starts_with('-') {
        options(&top, at)
    } else {
        commands(at)
    };
    found.retain(|(word, _)| word.starts_with(last));
    found.sort();
    found.dedup();
    let lines = found
        .iter()
        .map(|(word, about)| format!("{word}\t{about}\n"));
    lines.collect::<String>() + NO_FILES + "\n"
}

fn commands(at: &Command) -> Vec<(String, String)> {
    let shown = at
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    shown
        .map(|command| {
            let about = command.get_about().map(ToString::to_string);
            (command.get_name().to_owned(), about.unwrap_or_default())
        })
        .collect()
}

fn options(top: &Command, at: &Command) -> Vec<(String, String)> {
    let everywhere = top.get_arguments().filter(|option| option.is_global_set());
    at.get_arguments()
        .chain(everywhere)
        .filter_map(|option| {
            let help = option.get_help().map(ToString::to_string);
            Some((
                format!("--{}", option.get_long()?),
                help.unwrap_or_default(),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(given: &[&str]) -> Vec<String> {
        let words: Vec<_> = given.iter().map(|&word| word.to_owned()).collect();
        let answer = answer(&words);
        let mut lines: Vec<_> = answer.lines().map(str::to_owned).collect();
        assert_eq!(lines.pop().as_deref(), Some(NO_FILES));
        let word = |line: String| line.split('\t').next().unwrap_or_default().to_owned();
        lines.into_iter().map(word).collect()
    }

    #[test]
    fn commands_and_options_are_completed() {
        assert_eq!(words(&["ex"]), ["explain"]);
        assert_eq!(words(&["rollout", "p"]), ["pause", "proceed"]);
        assert_eq!(words(&["override", "etcd-0", "--r"]), ["--reason"]);
        assert_eq!(words(&["status", "--n"]), ["--namespace"]);
        assert!(words(&[""]).contains(&"doctor".to_owned()));
        assert!(!words(&[""]).contains(&"__complete".to_owned()));
    }
}
