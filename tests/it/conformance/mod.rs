//! The assertions of other gates' tests, row by row, with this gate's answers. The rows are data,
//! and `docs/conformance.md` is generated from them.
//!
//! The tests of a row are in many places. Tests that exist only for a row are here, in
//! `core/tests/core/scenarios` and in `tests/e2e/conformance`, and their names begin with the row's
//! id.

mod druid;
mod row;
mod rows;
mod strimzi;
mod table;

use std::collections::BTreeSet;

use crate::pages::is_up_to_date;
use crate::sources::Tests;
use row::{Ours, Row};
use rows::groups;

fn rows() -> Vec<&'static Row> {
    groups().into_iter().flat_map(|group| group.rows).collect()
}

#[test]
fn the_document_is_what_the_rows_say() {
    let made = table::document(&groups(), &Tests::read());
    is_up_to_date("docs/conformance.md", &made, "make conformance");
}

#[test]
fn every_row_names_tests_that_exist_or_says_why_there_is_none() {
    let tests = Tests::read();
    for row in rows() {
        assert_eq!(
            row.shown_by.is_empty(),
            !row.is_testable(),
            "{}: what can be tested names its tests, what cannot names none",
            row.id
        );
        let mut names = BTreeSet::new();
        for name in row.shown_by {
            assert!(
                !tests.files_of(name).is_empty(),
                "{}: there is no test {name}",
                row.id
            );
            assert!(names.insert(name), "{} names {name} twice", row.id);
        }
        for text in [row.asserted, words(&row.ours)] {
            assert!(text.ends_with('.'), "{}: not a sentence: {text}", row.id);
        }
    }
}

fn words(ours: &Ours) -> &'static str {
    match ours {
        Ours::Same(answer) | Ours::Own(answer) | Ours::Differs { answer, .. } => answer,
        Ours::Elsewhere { because, .. } => because,
    }
}

/// The document would lack a test that has a row's id in its name and is not listed in the row.
#[test]
fn a_test_named_after_a_row_is_among_those_that_the_row_names() {
    let rows = rows();
    let mut seen = 0;
    for name in Tests::read().names() {
        for id in ids_of(name) {
            seen += 1;
            let row = rows.iter().find(|row| row.prefix() == id);
            let row =
                row.unwrap_or_else(|| panic!("{name} is named after a row that there is not"));
            assert!(
                row.shown_by.contains(&name),
                "{} does not name {name}",
                row.id
            );
        }
    }
    assert!(seen > 50, "only {seen} tests are named after a row");
}

/// The ids at the beginning of a name: `s5` and `p21` of `s5_p21_every_form`.
fn ids_of(name: &str) -> impl Iterator<Item = &str> {
    name.split(['_', ' ']).take_while(|word| {
        let number = word.strip_prefix(['s', 'k', 'p', 'o', 'd', 'q', 'n']);
        number
            .is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
    })
}

/// A gap would show that a row was dropped or that two rows have one number.
#[test]
fn the_rows_of_a_group_are_numbered_without_a_gap() {
    for group in groups() {
        let ids: Vec<&str> = group.rows.iter().map(|row| row.id).collect();
        let expected: Vec<String> = (group.first..)
            .take(group.size)
            .map(|n| format!("{}{n}", group.letter))
            .collect();
        assert_eq!(ids, expected, "{}", group.title);
    }
}
