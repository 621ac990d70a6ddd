//! The alerts of the chart: their metrics are those of the program, each has its runbook, and each
//! is tested both ways. `make alerts` runs the tests with promtool.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use quorumgate::api::condition;
use serde_json::Value;

use crate::documents::anchor;
use crate::manifests::documents;
use crate::metrics::Known;

const ALERTS: &str = "charts/quorumgate/alerts.yaml";
const TESTS: &str = "tests/alerts/rules_test.yaml";
const RUNBOOKS: &str = "docs/troubleshoot.md";

/// Metrics of API servers, with their labels.
const OF_API_SERVERS: [(&str, &[&str]); 1] = [(
    "apiserver_admission_webhook_rejection_count",
    &["name", "error_type"],
)];

/// Words of the query language that are no metrics.
const KEYWORDS: [&str; 6] = ["and", "or", "on", "by", "unless", "offset"];

struct Alert {
    name: String,
    expression: String,
    rule: Value,
}

fn alerts() -> Vec<Alert> {
    let groups = documents(ALERTS).remove(0);
    let groups = groups["groups"].as_array().unwrap().clone();
    let rules = groups
        .into_iter()
        .flat_map(|group| group["rules"].as_array().unwrap().clone());
    let alerts: Vec<Alert> = rules
        .map(|rule| Alert {
            name: rule["alert"].as_str().unwrap().to_owned(),
            expression: rule["expr"].as_str().unwrap().to_owned(),
            rule,
        })
        .collect();
    assert!(alerts.len() > 12, "{} alerts", alerts.len());
    alerts
}

/// A selector of series: the metric, and the labels that it asks for with their values.
pub(crate) type Selector = (String, Vec<(String, String)>);

/// The selectors of an expression.
pub(crate) fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut rest = expression;
    // Labels of `by (…)` and `on (…)` are no metrics, and durations are no names.
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        rest = &rest[start..];
        let end = rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        let behind = after.trim_start();
        let mut next = after;
        if ["by", "on"].contains(&word) && behind.starts_with('(') {
            next = behind.split_once(')').unwrap().1;
        } else if let Some(labels) = after.strip_prefix('{') {
            let (inside, outside) = labels.split_once('}').unwrap();
            found.push((word.to_owned(), labels_of(inside)));
            next = outside;
        } else if !KEYWORDS.contains(&word)
            && !behind.starts_with('(')
            && !behind.starts_with("by ")
        {
            found.push((word.to_owned(), Vec::new()));
        }
        rest = next.trim_start_matches(|c: char| c.is_ascii_whitespace());
        if let Some(range) = rest.strip_prefix('[') {
            rest = range.split_once(']').unwrap().1;
        }
        if let Some(offset) = rest.trim_start().strip_prefix("offset ") {
            rest = offset.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        }
    }
    found
}

fn labels_of(inside: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = inside;
    while let Some((name, after)) = rest.split_once('"') {
        let (value, behind) = after.split_once('"').unwrap();
        let name = name.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        labels.push((name.to_owned(), value.to_owned()));
        rest = behind;
    }
    labels
}

#[test]
fn selectors_are_found_in_expressions() {
    let expression = r#"max by (namespace, cluster) (f(a_b{x="1",y!~"2, 3"}[5m] offset 1w)) == 0
        and on (z) time() - c > 1800"#;
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expected = vec![
        ("a_b".to_owned(), vec![pair("x", "1"), pair("y", "2, 3")]),
        ("c".to_owned(), vec![]),
    ];
    assert_eq!(selectors(expression), expected);
}

#[test]
fn alerts_ask_for_metrics_and_labels_that_exist() {
    let known = Known::read();
    let mut metrics: BTreeMap<String, BTreeSet<String>> = known.series();
    for (name, labels) in OF_API_SERVERS {
        let labels = labels.iter().map(|label| (*label).to_owned());
        metrics.insert(name.to_owned(), labels.collect());
    }
    for alert in alerts() {
        let selectors = selectors(&alert.expression);
        assert!(!selectors.is_empty(), "{} asks for nothing", alert.name);
        for (metric, asked) in selectors {
            let labels = metrics
                .get(&metric)
                .unwrap_or_else(|| panic!("{}: there is no metric {metric}", alert.name));
            for (label, _) in asked {
                assert!(
                    labels.contains(&label),
                    "{}: {metric} has no label {label}",
                    alert.name
                );
            }
        }
    }
}

#[test]
fn alerts_ask_for_conditions_that_budgets_have() {
    let conditions = [
        condition::QUORUM_HEALTHY,
        condition::PROGRESSING,
        condition::CLUSTER_ID_CONSISTENT,
        condition::DATA_PROTECTED,
        condition::EVIDENCE_LIVE,
        condition::LEDGER_TRUSTED,
        condition::GATE_ACTIVE,
        condition::DATA_INTACT,
        condition::ALARMS_CLEAR,
        condition::BACKUPS_RECENT,
        condition::DATA_RESTORABLE,
        condition::SCALED,
        condition::RECOVERED,
    ];
    let mut asked = BTreeSet::new();
    for alert in alerts() {
        for (_, labels) in selectors(&alert.expression) {
            let of = |name: &str| labels.iter().find(|(label, _)| label == name);
            if let Some((_, value)) = of("condition") {
                asked.insert(value.clone());
                let status = &of("status").unwrap().1;
                assert!(
                    ["True", "False"].contains(&status.as_str()),
                    "{}",
                    alert.name
                );
            }
        }
    }
    let conditions: BTreeSet<String> = conditions.into_iter().map(str::to_owned).collect();
    assert_eq!(asked, conditions);
}

#[test]
fn every_alert_has_its_runbook_and_every_runbook_its_alert() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(RUNBOOKS));
    let text = text.unwrap();
    let repository = env!("CARGO_PKG_REPOSITORY");
    let mut named = BTreeSet::new();
    for alert in alerts() {
        let annotations = &alert.rule["annotations"];
        for field in ["summary", "description"] {
            assert!(annotations[field].is_string(), "{}: no {field}", alert.name);
        }
        let severity = alert.rule["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity));
        let heading = format!("### {}", alert.name);
        let url = format!("{repository}/blob/main/{RUNBOOKS}#{}", anchor(&heading));
        assert_eq!(annotations["runbook_url"], url, "{}", alert.name);
        named.insert(heading);
    }
    let (_, runbooks) = text.split_once("\n## Alerts\n").unwrap();
    let sections: BTreeMap<&str, &str> = runbooks
        .split("\n### ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .collect();
    let headings = sections.keys().map(|name| format!("### {name}"));
    assert_eq!(headings.collect::<BTreeSet<_>>(), named);
    for (name, section) in sections {
        let mut at = 0;
        for part in ["Meaning", "Impact", "Diagnosis", "Mitigation"] {
            let found = section.find(&format!("\n**{part}.**"));
            let found = found.unwrap_or_else(|| panic!("{name} has no {part}"));
            assert!(found >= at, "{name}: {part} is out of order");
            at = found;
        }
    }
}

/// promtool runs the tests; this one sees that no alert is left out.
#[test]
fn every_alert_is_tested_to_fire_and_not_to() {
    let tests = documents(TESTS).remove(0);
    let tests = tests["tests"].as_array().unwrap();
    let cases = tests
        .iter()
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let mut fires = BTreeSet::new();
    let mut rests = BTreeSet::new();
    for case in cases {
        let name = case["alertname"].as_str().unwrap().to_owned();
        if case["exp_alerts"].as_array().unwrap().is_empty() {
            rests.insert(name);
        } else {
            fires.insert(name);
        }
    }
    let all: BTreeSet<String> = alerts().into_iter().map(|alert| alert.name).collect();
    assert_eq!(fires, all, "tested to fire");
    assert_eq!(rests, all, "tested not to fire");
}
