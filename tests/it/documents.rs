//! The tests and links that the documents name have to exist.

use std::path::Path;

use crate::reference::{quoted, section};
use crate::sources::Tests;

/// The words in backquotes in the last column of a document's tables, row by row.
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
fn the_reasons_in_the_table_of_the_rules_are_refusals_of_the_reference() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let (rules, refusals) = (read("ARCHITECTURE.md"), read("docs/reference.md"));
    let is_rule = |line: &&str| line.starts_with("| ") && line[2..].starts_with(char::is_numeric);
    let mut reasons = 0;
    for rule in rules.lines().filter(is_rule) {
        let answer = rule.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        for reason in answer.split('`').skip(1).step_by(2) {
            let row = format!("| `{reason}` |");
            assert!(refusals.contains(&row), "no refusal {reason}: {rule}");
            reasons += 1;
        }
    }
    assert!(reasons > 10, "{reasons} reasons");
}

#[test]
fn where_to_look_names_files_and_what_they_define() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = section("ARCHITECTURE.md", "## Where to look");
    let mut found = 0;
    for place in quoted(&text).filter(|quoted| quoted.contains(".rs")) {
        let (file, item) = match place.split_once(": ") {
            Some((file, item)) => (file, Some(item)),
            None => (place, None),
        };
        let folders = ["src", "core/src"].map(|folder| root.join(folder).join(file));
        let source = folders
            .iter()
            .find_map(|path| std::fs::read_to_string(path).ok());
        let source = source.unwrap_or_else(|| panic!("there is no {file}"));
        if let Some(item) = item {
            let defines = |kind: &str| {
                let definition = format!("{kind} {item}");
                let mut rests = source.split(&definition).skip(1);
                rests.any(|rest| {
                    !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_')
                })
            };
            assert!(
                ["fn", "const"].into_iter().any(defines),
                "{place} defines no such thing"
            );
        }
        found += 1;
    }
    assert!(found > 20, "{found} places");
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

/// The targets of a document's links, other than web pages.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    links
        .map(|(link, _)| link)
        .filter(|link| !link.starts_with("http"))
}

/// The anchor of a heading, by which links name it.
pub(crate) fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().chars();
    letters
        .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .flat_map(char::to_lowercase)
        .collect()
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [
        "",
        "docs",
        "docs/adr",
        "testbed",
        "certs",
        "charts/quorumgate",
    ]
    .map(|folder| root.join(folder));
    let entries = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let documents = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| is_document(path));
    let mut checked = 0;
    for document in documents {
        let text = std::fs::read_to_string(&document).unwrap();
        for link in links(&text) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                document.clone()
            } else {
                document.parent().unwrap().join(path)
            };
            let broken = format!("{} links to {link}", document.display());
            assert!(target.exists(), "{broken}");
            if !heading.is_empty() {
                let there = std::fs::read_to_string(&target).unwrap();
                let mut headings = there.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|line| anchor(line) == heading), "{broken}");
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} links were found");
}

#[test]
fn every_document_is_a_chapter_of_the_book() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let summary = std::fs::read_to_string(root.join("book/SUMMARY.md")).unwrap();
    let chapters: Vec<_> = links(&summary).collect();
    for chapter in &chapters {
        assert!(root.join(chapter).exists(), "{chapter} does not exist");
    }
    for folder in ["docs", "docs/adr"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let named = path.strip_prefix(root).unwrap();
            let is_chapter = chapters.iter().any(|chapter| Path::new(chapter) == named);
            assert!(
                is_chapter || !is_document(&path),
                "{} is no chapter of book/SUMMARY.md",
                named.display()
            );
        }
    }
}

#[test]
fn the_oldest_rust_that_is_promised_is_the_one_that_everything_is_built_with() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let manifest = read("Cargo.toml");
    let promised = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap();
    let promised = promised.trim_matches('"');
    let channel = format!("channel = \"{promised}.");
    assert!(read("rust-toolchain.toml").contains(&channel), "{promised}");
}
