//! The form of comments: how wide their lines are, how doc comments begin, and that a heading has
//! a line of its own.

use crate::sources::files_below;

/// The folders with sources.
const FOLDERS: [&str; 10] = [
    "benches",
    "api/src",
    "core/src",
    "core/tests",
    "examples",
    "fuzz",
    "plugin/src",
    "src",
    "testbed",
    "tests",
];

/// The most columns of a line with a comment, which are those that rustfmt gives the code.
const COLUMNS: usize = 100;

/// First words that do not say what the documented item is.
const PRONOUNS: [&str; 24] = [
    "Anybody", "Anyone", "He", "Her", "His", "It", "Its", "Nobody", "One", "She", "Somebody",
    "Someone", "Such", "That", "Their", "These", "They", "This", "Those", "What", "Whatever",
    "Who", "Whoever", "Whose",
];

/// The headings of doc comments.
const HEADINGS: [&str; 3] = ["# Errors", "# Example", "# Panics"];

#[test]
fn comments_are_narrow_and_say_what_they_are_about() {
    let files = FOLDERS.map(|folder| files_below(folder, &["rs"])).concat();
    let wrong: Vec<String> = files
        .iter()
        .flat_map(|(path, text)| {
            flaws(text).map(move |(line, flaw)| format!("{path}:{line}: {flaw}"))
        })
        .collect();
    assert!(
        files.len() > 90,
        "only {} files in {FOLDERS:?}",
        files.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The lines of a source with comments that have to change, counted from 1, each with the reason.
fn flaws(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut before = "";
    text.lines().enumerate().flat_map(move |(index, line)| {
        let begins = !before.starts_with(marker_of(line).unwrap_or("no comment"));
        before = line.trim_start();
        let word = doc(line).filter(|_| begins).and_then(pronoun);
        let width = line.chars().count();
        let wide = width > COLUMNS && marker_of(line).is_some();
        let flaws = [
            wide.then(|| format!("{width} columns, at most {COLUMNS}")),
            word.map(|word| format!("a doc comment begins with {word:?}")),
            doc(line)
                .and_then(runs_on)
                .map(|heading| format!("{heading:?} and its text are one heading")),
        ];
        flaws
            .into_iter()
            .flatten()
            .map(move |flaw| (index + 1, flaw))
    })
}

/// The marker of a line that is a comment as a whole.
fn marker_of(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    ["///", "//!", "//"]
        .into_iter()
        .find(|marker| line.starts_with(marker))
}

/// The text of a line of a doc comment.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///")
        .or_else(|| line.strip_prefix("//!"))
}

/// The first word of a text, if it is a pronoun.
fn pronoun(text: &str) -> Option<&str> {
    let first = text
        .trim_start()
        .split(|c: char| !c.is_alphanumeric())
        .next()?;
    PRONOUNS.contains(&first).then_some(first)
}

/// The heading that a line begins with, if text follows.
fn runs_on(text: &str) -> Option<&'static str> {
    let text = text.trim();
    HEADINGS
        .into_iter()
        .find(|heading| text.starts_with(heading) && text != *heading)
}

#[test]
fn wide_comments_pronouns_and_headings_are_found_and_nothing_else() {
    const NONE: [usize; 0] = [];
    let found = |text: &str| flaws(text).map(|(line, _)| line).collect::<Vec<_>>();
    let fits = format!("    // {}", "é".repeat(93));
    assert_eq!(found(&fits), NONE);
    assert_eq!(found(&format!("{fits}x")), [1]);
    assert_eq!(
        found(&format!("{fits}\nfn f() {{}} // {}", "x".repeat(100))),
        NONE
    );
    assert_eq!(found(&format!("let x = \"{}\";", "x".repeat(100))), NONE);
    assert_eq!(found("//! It is."), [1]);
    assert_eq!(found("/// A name.\n/// It is long.\n\n/// Its name."), [4]);
    assert_eq!(found("// That is no doc comment.\n/// That is one."), [2]);
    assert_eq!(
        found("/// Itself.\n/// Whatever comes.\n// Why.\n/// Oneself."),
        NONE
    );
    assert_eq!(found("    /// Whoever\n    asks,"), [1]);
    assert_eq!(
        found("/// Reads.\n///\n/// # Errors When there is nothing."),
        [3]
    );
    assert_eq!(
        found("/// # Errors\n///\n/// When there is nothing.\n/// # let x = 1;"),
        NONE
    );
}
