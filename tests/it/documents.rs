//! What the documents say is shown by tests that exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension() == Some("rs".as_ref()) {
            files.push(path);
        }
    }
    files
}

/// The name of every test.
fn tests() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for directory in ["src", "tests", "testbed/src", "testbed/tests"] {
        for file in sources(&root().join(directory)) {
            let text = std::fs::read_to_string(file).unwrap();
            let attributes = ["#[test]", "#[tokio::test"];
            let mut lines = text.lines().map(str::trim);
            while let Some(line) = lines.next() {
                if attributes.iter().any(|start| line.starts_with(start)) {
                    let declared = lines.find_map(|line| line.split_once("fn "));
                    let name = declared.and_then(|(_, rest)| rest.split_once('('));
                    names.extend(name.map(|(name, _)| name.to_owned()));
                }
            }
        }
    }
    names
}

/// What stands in backquotes in the last column of the tables of a document, row by row.
fn named(document: &str) -> Vec<(String, Vec<String>)> {
    let text = std::fs::read_to_string(root().join("docs").join(document)).unwrap();
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
    let tests = tests();
    for document in ["security.md", "failure-modes.md"] {
        let rows = named(document);
        let names: Vec<_> = rows.iter().flat_map(|(_, names)| names).collect();
        assert!(names.len() > 20, "{document} names {} tests", names.len());
        for name in names {
            assert!(
                tests.contains(name),
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
