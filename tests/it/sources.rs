//! The list of all tests, read from the sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Every test by its name, with its files. Tests are the functions that a runner runs, the
/// functions that these call as steps, and titles of scenarios.
pub(crate) struct Tests {
    files: BTreeMap<String, Vec<String>>,
    /// The names that a runner runs.
    run: BTreeSet<String>,
}

impl Tests {
    /// Reads `src`, `tests` and `core`, without the rows of the conformance table, since a name
    /// there does not prove a call.
    pub(crate) fn read() -> Self {
        let files =
            ["api", "src", "tests", "core"].map(|folder| files_below(folder, &["rs", "txt"]));
        let mut files = files.concat();
        files.retain(|(path, _)| match path.strip_suffix(".txt") {
            Some(_) => path.starts_with("core/tests/core/scenarios/"),
            None => !path.starts_with("tests/it/conformance/rows/"),
        });
        Self::among(&files)
    }

    fn among(files: &[(String, String)]) -> Self {
        let mut words: BTreeMap<&str, usize> = BTreeMap::new();
        for word in files.iter().flat_map(|(_, text)| words_of(text)) {
            *words.entry(word).or_default() += 1;
        }
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut run = BTreeSet::new();
        for (path, text) in files {
            let names: Vec<&str> = if path.strip_suffix(".txt").is_some() {
                titles_in(text).collect()
            } else {
                run.extend(tests_in(text).map(str::to_owned));
                let functions = functions_in(text);
                let shown = functions.filter(|(name, is_test)| *is_test || words[name] > 1);
                shown.map(|(name, _)| name).collect()
            };
            for name in names {
                found.entry(name.to_owned()).or_default().push(path.clone());
            }
        }
        Self { files: found, run }
    }

    /// The files with a test of this name, as paths in the repository.
    pub(crate) fn files_of(&self, name: &str) -> &[String] {
        self.files.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether a runner runs a test of this name.
    pub(crate) fn runs(&self, name: &str) -> bool {
        self.run.contains(name)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }
}

/// Every file below a folder of the repository with one of these extensions, in order, with its
/// path and its text.
pub(crate) fn files_below(folder: &str, extensions: &[&str]) -> Vec<(String, String)> {
    let mut files = Vec::new();
    visit(folder, extensions, &mut files);
    files
}

fn visit(path: &str, extensions: &[&str], files: &mut Vec<(String, String)>) {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    // Builds of the fuzz workspace are in a folder of its own.
    if full.ends_with("target") {
        return;
    }
    if full.is_dir() {
        let mut entries: Vec<_> = fs::read_dir(full)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        entries.sort();
        for entry in entries {
            visit(&format!("{path}/{entry}"), extensions, files);
        }
        return;
    }
    let extension = full.extension().and_then(|extension| extension.to_str());
    if extension.is_some_and(|extension| extensions.contains(&extension)) {
        files.push((path.to_owned(), fs::read_to_string(full).unwrap()));
    }
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The functions of a file, and whether each is a test.
fn functions_in(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut is_test = false;
    text.lines().map(str::trim).filter_map(move |line| {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let name = function(line)?;
        Some((name, std::mem::take(&mut is_test)))
    })
}

/// The names of the tests of a file.
pub(crate) fn tests_in(text: &str) -> impl Iterator<Item = &str> {
    let tests = functions_in(text).filter(|(_, is_test)| *is_test);
    tests.map(|(name, _)| name)
}

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let mut line = line;
    for word in ["pub(crate) ", "pub(super) ", "pub ", "const ", "async "] {
        line = line.strip_prefix(word).unwrap_or(line);
    }
    words_of(line.strip_prefix("fn ")?).next()
}

/// The titles in a file of scenarios. A title stands at the beginning of a line, the lines below it
/// are indented, and comments begin with `#`.
fn titles_in(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with([' ', '#']))
}

#[test]
fn tests_and_their_steps_are_found_and_nothing_else() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let tests = Tests::among(&[
        file(
            "one.rs",
            "#[tokio::test(flavor = \"multi_thread\")]
             async fn a_test() { steps::a_step().await }
             /// Explained.
             #[test]
             // Why.
             #[ignore]
             fn another() {}",
        ),
        file(
            "steps.rs",
            "pub(super) async fn a_step() {}
             fn a_step_that_nobody_takes() {}",
        ),
        file("some.txt", "# no\n\none two\n  3 voters\n"),
    ]);
    let names: Vec<&str> = tests.names().collect();
    assert_eq!(names, ["a_step", "a_test", "another", "one two"]);
    assert_eq!(tests.files_of("a_step"), ["steps.rs"]);
    assert!(tests.runs("a_test") && tests.runs("another") && !tests.runs("a_step"));
}
