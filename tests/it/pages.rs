//! The reference pages that are written from the program: every field of the custom resources, and
//! every option of the command line. `make pages` writes them.

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
        <!-- Written by `make pages`; edit the doc comments in src/api. -->\n\n\
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
