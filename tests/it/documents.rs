//! What the documents say is shown by tests that exist.

use std::path::Path;

use crate::sources::Tests;

/// What stands in backquotes in the last column of the tables of a document, row by row.
fn named(document: &str) -> Vec<(String, Vec<String>)> {
    let documents = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let text = std::fs::read_to_string(documents.join(document)).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    rows.filter_map(|row| {
        let row = row.trim_end().trim_end_matches('|');
        let (rest, last) = row.rsplit_once('|')?;
        let quoted = last.split('`').skip(1).step_by(2).map(str::to_owned);
        Some((rest.to_owned(), quoted.collect()))
    })
    .collect()
}

#[test]
fn every_test_that_a_document_names_exists() {
    let tests = Tests::read();
    for document in ["security.md", "failure-modes.md"] {
        let rows = named(document);
        let names: Vec<_> = rows.iter().flat_map(|(_, names)| names).collect();
        assert!(names.len() > 20, "{document} names {} tests", names.len());
        for name in names {
            assert!(
                tests.runs(name),
                "{document} names {name}, which is no test"
            );
        }
    }
}

#[test]
fn every_way_to_fail_has_its_test_or_says_why_not() {
    for (row, names) in named("failure-modes.md") {
        let is_head = row.contains("what happens") || row.contains("---");
        let says_why = row.contains("settle time between asking and acting");
        assert!(
            is_head || says_why || !names.is_empty(),
            "no test shows: {row}"
        );
    }
}
