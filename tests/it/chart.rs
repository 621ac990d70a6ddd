//! The chart, as far as it can be read without helm. `tests/e2e/chart.rs` renders and installs it.

use std::collections::BTreeSet;
use std::path::Path;

use quorumgate::features::Features;
use serde_json::Value;

use crate::manifests::documents;
use crate::sources::files_below;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn schema() -> Value {
    serde_json::from_str(&read("charts/quorumgate/values.schema.json")).unwrap()
}

fn values() -> Value {
    documents("charts/quorumgate/values.yaml").remove(0)
}

#[test]
fn the_definitions_of_the_chart_are_those_of_this_version() {
    for (file, generated) in [
        ("quorumdisruptionbudgets", quorumgate::api::crds_yaml()),
        ("etcdmembers", quorumgate::api::etcd_members_crd_yaml()),
    ] {
        let file = format!("charts/quorumgate/files/{file}.yaml");
        assert!(
            read(&file) == generated.unwrap(),
            "{file} is out of date: run `make crds`"
        );
    }
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart = documents("charts/quorumgate/Chart.yaml").remove(0);
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
    assert_eq!(chart["home"], env!("CARGO_PKG_REPOSITORY"));
}

#[test]
fn every_feature_can_be_switched_by_the_chart_and_no_other() {
    let schema = schema();
    let gates = schema
        .pointer("/properties/featureGates/properties")
        .unwrap();
    let gates: BTreeSet<&str> = gates
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let features = Features::default();
    let features: BTreeSet<&str> = features.all().map(|(name, _)| name).collect();
    assert_eq!(gates, features);
}

/// The paths of all values: those of a map whose keys the schema names, down to what has a value.
fn paths(schema: &Value, value: &Value, path: &str, found: &mut BTreeSet<String>) {
    let properties = schema["properties"].as_object();
    let inner = properties.filter(|_| value.as_object().is_some_and(|value| !value.is_empty()));
    let free = ["resources", "featureGates"];
    match inner.filter(|_| !free.contains(&path)) {
        Some(properties) => {
            let value = value.as_object().unwrap();
            let known: BTreeSet<&String> = properties.keys().collect();
            let given: BTreeSet<&String> = value.keys().collect();
            assert_eq!(known, given, "values.yaml and its schema, in {path:?}");
            for (key, schema) in properties {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                paths(schema, &value[key], &path, found);
            }
        }
        None => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn every_value_is_in_the_schema_and_described_in_the_read_me() {
    let mut found = BTreeSet::new();
    paths(&schema(), &values(), "", &mut found);
    assert!(found.len() > 30, "{found:?}");
    let readme = read("charts/quorumgate/README.md");
    let rows = readme.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Vec<&str>> = rows
        .map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for path in &found {
        let row = rows.iter().find(|row| row[0] == path);
        let row = row.unwrap_or_else(|| panic!("README.md lacks {path}: run `make chart`"));
        let description = row.last().unwrap();
        assert!(description.len() > 10, "{path} has no comment");
    }
}

/// The effect of a value that no test sets may be none.
#[test]
fn every_value_is_set_by_a_test() {
    let mut found = BTreeSet::new();
    paths(&schema(), &values(), "", &mut found);
    let files = files_below("tests/e2e/chart", &["rs"]);
    assert!(files.len() > 4, "{} files", files.len());
    let set = |path: &str| files.iter().any(|(_, text)| sets(text, path));
    found.retain(|path| !set(path));
    assert!(found.is_empty(), "tests/e2e/chart sets no {found:?}");
}

/// Whether a source has the path of a value, or of a part of that, as helm's arguments write it:
/// `"PATH=`, `--set=PATH[` or `,PATH.`.
fn sets(source: &str, path: &str) -> bool {
    let parts: Vec<&str> = source.split(path).collect();
    let mut places = parts.windows(2);
    places.any(|at| at[0].ends_with(['"', '=', ',']) && at[1].starts_with(['=', '[', '.']))
}

#[test]
fn a_value_is_set_where_it_is_an_argument_of_helm() {
    for source in [
        r#"["traces.endpoint=http://x"]"#,
        r#""--set=traces.endpoint=x""#,
        r#""a=b,traces.endpoint.part=x""#,
        r#"traces.endpoint, "traces.endpoint[0]=x""#,
    ] {
        assert!(sets(source, "traces.endpoint"), "{source}");
    }
    for source in [
        "// Without `traces.endpoint` there are none.",
        r#""own.traces.endpoint=x""#,
        r#""traces.endpoints=x""#,
    ] {
        assert!(!sets(source, "traces.endpoint"), "{source}");
    }
}

/// A chart that depends on this one passes `global` values, and mistypes nothing else.
#[test]
fn unknown_values_are_refused_but_for_global() {
    let schema = schema();
    assert_eq!(schema["additionalProperties"], false);
    let global = &schema["properties"]["global"];
    assert_eq!(global.get("additionalProperties"), None);
    for (name, value) in schema["properties"].as_object().unwrap() {
        if value.get("properties").is_some() && name != "global" {
            assert_eq!(value["additionalProperties"], false, "{name}");
        }
    }
}
