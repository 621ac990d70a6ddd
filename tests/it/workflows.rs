//! Workflows name what exists, and a fork of the repository does not fail in them.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::manifests::documents;

/// Commands that build the programs, or tools with Go, and need what the action installs.
const NEED_TOOLS: [&str; 6] = [
    "make ",
    ".ci/run",
    "hack/on-kind",
    "scripts/fuzz",
    "scripts/helm",
    "scripts/release f",
];

const TOOLS: &str = "./.github/actions/tools";

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files of the workflows.
fn files() -> Vec<String> {
    let folder = ".github/workflows";
    let entries = std::fs::read_dir(root().join(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: Vec<String> = names.map(|name| format!("{folder}/{name}")).collect();
    assert!(files.len() >= 5, "{files:?}");
    files
}

/// Every job, with its file and its name in front.
fn jobs() -> Vec<(String, Value)> {
    let all = files().into_iter().flat_map(|file| {
        let jobs = documents(&file).remove(0)["jobs"].take();
        let named = jobs.as_object().unwrap().clone().into_iter();
        named.map(move |(name, job)| (format!("{file}: {name}"), job))
    });
    all.collect()
}

fn steps(job: &Value) -> &[Value] {
    job["steps"].as_array().unwrap()
}

/// The commands of a job's matrix, which a step runs.
fn of_the_matrix(job: &Value) -> String {
    let rows = job["strategy"]["matrix"]["include"].as_array();
    let rows = rows.into_iter().flatten();
    let commands: Vec<&str> = rows.filter_map(|row| row["run"].as_str()).collect();
    commands.join("\n")
}

fn commands(job: &Value) -> String {
    let own = steps(job).iter().filter_map(|step| step["run"].as_str());
    let own: Vec<&str> = own.collect();
    format!("{}\n{}", own.join("\n"), of_the_matrix(job))
}

fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.chars().all(|letter| letter.is_ascii_hexdigit())
}

fn is_version(text: &str) -> bool {
    let numbers = text.strip_prefix('v').unwrap_or("");
    numbers.split('.').count() == 3 && numbers.split('.').all(|part| part.parse::<u32>().is_ok())
}

#[test]
fn an_action_is_named_by_one_commit_and_its_version() {
    let mut pins: BTreeMap<String, String> = BTreeMap::new();
    let composite = format!("{}/action.yaml", TOOLS.trim_start_matches("./"));
    for file in files().into_iter().chain([composite]) {
        for line in read(&file).lines() {
            let Some((_, action)) = line.split_once("uses: ") else {
                continue;
            };
            if let Some(folder) = action.strip_prefix("./") {
                let definition = root().join(folder).join("action.yaml");
                assert!(definition.exists(), "{file}: {action}");
                continue;
            }
            let (name, pin) = action.split_once('@').expect(line);
            let (commit, version) = pin.split_once(" # ").expect(line);
            assert!(is_commit(commit) && is_version(version), "{file}: {action}");
            let known = pins.entry(name.into()).or_insert_with(|| pin.into());
            assert_eq!(known, pin, "{file}: {name}");
        }
    }
    assert!(pins.len() >= 9, "{pins:?}");
}

#[test]
fn every_command_of_a_workflow_exists() {
    let makefile = read("Makefile");
    let release = read("scripts/release");
    let mut found = 0;
    for (job, definition) in jobs() {
        let commands = commands(&definition);
        let words: Vec<&str> = commands
            .split(|letter: char| letter.is_whitespace() || letter == ';')
            .collect();
        for pair in words.windows(2) {
            let &[word, next] = pair else { continue };
            if ["scripts/", "hack/", ".ci/"]
                .iter()
                .any(|folder| word.starts_with(folder))
            {
                let program = std::fs::metadata(root().join(word));
                let program = program.unwrap_or_else(|error| panic!("{job}: {word}: {error}"));
                assert!(program.permissions().mode() & 0o111 != 0, "{job}: {word}");
                found += 1;
            }
            if word == "scripts/release" {
                assert!(release.contains(&format!("\n  {next}) ")), "{job}: {next}");
            }
            if word == "make" {
                assert!(
                    makefile.contains(&format!("\n{next}:")),
                    "{job}: make {next}"
                );
                found += 1;
            }
        }
    }
    assert!(found > 15, "{found} commands");
}

#[test]
fn a_job_that_builds_has_the_tools_before() {
    let mut found = 0;
    for (job, definition) in jobs() {
        let matrix = of_the_matrix(&definition);
        let needs = |step: &Value| {
            let command = step["run"].as_str().unwrap_or("");
            let all = format!("{command}\n{matrix}");
            !command.is_empty() && NEED_TOOLS.iter().any(|needing| all.contains(needing))
        };
        let steps = steps(&definition);
        let Some(first) = steps.iter().position(needs) else {
            continue;
        };
        let tools = steps.iter().position(|step| step["uses"] == TOOLS);
        assert!(
            tools.is_some_and(|tools| tools < first),
            "{job} builds without {TOOLS}"
        );
        found += 1;
    }
    assert!(found >= 6, "{found} jobs");
}

#[test]
fn the_tools_have_the_go_of_the_test_bed() {
    let action = documents(".github/actions/tools/action.yaml").remove(0);
    let with = &action["runs"]["steps"][0]["with"];
    let module = with["go-version-file"].as_str().unwrap();
    assert!(read(module).contains("\ngo 1."), "{module}");
}

/// A job runs here alone by its own condition, or because one that it waits for does.
fn runs_here_alone(job: &Value, others: &Value) -> bool {
    let repository = env!("CARGO_PKG_REPOSITORY").replace("https://github.com/", "");
    if job["if"] == json!(format!("github.repository == '{repository}'")) {
        return true;
    }
    let needs = match &job["needs"] {
        Value::Array(needs) => needs.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    let mut needs = needs.iter().filter_map(Value::as_str);
    needs.any(|name| runs_here_alone(&others[name], others))
}

#[test]
fn what_writes_runs_in_this_repository_alone() {
    let mut found = 0;
    for file in files() {
        let workflow = documents(&file).remove(0);
        assert_eq!(
            workflow["permissions"],
            json!({"contents": "read"}),
            "{file}"
        );
        let jobs = &workflow["jobs"];
        for (name, job) in jobs.as_object().unwrap() {
            let rights = job["permissions"].as_object();
            let writes = rights.is_some_and(|rights| rights.values().any(|right| right == "write"));
            if writes {
                assert!(runs_here_alone(job, jobs), "{file}: {name}");
                found += 1;
            }
        }
    }
    assert_eq!(found, 4);
}

#[test]
fn a_checkout_keeps_no_credentials() {
    for (job, definition) in jobs() {
        for step in steps(&definition) {
            let action = step["uses"].as_str().unwrap_or("");
            if action.starts_with("actions/checkout@") {
                assert_eq!(step["with"]["persist-credentials"], false, "{job}");
            }
        }
    }
}

/// Git for Windows would write CRLF into the scripts that the release runs there.
#[test]
fn files_are_checked_out_as_they_are_stored() {
    assert!(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(".gitattributes")
            .exists()
    );
    assert!(read(".gitattributes").lines().any(|line| line == "* -text"));
}
