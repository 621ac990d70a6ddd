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
fn the_architecture_is_read_in_one_go() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let lines = std::fs::read_to_string(document).unwrap().lines().count();
    assert!(lines <= 200, "{lines} lines");
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
        let folders = ["src", "api/src", "core/src"].map(|folder| root.join(folder).join(file));
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
    let folders =
        ["", "docs", "docs/adr", "testbed", "charts/quorumgate"].map(|folder| root.join(folder));
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

/// The most columns of a line outside of a table.
const COLUMNS: usize = 100;

/// The most characters of a table's cell.
const CELL: usize = 300;

/// A line with a word like this, a URL or a key, may be wide: nobody can break it.
const UNBREAKABLE: usize = 80;

/// The most lines of the README.
const README_LINES: usize = 90;

/// The documents that people write, each with its text. The others are written from doc comments
/// and rows of tests.
fn written() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ];
    let mut paths = named.map(|name| root.join(name)).to_vec();
    for folder in ["docs", "docs/adr"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        let found = entries.map(|entry| entry.unwrap().path());
        paths.extend(found.filter(|path| is_document(path)));
    }
    let read = paths.into_iter().map(|path| {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        (name, std::fs::read_to_string(&path).unwrap())
    });
    read.filter(|(_, text)| !text.contains("<!-- Written by"))
        .collect()
}

/// The lines of a document that have to change, counted from 1, each with the reason.
fn wide(text: &str) -> impl Iterator<Item = (usize, String)> {
    text.lines().enumerate().flat_map(|(index, line)| {
        let columns = line.chars().count();
        let mut words = line.split_whitespace();
        let breakable = !words.any(|word| word.chars().count() > UNBREAKABLE);
        let is_row = line.starts_with('|');
        let row = is_row.then(|| line.trim_matches('|').split('|'));
        let cells = row
            .into_iter()
            .flatten()
            .map(|cell| cell.trim().chars().count());
        let cells = cells.filter(|cell| *cell > CELL);
        let cells = cells.map(|cell| format!("a cell of {cell} characters, at most {CELL}"));
        let flaw = (columns > COLUMNS && breakable && !is_row)
            .then(|| format!("{columns} columns, at most {COLUMNS}"));
        cells
            .chain(flaw)
            .map(move |flaw| (index + 1, flaw))
            .collect::<Vec<_>>()
    })
}

#[test]
fn documents_are_narrow_and_so_are_the_cells_of_their_tables() {
    let documents = written();
    assert!(documents.len() > 20, "{} documents", documents.len());
    let wrong: Vec<String> = documents
        .iter()
        .flat_map(|(name, text)| {
            wide(text).map(move |(line, flaw)| format!("{name}:{line}: {flaw}"))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wide_lines_and_long_cells_are_found() {
    let (line, cell) = ("a ".repeat(51), "a ".repeat(151));
    let url = format!("    {} and a little more than this", "u".repeat(81));
    let text = format!("# Title\n\n{line}\n\n| {cell} | b |\n\n{url}\n");
    let found: Vec<usize> = wide(&text).map(|(line, _)| line).collect();
    assert_eq!(found, [3, 5]);
}

#[test]
fn the_readme_is_short() {
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let lines = readme.lines().count();
    assert!(
        lines <= README_LINES,
        "{lines} lines, at most {README_LINES}"
    );
    let widest = readme.lines().map(|line| line.chars().count()).max();
    assert!(
        widest <= Some(COLUMNS),
        "{widest:?} columns, at most {COLUMNS}"
    );
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
