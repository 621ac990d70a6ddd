//! Scenarios: the gate's answers, written so that a reader who knows etcd and not this code can
//! check them.
//!
//! The files are `core/tests/core/scenarios/*.txt`; `language.rs` defines what they can say.
//! `UPDATE=1 cargo test -p quorumgate-core scenarios` writes the answers anew. Read the difference
//! before you believe it.

mod facts;
mod language;
mod questions;

use std::fs;
use std::path::{Path, PathBuf};

use language::Script;

/// The least number of scenarios. Fewer mean that files went missing, and not that the gate got
/// simpler.
const AT_LEAST: usize = 60;

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/core/scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "txt"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_scenario_gets_the_answer_that_is_written_under_it() {
    let mut wrong = Vec::new();
    let mut scenarios = 0;
    for path in files() {
        let text = fs::read_to_string(&path).unwrap();
        let script = Script::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        scenarios += script.scenarios();
        let answered = script.answer();
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &answered).unwrap();
        } else if answered != text {
            wrong.push(difference(&path, &text, &answered));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(scenarios >= AT_LEAST, "{scenarios} scenarios");
}

#[test]
fn what_is_not_understood_fails_with_its_line() {
    for (text, complaint) in [
        (
            "t\n  3 voters\n  > steal a\n",
            "line 3: not an action: steal a",
        ),
        (
            "t\n  3 voters, b sulks\n  > evict a\n",
            "line 2: not a fact: b sulks",
        ),
        ("t\n  3 voters\n  > evict z\n", "line 3: nobody is called z"),
        (
            "t\n  > evict a\n",
            "line 2: the number of voters comes first",
        ),
        ("t\n  3 voters\n", "line 1: nothing is asked in: t"),
        ("  3 voters\n", "line 1: a title comes first"),
        (
            "t\n  3 voters\n    Allow\n",
            "line 3: an answer without a question",
        ),
    ] {
        assert_eq!(Script::parse(text).err().as_deref(), Some(complaint));
    }
}

fn difference(path: &Path, written: &str, answered: &str) -> String {
    let file = path.file_name().unwrap().display();
    let mut lines = vec![format!("{file}:")];
    let mut title = "";
    let mut question = "";
    let answered: Vec<&str> = answered.lines().collect();
    let written: Vec<&str> = written.lines().collect();
    for (number, line) in answered.iter().enumerate() {
        if !line.starts_with(' ') {
            title = line;
        }
        if line.starts_with("  >") {
            question = line;
        }
        let before = written.get(number).copied().unwrap_or("nothing");
        if before != *line {
            lines.push(format!(
                "  {title}\n{question}\n    written: {before}\n    answered:{line}"
            ));
            break;
        }
    }
    lines.join("\n")
}
