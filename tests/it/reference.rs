//! The tables of `docs/reference.md` and `docs/troubleshoot.md`, compared with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use kube::CustomResourceExt as _;
use quorumgate::admission::Problem;
use quorumgate::api::QuorumDisruptionBudget;
use quorumgate::plan::{WaitingOn, defragmentation, recovery, replacement, scale};
use quorumgate::quorum::Reason;
use serde_json::{Value, json};
use strum::VariantNames as _;

use crate::sources::files_below;

const REFERENCE: &str = "docs/reference.md";

/// The files with the sentences that a refused caller reads.
const SENTENCES: [&str; 3] = [
    "core/src/quorum/verdict.rs",
    "src/admission/rejection.rs",
    "src/admission/malformed.rs",
];

fn read(path: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text of a document from this heading to the next.
pub(crate) fn section(document: &str, heading: &str) -> String {
    let text = read(document);
    let mut lines = text.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "{document} has no {heading:?}");
    let lines: Vec<&str> = lines.take_while(|line| !line.starts_with('#')).collect();
    lines.join("\n")
}

/// The rows of the table in a section, without the head.
fn rows(document: &str, heading: &str) -> Vec<Vec<String>> {
    let text = section(document, heading);
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let cells = |row: &str| -> Vec<String> {
        let row = row.trim_matches('|');
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let rows: Vec<_> = rows.skip(1).map(cells).collect();
    assert!(rows.len() > 4, "{document}, {heading:?}: {rows:?}");
    rows
}

/// The words in backquotes.
pub(crate) fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn first_words(heading: &str) -> Vec<String> {
    let rows = rows(REFERENCE, heading);
    let words = rows.iter().flat_map(|row| quoted(&row[0]));
    words.map(str::to_owned).collect()
}

/// Checks that `told` has each known word once, and no others.
fn assert_same<'a>(told: &[String], known: impl IntoIterator<Item = &'a str>) {
    let known: BTreeSet<&str> = known.into_iter().collect();
    let set: BTreeSet<&str> = told.iter().map(String::as_str).collect();
    assert_eq!(set, known);
    assert_eq!(told.len(), set.len(), "told twice: {told:?}");
}

#[test]
fn every_reason_to_refuse_has_one_row() {
    let known = Reason::VARIANTS.iter();
    // The judge has one more refusal, in the words of the API server.
    let known = known.chain(&["NoSuchPod"]).copied();
    assert_same(&first_words("## Refusals"), known);
}

#[test]
fn every_request_without_a_verdict_has_its_row() {
    let told = first_words("### Requests without a verdict");
    assert_same(&told, Problem::VARIANTS.iter().copied());
}

#[test]
fn what_a_refusal_is_quoted_with_is_what_it_says() {
    let sources = SENTENCES.map(read).concat();
    let refusals = rows(REFERENCE, "## Refusals").into_iter();
    let others = rows(REFERENCE, "### Requests without a verdict").into_iter();
    let mut said: Vec<String> = refusals.chain(others).map(|row| row[2].clone()).collect();
    let common = rows(
        "docs/troubleshoot.md",
        "## A delete or an eviction is denied",
    )
    .into_iter();
    said.extend(common.map(|row| row[0].clone()));
    for said in said {
        for part in said.split('…').map(str::trim) {
            assert!(
                part.len() > 7 && sources.contains(part),
                "no refusal says {part:?} (of {said:?})"
            );
        }
    }
}

#[test]
fn every_label_and_annotation_of_the_gates_has_one_row() {
    let sources = ["api/src/names.rs", "src/reachability/slice.rs"].map(read);
    let literals = sources.iter().flat_map(|text| text.split('"'));
    let known: BTreeSet<&str> = literals
        .filter(|text| text.strip_prefix("quorumgate.io/").is_some())
        .collect();
    assert!(known.len() > 6, "{known:?}");
    let told = first_words("## Labels and annotations");
    let told: Vec<String> = told
        .into_iter()
        .filter(|name| name.starts_with("quorumgate.io/"))
        .collect();
    assert_same(&told, known);
}

fn fields_of<'a>(schema: &'a Value, found: &mut BTreeSet<&'a str>) {
    let fields = schema.get("properties").and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten() {
        found.insert(name);
        fields_of(field, found);
    }
}

#[test]
fn every_field_of_a_budgets_spec_is_told() {
    let definition = json!(QuorumDisruptionBudget::crd());
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    let mut known = BTreeSet::new();
    fields_of(definition.pointer(spec).unwrap(), &mut known);
    assert!(known.len() > 20, "{known:?}");
    let rows = rows(REFERENCE, "## What a budget says");
    let told: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| quoted(&row[0]))
        .flat_map(|path| path.split('.'))
        .collect();
    assert_eq!(told, known);
}

/// The words of a source that are spelled like reasons of conditions.
fn camel_case_literals(source: &str) -> BTreeSet<String> {
    let program = source.split("#[cfg(test)]").next().unwrap_or_default();
    let literals = program.split('"').skip(1).step_by(2);
    let camel = literals.filter(|text| {
        text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.len() > 3
            && text.chars().all(|c| c.is_ascii_alphanumeric())
            && !["True", "False", "Unknown"].contains(text)
    });
    camel.map(str::to_owned).collect()
}

#[test]
fn every_condition_and_each_of_its_reasons_is_told() {
    let rows = rows(REFERENCE, "## Conditions of a budget");
    let told: BTreeSet<String> = rows
        .iter()
        .flat_map(|row| quoted(&row[0]))
        .map(str::to_owned)
        .collect();
    let status = read("api/src/status.rs");
    let (_, conditions) = status.split_once("pub mod condition {").unwrap();
    assert_eq!(told, camel_case_literals(conditions));

    let told: BTreeSet<String> = rows
        .iter()
        .flat_map(|row| quoted(&row[1]))
        .map(str::to_owned)
        .collect();
    let mut known = camel_case_literals(&read("src/reconcile/report.rs"));
    let force = read("src/reconcile/in_force.rs");
    let (_, reasons) = force.split_once("fn reason(&self)").unwrap();
    let (reasons, _) = reasons.split_once("\n    }\n").unwrap();
    known.extend(camel_case_literals(reasons));
    let told_of_runs = read("src/reconcile/defragmentation/report.rs");
    let (_, reasons) = told_of_runs.split_once("fn said(").unwrap();
    known.extend(camel_case_literals(reasons));
    let told_of_members = read("src/reconcile/replacement/report.rs");
    let (_, reasons) = told_of_members.split_once("fn said(").unwrap();
    known.extend(camel_case_literals(reasons));
    let refusals = [
        defragmentation::Refusal::VARIANTS,
        replacement::Refusal::VARIANTS,
    ]
    .concat();
    // These have another reason in the condition, or no condition at all.
    let otherwise = [
        "ServingTooShort",
        "MayRecover",
        "Recreation",
        "Joining",
        "Off",
    ];
    let refusals = refusals.into_iter().filter(|r| !otherwise.contains(r));
    known.extend(refusals.map(str::to_owned));
    known.extend(scale::Refusal::VARIANTS.iter().map(|&slug| slug.to_owned()));
    let told_of_numbers = read("src/reconcile/scale.rs");
    for begin in ["fn report(", "fn waiting("] {
        let (_, reasons) = told_of_numbers.split_once(begin).unwrap();
        let (reasons, _) = reasons.split_once("\nfn ").unwrap_or((reasons, ""));
        let (reasons, _) = reasons.split_once("fn rest(").unwrap_or((reasons, ""));
        known.extend(camel_case_literals(reasons));
    }
    known.extend(
        recovery::Refusal::VARIANTS
            .iter()
            .map(|&slug| slug.to_owned()),
    );
    let told_of_recoveries = read("src/reconcile/recovery.rs");
    let (_, reasons) = told_of_recoveries.split_once("fn report(").unwrap();
    let (reasons, _) = reasons.split_once("fn rest(").unwrap();
    known.extend(camel_case_literals(reasons));
    let told_of_backups = read("src/reconcile/backups.rs");
    let (_, reasons) = told_of_backups.split_once("fn said(").unwrap();
    known.extend(camel_case_literals(reasons));
    let told_of_restorations = read("src/reconcile/initialisations.rs");
    let (_, reasons) = told_of_restorations.split_once("fn said(").unwrap();
    let (reasons, _) = reasons.split_once("\n}\n").unwrap();
    known.extend(camel_case_literals(reasons));
    let others = ["Complete", "Stepping", "TLSFailed", "AccessDenied"];
    known.extend(others.map(str::to_owned));
    assert_eq!(told, known);
}

#[test]
fn everything_that_a_rollout_waits_for_has_its_row() {
    let told = first_words("## What a rollout waits for");
    assert_same(&told, WaitingOn::VARIANTS.iter().copied());
}

#[test]
fn every_warning_that_is_told_is_given() {
    let folders = ["src/judge", "src/admission", "src/observe"];
    let files = folders.map(|folder| files_below(folder, &["rs"])).concat();
    let sources: String = files.into_iter().map(|(_, text)| text).collect();
    for row in rows(REFERENCE, "## Warnings") {
        for part in row[0].split('…').map(str::trim) {
            assert!(
                part.len() > 7 && sources.contains(part),
                "nothing says {part:?}"
            );
        }
    }
}
