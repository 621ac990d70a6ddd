//! The import rules of the modules and the purity of the core, as far as the compiler does not
//! check them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::sources::files_below;

/// For each module the modules that it may use. A module that is missing here is an error, so that
/// a new one has to be added.
const MAY_USE: [(&str, &[&str]); 26] = [
    ("quorum", &[]),
    ("plan", &["quorum"]),
    ("members", &["quorum"]),
    // A budget's spec is read into the policy that decisions depend on.
    ("api", &["quorum"]),
    ("causes", &[]),
    ("clock", &[]),
    ("features", &[]),
    ("room", &[]),
    ("turns", &[]),
    ("lists", &["room"]),
    ("named", &["api"]),
    ("crypto", &[]),
    ("strategy", &["api"]),
    ("supervise", &["clock"]),
    ("telemetry", &["quorum", "clock"]),
    (
        "etcd",
        &["quorum", "causes", "clock", "crypto", "telemetry"],
    ),
    // Evidence belongs to the ledger page that was read before it.
    (
        "observe",
        &[
            "quorum",
            "plan",
            "api",
            "etcd",
            "ledger",
            "causes",
            "clock",
            "crypto",
            "turns",
            "lists",
            "named",
            "telemetry",
        ],
    ),
    (
        "ledger",
        &["quorum", "api", "clock", "lists", "named", "telemetry"],
    ),
    (
        "judge",
        &[
            "quorum",
            "api",
            "etcd",
            "observe",
            "ledger",
            "causes",
            "clock",
            "telemetry",
        ],
    ),
    ("serve", &["api", "clock", "crypto", "telemetry"]),
    // A Secret is watched as files are, by what serves.
    (
        "certificates",
        &["api", "clock", "crypto", "named", "serve", "telemetry"],
    ),
    (
        "reachability",
        &["clock", "crypto", "lists", "named", "serve", "telemetry"],
    ),
    (
        "admission",
        &[
            "quorum",
            "plan",
            "api",
            "judge",
            "observe",
            "clock",
            "features",
            "room",
            "named",
            "serve",
            "strategy",
            "telemetry",
        ],
    ),
    (
        "reconcile",
        &[
            "quorum",
            "plan",
            "members",
            "api",
            "etcd",
            "observe",
            "ledger",
            "judge",
            "causes",
            "clock",
            "features",
            "room",
            "turns",
            "lists",
            "named",
            "strategy",
            "supervise",
            "telemetry",
        ],
    ),
    ("cli", &EVERYTHING),
    ("app", &EVERYTHING),
];

const EVERYTHING: [&str; 25] = [
    "quorum",
    "plan",
    "members",
    "api",
    "causes",
    "clock",
    "features",
    "crypto",
    "room",
    "turns",
    "lists",
    "named",
    "strategy",
    "supervise",
    "telemetry",
    "etcd",
    "observe",
    "ledger",
    "judge",
    "serve",
    "certificates",
    "reachability",
    "admission",
    "reconcile",
    "cli",
];

/// Words that a pure module has no use for.
const IMPURE: [&str; 13] = [
    "async",
    "await",
    "tokio",
    "kube",
    "k8s_openapi",
    "axum",
    "tracing",
    "unwrap",
    "Instant",
    "SystemTime",
    "Timestamp",
    "println",
    "spawn",
];

/// Modules that are compiled for unit tests only. Unit tests of any module may use them.
const FOR_TESTS: [&str; 1] = ["fake_api"];

const PURE: [&str; 3] = ["quorum", "plan", "members"];

/// The pure file of a module that is not pure.
const RULE: &str = "reachability/rule.rs";

struct Source {
    path: PathBuf,
    top: String,
    words: Vec<String>,
}

#[test]
fn modules_use_only_what_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    let mut broken = Vec::new();
    for source in sources() {
        if FOR_TESTS.contains(&source.top.as_str()) {
            continue;
        }
        let Some(may) = allowed.get(source.top.as_str()) else {
            broken.push(format!(
                "{} has no place in the table",
                source.path.display()
            ));
            continue;
        };
        for used in uses(&source.words) {
            let known = allowed.contains_key(used.as_str());
            if known && used != source.top && !may.contains(&used.as_str()) {
                broken.push(format!("{} uses crate::{used}", source.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_table_of_modules_in_the_document_says_the_same() {
    let document = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(document).unwrap();
    let rows = text.lines().filter_map(|line| {
        let mut cells = line
            .strip_prefix("| `")?
            .trim_end_matches(" |")
            .split(" | ");
        let module = cells.next()?.strip_suffix('`')?;
        let may: BTreeSet<&str> = match cells.nth(1)? {
            "–" => BTreeSet::new(),
            "everything" => EVERYTHING.into(),
            some => some.split(", ").collect(),
        };
        Some((module, may))
    });
    let shown: BTreeMap<&str, BTreeSet<&str>> = rows.collect();
    let allowed = MAY_USE.map(|(module, may)| (module, may.iter().copied().collect()));
    assert_eq!(shown, BTreeMap::from(allowed));
}

#[test]
fn the_core_is_pure() {
    let mut impure = Vec::new();
    for source in sources() {
        let is_the_rule = source.path.ends_with(RULE);
        if is_the_rule || PURE.contains(&source.top.as_str()) {
            let words: BTreeSet<&str> = source.words.iter().map(String::as_str).collect();
            for word in IMPURE.iter().filter(|word| words.contains(**word)) {
                impure.push(format!("{} says {word}", source.path.display()));
            }
        }
    }
    assert!(impure.is_empty(), "{}", impure.join("\n"));
}

#[test]
fn webhooks_and_loops_meet_only_in_the_ledger() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    assert!(!allowed["admission"].contains(&"reconcile"));
    assert!(!allowed["reconcile"].contains(&"admission"));
}

#[test]
fn nobody_uses_each_other_in_a_circle() {
    let allowed: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    let mut placed: BTreeSet<&str> = BTreeSet::new();
    while placed.len() < allowed.len() {
        let next = allowed.iter().find(|(name, may)| {
            !placed.contains(*name) && may.iter().all(|m| m == *name || placed.contains(m))
        });
        let (name, _) = next.unwrap_or_else(|| panic!("a circle beyond {placed:?}"));
        placed.insert(name);
    }
}

/// No circle is excepted: a `mod.rs` uses every file that it declares, and no such file may use it.
#[test]
fn files_of_a_folder_do_not_import_each_other_in_a_circle() {
    let folders: BTreeSet<String> = sources().into_iter().map(|s| s.top).collect();
    assert!(folders.len() > 20, "{folders:?}");
    for folder in &folders {
        let sources = sources().into_iter().filter(|s| s.top == *folder);
        let words: BTreeMap<Path, Vec<String>> = sources
            .map(|source| (module_of(&source.path), source.words))
            .collect();
        let used = |module: &[String]| uses_among(module, &words[module], &words);
        let mut waiting: BTreeMap<Path, BTreeSet<Path>> =
            words.keys().map(|m| (m.clone(), used(m))).collect();
        while let Some(next) = waiting
            .iter()
            .find(|(_, used)| used.iter().all(|u| !waiting.contains_key(u)))
            .map(|(module, _)| module.clone())
        {
            waiting.remove(&next);
        }
        assert!(waiting.is_empty(), "in or above a circle: {waiting:#?}");
    }
}

#[test]
fn only_the_judge_says_yes_and_only_there_errors_become_wait() {
    for source in sources() {
        let says = |words: &[&str]| source.words.windows(words.len()).any(|w| w == words);
        if !source.path.ends_with("judge/decision.rs") {
            assert!(!says(&["stand_in"]), "{}", source.path.display());
            let waits = says(&["Reason", ":", ":", "Unavailable"]);
            assert!(
                !waits || source.top == "quorum",
                "{}",
                source.path.display()
            );
        }
    }
}

/// A module: the names of its folders, and its own.
type Path = Vec<String>;

fn module_of(file: &std::path::Path) -> Path {
    let parts = file.with_extension("");
    let mut parts: Path = parts
        .iter()
        .map(|part| part.to_str().unwrap().to_owned())
        .collect();
    parts.pop_if(|last| last == "mod");
    parts
}

/// The known modules that a module uses: by paths that begin with `crate` or `super`, and by
/// declaring them. Whoever uses a module with parts uses the parts.
fn uses_among(
    module: &[String],
    words: &[String],
    known: &BTreeMap<Path, Vec<String>>,
) -> BTreeSet<Path> {
    let mut used: BTreeSet<Path> = known
        .keys()
        .filter(|k| is_part(k, module))
        .cloned()
        .collect();
    for path in paths(words, module) {
        let found = (1..=path.len()).rev().map(|length| &path[..length]);
        if let Some(found) = found.into_iter().find(|prefix| known.contains_key(*prefix)) {
            used.extend(known.keys().filter(|k| is_part(k, found)).cloned());
            used.insert(found.to_vec());
        }
    }
    used.remove(module);
    used
}

fn is_part(module: &[String], whole: &[String]) -> bool {
    module.len() > whole.len() && module.starts_with(whole)
}

/// The paths that begin with `crate` or `super`, from the root of the crate on.
fn paths(words: &[String], module: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let mut base = match words[at].as_str() {
            "crate" => Path::new(),
            "super" => module[..module.len() - 1].to_vec(),
            _ => {
                at += 1;
                continue;
            }
        };
        // `pub(in crate::…)` uses nothing.
        let is_visibility = at > 0 && words[at - 1] == "in";
        at += 1;
        while words[at..].starts_with(&[":", ":", "super"].map(str::to_owned)) {
            base.pop();
            at += 3;
        }
        if !is_visibility && words[at..].starts_with(&[":", ":"].map(str::to_owned)) {
            at = expand(words, at + 2, base, &mut found);
        }
    }
    found
}

/// Reads the rest of a path, which may branch in braces. Returns the place after it.
fn expand(words: &[String], mut at: usize, mut base: Path, found: &mut Vec<Path>) -> usize {
    loop {
        match words.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while words.get(at).is_some_and(|word| word != "}") {
                    at = match words[at].as_str() {
                        "," => at + 1,
                        _ => expand(words, at, base.clone(), found),
                    };
                }
                return at + 1;
            }
            Some(word) if word.starts_with(|c: char| c.is_alphabetic() || c == '_') => {
                base.push(word.to_owned());
                at += 1;
                if !words[at..].starts_with(&[":", ":"].map(str::to_owned)) {
                    found.push(base);
                    // A rename: `x as y`.
                    let renamed = words.get(at).is_some_and(|word| word == "as");
                    return if renamed { at + 2 } else { at };
                }
                at += 2;
            }
            _ => {
                found.push(base);
                return at + 1;
            }
        }
    }
}

#[test]
fn uses_of_files_are_found_in_branching_paths_and_nowhere_else() {
    let module: Path = ["a", "b"].map(str::to_owned).to_vec();
    let words = words(
        "use super::c::{D, e::{F, g as h}};\npub(in crate::x) fn f() { super::super::i::j() }\npub(super) use crate::k;",
    );
    let found: Vec<String> = paths(&words, &module)
        .iter()
        .map(|path| path.join("::"))
        .collect();
    assert_eq!(found, ["a::c::D", "a::c::e::F", "a::c::e::g", "i::j", "k"]);
}

#[test]
fn paths_are_found_however_they_are_written() {
    let words = words(
        "use crate::{\n    judge::{self, Yes}, quorum::Snapshot,\n};\nfn f() { crate :: etcd::ask() }\n// crate::serve\n\"crate::app\"",
    );
    let used: Vec<String> = uses(&words).into_iter().collect();
    assert_eq!(used, ["etcd", "judge", "quorum"]);
}

#[test]
fn tests_inside_a_file_are_not_part_of_it() {
    let words =
        words("fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() { x.unwrap(); }\n}\nfn c() {}");
    assert!(words.contains(&"a".into()) && words.contains(&"c".into()));
    assert!(!words.contains(&"unwrap".into()));
}

/// Every file of the program and of the core that belongs to a module. `lib.rs` and `main.rs`
/// belong to none.
fn sources() -> Vec<Source> {
    let files = [("src/", ""), ("core/src/", ""), ("api/src/", "api")].map(|(sources, module)| {
        let files = files_below(sources.trim_end_matches('/'), &["rs"]);
        let inside = files.into_iter().map(|(path, text)| {
            let inside = path.strip_prefix(sources).unwrap();
            (std::path::Path::new(module).join(inside), text)
        });
        inside.collect::<Vec<_>>()
    });
    let sources: Vec<Source> = files
        .into_iter()
        .flatten()
        .filter_map(|(inside, text)| {
            let first = inside.iter().next().unwrap().to_str().unwrap();
            let top = first.trim_end_matches(".rs").to_owned();
            let tests_only = inside.file_stem().is_some_and(|stem| stem == "tests")
                || inside.iter().any(|part| part == "tests");
            (top != "lib" && top != "main" && !tests_only).then(|| Source {
                words: words(&text),
                path: inside,
                top,
            })
        })
        .collect();
    for pure in PURE {
        assert!(
            sources.iter().any(|source| source.top == pure),
            "no sources of {pure}"
        );
    }
    sources
}

/// The words and brackets of a file, without comments, strings, and modules that only tests see.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut rest = without_tests(text)
        .chars()
        .collect::<Vec<_>>()
        .into_iter()
        .peekable();
    while let Some(c) = rest.next() {
        match c {
            '/' if rest.peek() == Some(&'/') => {
                for c in rest.by_ref() {
                    if c == '\n' {
                        break;
                    }
                }
            }
            '"' => {
                let mut escaped = false;
                for c in rest.by_ref() {
                    if c == '"' && !escaped {
                        break;
                    }
                    escaped = c == '\\' && !escaped;
                }
            }
            '\'' => skip_char_literal(&mut rest),
            c if c.is_alphanumeric() || c == '_' => {
                let mut word = c.to_string();
                while let Some(next) = rest.next_if(|n| n.is_alphanumeric() || *n == '_') {
                    word.push(next);
                }
                words.push(word);
            }
            c if c.is_whitespace() => {}
            c => words.push(c.to_string()),
        }
    }
    words
}

/// Skips a character literal, since `'"'` and `'\\''` would be taken for the start of a string. A
/// lifetime has no closing quote.
fn skip_char_literal(rest: &mut std::iter::Peekable<std::vec::IntoIter<char>>) {
    let ahead: Vec<char> = rest.clone().take(3).collect();
    let length = match ahead.as_slice() {
        ['\\', _, '\''] => 3,
        [_, '\'', ..] => 2,
        _ => 0,
    };
    rest.by_ref().take(length).for_each(drop);
}

/// The text without inline test modules, each of which ends at the first line that begins with a
/// closing brace, as rustfmt writes it.
fn without_tests(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let inline = lines
            .peek()
            .is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'));
        if line == "#[cfg(test)]" && inline {
            for skipped in lines.by_ref() {
                if skipped == "}" {
                    break;
                }
            }
        } else {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

/// The first segment of every path that begins with `crate::`, also inside braces.
fn uses(words: &[String]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in words
        .iter()
        .enumerate()
        .filter(|(_, word)| *word == "crate")
    {
        let mut rest = words[at + 1..].iter().map(String::as_str);
        if (rest.next(), rest.next()) != (Some(":"), Some(":")) {
            continue;
        }
        match rest.next() {
            Some("{") => found.extend(firsts_in_braces(rest)),
            Some(segment) => {
                found.insert(segment.to_owned());
            }
            None => {}
        }
    }
    found
}

fn firsts_in_braces<'a>(rest: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut depth = 1;
    let mut expecting = true;
    let mut firsts = Vec::new();
    for word in rest {
        match word {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 1 => expecting = true,
            word if expecting && depth == 1 => {
                firsts.push(word.to_owned());
                expecting = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    firsts
}

/// The variants in this source whose sentence is derived and not given. The derive would print the
/// name of such a variant, or its only field.
fn variants_without_sentence(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for derived in text.split("derive_more::Display").skip(1) {
        let Some((head, rest)) = derived.split_once("{\n") else {
            continue;
        };
        let Some((_, name)) = head.rsplit_once("enum ") else {
            continue;
        };
        let mut has_sentence = false;
        for line in rest.lines().take_while(|line| *line != "}") {
            let Some(item) = line.strip_prefix("    ") else {
                continue;
            };
            if item.starts_with("#[display(") {
                has_sentence = true;
            } else if item.starts_with(|c: char| c.is_ascii_uppercase()) {
                if !has_sentence {
                    found.push(format!("{}::{item}", name.trim()));
                }
                has_sentence = false;
            }
        }
    }
    found
}

#[test]
fn every_variant_with_a_derived_display_has_its_sentence() {
    let files = ["src", "api/src", "core/src"].map(|folder| files_below(folder, &["rs"]));
    let mut enums = 0;
    let mut without = Vec::new();
    for (path, text) in files.iter().flatten() {
        enums += text.matches("derive_more::Display").count();
        let found = variants_without_sentence(text);
        without.extend(found.iter().map(|variant| format!("{path}: {variant}")));
    }
    assert!(enums > 15, "only {enums} derive their sentences");
    assert!(without.is_empty(), "{}", without.join("\n"));
    let text = "#[derive(derive_more::Display)]\nenum Why {\n    /// A.\n    #[display(\"a\")]\n    \
                A,\n    B { c: u8 },\n}\n";
    assert_eq!(variants_without_sentence(text), ["Why::B { c: u8 },"]);
}
