//! The reference pages that are written from the program: every field of the custom resources,
//! every option of the command line, and the rules. `make pages` writes them.

use std::fmt::Write as _;
use std::path::Path;

use clap::CommandFactory as _;
use quorumgate::cli::Cli;
use serde_json::Value;

use crate::manifests::documents;

/// Compares a page with what the program says, or writes it anew, as `command` does.
pub(crate) fn is_up_to_date(path: &str, made: &str, command: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, made).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        written == made,
        "{path} is out of date: run {command}, and read the difference"
    );
}

#[test]
fn the_page_of_fields_has_every_field_of_the_custom_resources() {
    let mut page = "# Fields of the custom resources\n\n\
        <!-- Written by `make pages`; edit the doc comments in api/src. -->\n\n\
        What `kubectl explain` says, on one page. `[]` stands for each entry of a list, `{}` for each value of a map.\n"
        .to_owned();
    for file in [
        "manifests/base/crds.yaml",
        "manifests/etcd-members/crd.yaml",
    ] {
        for definition in documents(file) {
            let spec = &definition["spec"];
            let kind = spec["names"]["kind"].as_str().unwrap();
            let version = &spec["versions"][0];
            let (group, name) = (&spec["group"], &version["name"]);
            let api = format!("{}/{}", group.as_str().unwrap(), name.as_str().unwrap());
            let schema = &version["schema"]["openAPIV3Schema"];
            write!(page, "\n## {kind}\n\n`{api}`. {}\n", text(schema)).unwrap();
            for part in ["spec", "status"] {
                let found = &schema["properties"][part];
                let mut rows = Vec::new();
                fields(part, found, &mut rows);
                // An EtcdMember has nothing to be specified.
                if rows.is_empty() {
                    continue;
                }
                write!(page, "\n### {kind}: {part}\n\n{}\n\n", text(found)).unwrap();
                page.push_str("| field | type | meaning |\n|---|---|---|\n");
                page.extend(rows);
            }
        }
    }
    assert!(page.lines().count() > 100, "{page}");
    is_up_to_date("docs/fields.md", &page, "make pages");
}

/// The rows of everything below `path`.
fn fields(path: &str, schema: &Value, rows: &mut Vec<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, field) in properties {
        let mut path = format!("{path}.{name}");
        let kind = kind(field);
        rows.push(format!("| `{path}` | {kind} | {} |\n", text(field)));
        let (mut below, mut suffix) = (field, "");
        if field["items"].is_object() {
            (below, suffix) = (&field["items"], "[]");
        } else if field["additionalProperties"].is_object() {
            (below, suffix) = (&field["additionalProperties"], "{}");
        }
        path.push_str(suffix);
        fields(&path, below, rows);
    }
}

fn kind(field: &Value) -> String {
    if let Some(values) = field["enum"].as_array() {
        let values = values.iter().filter_map(Value::as_str);
        return values
            .map(|value| format!("`{value}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let name = field["type"].as_str().unwrap_or("number or string");
    let bounds = match (&field["minimum"], &field["maximum"]) {
        (Value::Null, Value::Null) => String::new(),
        (least, Value::Null) => format!(", from {least}"),
        (Value::Null, most) => format!(", to {most}"),
        (least, most) => format!(", {least} to {most}"),
    };
    let form = field["format"]
        .as_str()
        .filter(|form| form.contains("date"));
    let form = form.map(|form| format!(", {form}")).unwrap_or_default();
    format!("{name}{bounds}{form}")
}

/// A description in one line of a table.
fn text(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

#[test]
fn the_page_of_options_has_every_option_of_every_command() {
    let mut page = "# Options\n\n\
        <!-- Written by `make pages`; edit the doc comments in src/cli.rs. -->\n\n\
        What `quorumgate COMMAND --help` says, on one page. A bad value is refused before anything starts.\n"
        .to_owned();
    for command in Cli::command().get_subcommands() {
        let about = command.get_long_about().or(command.get_about()).unwrap();
        write!(page, "\n## quorumgate {}\n\n{about}\n", command.get_name()).unwrap();
        let mut options = command.get_arguments().peekable();
        if options.peek().is_none() {
            continue;
        }
        page.push_str("\n| option | variable | default | meaning |\n|---|---|---|---|\n");
        for option in options {
            let long = option.get_long().unwrap();
            let value = option
                .get_value_names()
                .filter(|_| option.get_action().takes_values());
            let value = value
                .map(|names| format!(" {}", names[0]))
                .unwrap_or_default();
            let variable = option.get_env().map(|name| format!("`{}`", name.display()));
            let defaults = option.get_default_values().iter();
            let defaults: Vec<_> = defaults
                .map(|value| format!("`{}`", value.display()))
                .collect();
            let help = option
                .get_long_help()
                .or(option.get_help())
                .unwrap()
                .to_string();
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            writeln!(
                page,
                "| `--{long}{value}` | {} | {} | {} |",
                variable.unwrap_or_default(),
                defaults.join(", "),
                help.replace('|', "\\|")
            )
            .unwrap();
        }
    }
    is_up_to_date("docs/options.md", &page, "make pages");
}

/// The files with the rules.
const RULES: [&str; 3] = [
    "core/src/quorum/decide/early.rs",
    "core/src/quorum/decide/general.rs",
    "core/src/quorum/decide/members.rs",
];

#[test]
fn the_page_of_rules_has_every_rule_in_the_order_in_which_it_is_asked() {
    let read = |path: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
    };
    let sources = RULES.map(|path| (path, read(path)));
    let mut page = "# The rules\n\n\
        <!-- Written by `make pages`; edit the doc comments of the rules in core/src/quorum/decide. -->\n\n\
        A disruption of a member is decided by the first rule that applies. Rule 10 is asked only where\n\
        the others would allow. *Wait* is answered by 429, *refused* by 403; [reference](reference.md#refusals)\n\
        has the words. [How it works inside](internals.md#what-is-decided-and-about-whom) has the rest.\n"
        .to_owned();
    let order = read("core/src/quorum/decide/mod.rs");
    let mut names: Vec<&str> = Vec::new();
    let early = &sources[0].1;
    let defined = early.split("fn rule_").skip(1);
    names.extend(defined.filter_map(|rest| rest.split('(').next()));
    let asked = order
        .split("const ")
        .filter(|part| part.contains(": [Rule;"));
    for part in asked {
        let list = part.split("];").next().unwrap_or_default();
        for line in list
            .lines()
            .filter_map(|line| line.trim().strip_suffix(','))
        {
            let name = line.rsplit("::").next().unwrap_or_default();
            names.push(name.strip_prefix("rule_").unwrap_or(name));
        }
    }
    names.push("10_disruption_budget");
    names.push("17_no_headroom");
    for name in &names {
        let (path, text) = described(&sources, name);
        let numbered = name.starts_with(|c: char| c.is_numeric());
        let (number, words) = name.split_once('_').unwrap_or((name, name));
        let title = if numbered {
            format!("Rule {number}: {}", words.replace('_', " "))
        } else {
            format!("Between them: {}", name.replace('_', " "))
        };
        let text = text
            .strip_prefix(&format!("Rule {number}: "))
            .unwrap_or(&text);
        let (first, rest) = text.split_at(1);
        let first = first.to_uppercase();
        write!(page, "\n## {title}\n\n{first}{rest}\n`{path}`\n").unwrap();
    }
    let numbered = names
        .iter()
        .filter(|name| name.starts_with(|c: char| c.is_numeric()));
    assert_eq!(numbered.count(), 17, "{names:?}");
    is_up_to_date("docs/rules.md", &page, "make pages");
}

/// The file of a rule, and its doc comment.
fn described<'s>(sources: &'s [(&'s str, String)], name: &str) -> (&'s str, String) {
    let named = |text: &str| {
        let lines: Vec<&str> = text.lines().collect();
        let is_it = |line: &&str| {
            ["rule_", ""]
                .iter()
                .any(|kind| line.contains(&format!("fn {kind}{name}(")))
        };
        let at = lines.iter().position(is_it)?;
        let comment = lines[..at].iter().rev();
        let mut comment: Vec<&str> = comment.map_while(|line| line.strip_prefix("///")).collect();
        comment.reverse();
        let lines = comment
            .iter()
            .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)));
        Some(lines.collect::<String>())
    };
    sources
        .iter()
        .find_map(|(path, text)| named(text).map(|text| (*path, text)))
        .unwrap_or_else(|| panic!("no rule {name}"))
}
