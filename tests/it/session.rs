//! The picture of a session in the README. `make session` writes its text from the output of the
//! demo, and draws the picture from that.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::pages::is_up_to_date;

const SESSION: &str = "docs/session.txt";
const PICTURE: &str = "docs/session.svg";

/// Columns of the terminal in the picture.
const COLUMNS: usize = 92;

/// Width of a character in tenths of a pixel.
const CHARACTER: usize = 84;

/// Heights and distances in pixels.
const LINE: usize = 20;
const MARGIN: usize = 20;
const BAR: usize = 30;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_picture_of_a_session_is_drawn_from_its_text() {
    is_up_to_date(PICTURE, &picture(&read(SESSION)), "make session");
}

#[test]
fn the_session_is_what_the_demo_prints_today() {
    let demo = ["main", "rollout", "scenes", "stage", "voice"]
        .map(|module| read(&format!("examples/demo/{module}.rs")))
        .concat();
    let sentences = ["core/src/quorum/verdict.rs", "src/admission/rejection.rs"]
        .map(read)
        .concat();
    let session = read(SESSION);
    let (mut commands, mut refusals) = (0, 0);
    for line in session.lines() {
        let said = line.strip_prefix("== ").or(line.strip_prefix("$ kubectl "));
        if let Some(said) = said {
            assert!(demo.contains(said), "the demo says no {said:?} any more");
            commands += 1;
        }
        if line.contains("denied the request") {
            for part in ["cannot be deleted now", "is needed", "; not serving: "] {
                assert!(line.contains(part), "{part:?} is missing: {line}");
                assert!(sentences.contains(part), "no refusal says {part:?}");
            }
            refusals += 1;
        }
    }
    assert!(commands > 1, "{commands} headings and commands");
    assert_eq!(refusals, 2, "refusals in {SESSION}");
}

#[test]
fn a_long_line_of_a_session_is_broken_between_words() {
    let words = ["word"; 40].join(" ");
    let lines = broken(&format!("    {words}"));
    assert!(lines.len() > 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.starts_with("    word")));
    assert!(lines.iter().all(|line| line.len() <= COLUMNS));
    let joined = lines.iter().map(|line| line.trim()).collect::<Vec<_>>();
    assert_eq!(joined.join(" "), words);
}

/// The lines of a terminal that show a line of output.
fn broken(line: &str) -> Vec<String> {
    let text = line.trim_start();
    let indent = " ".repeat(line.len() - text.len());
    let mut lines = vec![indent.clone()];
    for word in text.split_inclusive(' ') {
        let last = lines.last_mut().unwrap();
        if last.len() + word.trim_end().len() > COLUMNS && last.trim() != "" {
            last.truncate(last.trim_end().len());
            lines.push(indent.clone());
        }
        lines.last_mut().unwrap().push_str(word);
    }
    lines
}

/// The class of a line in the picture.
fn class(line: &str) -> &'static str {
    if line.starts_with("== ") {
        "scene"
    } else if line.starts_with("$ ") {
        "command"
    } else if line.starts_with("    Error from server") {
        "refusal"
    } else if line.starts_with("    ") {
        "output"
    } else {
        "note"
    }
}

/// Tenths of a pixel as a number of pixels.
fn pixels(tenths: usize) -> String {
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// A terminal that is as dark on a light page as on a dark one.
fn picture(session: &str) -> String {
    let lines: Vec<(&str, String)> = session
        .trim()
        .lines()
        .flat_map(|line| {
            let shown = broken(line).into_iter();
            shown.map(move |shown| (class(line), shown))
        })
        .collect();
    let width = 2 * MARGIN + (COLUMNS * CHARACTER).div_ceil(10);
    let height = BAR + 2 * MARGIN + lines.len() * LINE - 6;
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<!-- Written by `make session` from session.txt. -->
<title>Two deletes at the same moment: one passes, the other is refused with its reason</title>
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  white-space: pre; fill: #c9d1d9 }}
.scene {{ fill: #56d4dd; font-weight: bold }}
.command {{ fill: #ffffff; font-weight: bold }}
.refusal {{ fill: #ffa198 }}
.note {{ fill: #9aa4af }}
</style>
<rect width="{width}" height="{height}" rx="10" fill="#161b22" stroke="#6e7681"/>
<circle cx="22" cy="18" r="6" fill="#ff5f57"/>
<circle cx="42" cy="18" r="6" fill="#febc2e"/>
<circle cx="62" cy="18" r="6" fill="#28c840"/>
"##
    );
    for (index, (class, line)) in lines.iter().enumerate() {
        let text = line.trim_start();
        if text.is_empty() {
            continue;
        }
        let indent = line.len() - text.len();
        let x = pixels(10 * MARGIN + indent * CHARACTER);
        let y = BAR + MARGIN + index * LINE;
        let long = pixels(text.chars().count() * CHARACTER);
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        writeln!(
            svg,
            r#"<text x="{x}" y="{y}" class="{class}" textLength="{long}">{text}</text>"#
        )
        .unwrap();
    }
    svg.push_str("</svg>\n");
    svg
}
