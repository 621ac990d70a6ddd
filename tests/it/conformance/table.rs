//! `docs/conformance.md`, generated from the rows.

use std::fmt::Write as _;

use super::row::{Ours, Row};
use super::rows::Group;
use crate::sources::Tests;

const HEAD: &str = "\
# Conformance

<!-- Written by `make conformance`; edit tests/it/conformance/rows. -->

Other projects guard pods against voluntary disruptions too. This table goes through their tests, row
by row, in our own words: what the peer asserts, what this gate answers, why it answers otherwise, and
which test shows it. Nobody else asserts the rows of the last group.

A test fails if this page is out of date, if a row names a test that does not exist, or if a row has
neither a test nor a reason.
";

/// The whole document.
pub(crate) fn document(groups: &[Group], tests: &Tests) -> String {
    let mut text = HEAD.to_owned();
    text.push_str(&summary(groups));
    for group in groups {
        write!(text, "\n## {}\n\n{}\n\n", group.title, group.about).unwrap();
        text.push_str(
            "| row | asserted | our answer | why it differs | shown by |\n|---|---|---|---|---|\n",
        );
        for row in group.rows {
            text.push_str(&line(row, tests));
        }
    }
    text
}

fn summary(groups: &[Group]) -> String {
    let rows: Vec<&Row> = groups.iter().flat_map(|group| group.rows).collect();
    let count = |is: fn(&Ours) -> bool| rows.iter().filter(|row| is(&row.ours)).count();
    format!(
        "\nOf {} rows we answer {} as the peer does and {} otherwise, {} are not about us, and {} are our own.\n",
        rows.len(),
        count(|ours| matches!(ours, Ours::Same(_))),
        count(|ours| matches!(ours, Ours::Differs { .. })),
        count(|ours| matches!(ours, Ours::Elsewhere { .. })),
        count(|ours| matches!(ours, Ours::Own(_))),
    )
}

fn line(row: &Row, tests: &Tests) -> String {
    let (answer, because) = match &row.ours {
        Ours::Same(answer) => (format!("The same: {answer}"), ""),
        Ours::Own(answer) => ((*answer).to_owned(), ""),
        Ours::Differs { answer, because } => ((*answer).to_owned(), *because),
        Ours::Elsewhere { because, instead } => {
            let instead =
                instead.map_or_else(String::new, |instead| format!(" Nearest: {instead}"));
            (format!("Not about us.{instead}"), *because)
        }
    };
    let asserted = if row.theirs.is_empty() {
        row.asserted.to_owned()
    } else {
        format!("{} *({})*", row.asserted, row.theirs)
    };
    let shown: Vec<String> = row.shown_by.iter().map(|name| link(name, tests)).collect();
    let cells = [
        row.id.to_owned(),
        asserted,
        answer,
        because.to_owned(),
        shown.join("<br>"),
    ];
    format!(
        "| {} |\n",
        cells.map(|cell| cell.replace('|', "\\|")).join(" | ")
    )
}

fn link(name: &str, tests: &Tests) -> String {
    let files = tests.files_of(name);
    let Some((first, others)) = files.split_first() else {
        return format!("`{name}`");
    };
    let also: Vec<String> = others
        .iter()
        .map(|file| format!(", [also](../{file})"))
        .collect();
    format!("[`{name}`](../{first}){}", also.concat())
}
