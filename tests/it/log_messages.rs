//! The form of log messages: each is one constant string that begins with a noun or a verb, so that
//! people can search for it, and its facts are fields.

use crate::sources::files_below;

/// The macros that log.
const MACROS: [&str; 5] = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];

/// First words of a message that is hard to search for or to alert on.
const NO_BEGINNING: [&str; 24] = [
    "a", "an", "another", "could", "he", "how", "it", "its", "nobody", "nothing", "of", "such",
    "that", "the", "there", "these", "they", "this", "those", "what", "whatever", "whether", "who",
    "whoever",
];

/// The files in which tests log.
const OF_TESTS: [&str; 2] = ["src/telemetry/logs.rs", "src/telemetry/logs/json.rs"];

#[test]
fn every_log_message_is_constant_and_begins_with_a_noun_or_a_verb() {
    let mut found = 0;
    let mut bad = Vec::new();
    for (path, text) in files_below("src", &["rs"]) {
        if OF_TESTS.contains(&path.as_str()) {
            continue;
        }
        for call in calls(&text) {
            found += 1;
            match message(call) {
                Some(message) => {
                    let first = message.split([' ', ':', ',']).next().unwrap_or_default();
                    if message.contains('{')
                        || NO_BEGINNING.contains(&first.to_lowercase().as_str())
                    {
                        bad.push(format!("{path}: {message}"));
                    }
                }
                None => bad.push(format!("{path}: no message in {call}")),
            }
        }
    }
    assert!(found > 100, "only {found} log messages");
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

/// The arguments of each macro that logs.
fn calls(text: &str) -> Vec<&str> {
    let starts = MACROS.iter().flat_map(|name| text.match_indices(name));
    let starts = starts.filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    });
    let calls = starts.map(|(at, name)| {
        let arguments = &text[at + name.len()..];
        &arguments[..end(arguments)]
    });
    calls.collect()
}

/// The place of the bracket that closes the arguments.
fn end(arguments: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, c) in arguments.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    arguments.len()
}

/// The last argument, if it is a string.
fn message(arguments: &str) -> Option<&str> {
    let arguments = arguments.trim_end().trim_end_matches(',').trim_end();
    let (_, message) = arguments.strip_suffix('"')?.rsplit_once('"')?;
    Some(message)
}

#[test]
fn the_message_is_the_last_argument_whatever_the_others_contain() {
    let text = r#"warn!(cluster = %f(&[1]), because = "a ) b", "cannot do it",);"#;
    let calls = calls(text);
    assert_eq!(calls.len(), 1);
    assert_eq!(message(calls[0]), Some("cannot do it"));
}
