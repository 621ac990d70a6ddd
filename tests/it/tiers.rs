//! Every end-to-end case belongs to one tier of tests.
//!
//! `tests/e2e/promises.txt` names the cases of `make test`. `scripts/e2e --others` skips exactly
//! these, so it runs all others. Cases that are ignored name the command that runs them.

use std::collections::BTreeSet;
use std::path::Path;

use crate::sources::{files_below, tests_in};

/// The most cases that `make test` runs.
const MOST: usize = 40;

/// The names in `tests/e2e/promises.txt`, each with its promise.
fn promises() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/promises.txt");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with('#'));
    let split = lines.map(|line| line.split_once("  ").unwrap_or((line, "")));
    split
        .map(|(name, promise)| (name.into(), promise.into()))
        .collect()
}

/// The cases of `tests/e2e` as the runner names them.
fn cases() -> BTreeSet<String> {
    let mut cases = BTreeSet::new();
    for (path, text) in files_below("tests/e2e", &["rs"]) {
        let module = path
            .trim_start_matches("tests/e2e/")
            .trim_end_matches(".rs");
        let module = module.trim_end_matches("/mod").replace('/', "::");
        cases.extend(tests_in(&text).map(|name| format!("{module}::{name}")));
    }
    cases
}

#[test]
fn each_promise_has_one_case_and_make_test_runs_at_most_forty() {
    let (promises, cases) = (promises(), cases());
    assert!(cases.len() > 200, "{} cases", cases.len());
    assert!(promises.len() <= MOST, "{} promises", promises.len());
    let mut seen = BTreeSet::new();
    for (name, promise) in &promises {
        assert!(
            cases.contains(name),
            "promises.txt names {name}, which is no case"
        );
        assert!(
            !promise.is_empty(),
            "promises.txt does not say what {name} is for"
        );
        assert!(seen.insert(name), "promises.txt names {name} twice");
    }
}

#[test]
fn ignored_cases_say_which_command_runs_them() {
    let ignored = |text: &str| {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| line.starts_with("#[ignore"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let files = [
        "tests/e2e",
        "tests/live_etcd",
        "testbed",
        "core",
        "api",
        "src",
    ]
    .map(|folder| files_below(folder, &["rs"]));
    for (path, text) in files.iter().flatten() {
        for line in ignored(text) {
            assert_eq!(line, r#"#[ignore = "make versions runs it"]"#, "in {path}");
            assert!(
                path.starts_with("tests/e2e/"),
                "{path}: make versions runs no such case"
            );
        }
    }
}
