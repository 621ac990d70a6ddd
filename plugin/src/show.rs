//! Output: text on stdout, a row per line where stdout is no terminal, colours only on one.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use clap::ValueEnum;
use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::cli::Form;

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Paint {
    /// On a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Paint {
    /// The same, unless the environment has `NO_COLOR` and nobody chose.
    pub(crate) fn by_environment(self) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty());
        if self == Self::Auto && unwanted {
            Self::Never
        } else {
            self
        }
    }

    /// Whether stdout gets colours.
    fn is_on(self) -> bool {
        match self {
            Self::Auto => std::io::stdout().is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }

    /// The word in the colour of its tone.
    pub(crate) fn word(self, word: &str, tone: Tone) -> String {
        let code = match tone {
            Tone::Good => 32,
            Tone::Uneasy => 33,
            Tone::Bad => 31,
            Tone::Plain => 0,
        };
        if self.is_on() && code != 0 {
            format!("\x1b[{code}m{word}\x1b[0m")
        } else {
            word.to_owned()
        }
    }
}

/// How a word is meant, which its colour shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Good,
    Uneasy,
    Bad,
}

/// A cell of a table.
pub(crate) fn cell(text: impl AsRef<str>, tone: Tone) -> Cell {
    let cell = Cell::new(one_line(text.as_ref()));
    match tone {
        Tone::Plain => cell,
        Tone::Good => cell.fg(Color::Green),
        Tone::Uneasy => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
    }
}

/// The text without line breaks.
pub(crate) fn one_line(text: &str) -> String {
    text.split_inclusive(['\n', '\r'])
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// A table with these headings, without lines. On a terminal it has the width of that. Elsewhere a
/// row is one line, as programs expect it.
pub(crate) fn table(headings: &[&str], rows: Vec<Vec<Cell>>, paint: Paint) -> String {
    let width = if std::io::stdout().is_terminal() {
        Table::new().width()
    } else {
        None
    };
    table_within(width, headings, rows, paint)
}

fn table_within(
    width: Option<u16>,
    headings: &[&str],
    rows: Vec<Vec<Cell>>,
    paint: Paint,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match width {
        Some(width) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    if paint.is_on() {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    if !headings.is_empty() {
        table.set_header(headings);
    }
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.to_string();
    let lines = lines.lines().map(str::trim_end);
    lines.fold(String::new(), |all, line| all + line + "\n")
}

/// Writes to stdout. A reader that has gone is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to stdout.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes a line to stderr.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// The text for programs.
pub(crate) fn text_as(form: Form, shown: &impl Serialize) -> Result<String> {
    Ok(match form {
        Form::Json => serde_json::to_string_pretty(shown)? + "\n",
        Form::Yaml => serde_saphyr::to_string(shown)?,
    })
}

/// Writes for programs.
pub(crate) fn print_as(form: Form, shown: &impl Serialize) -> Result<()> {
    print(&text_as(form, shown)?)
}

/// Clears the terminal before the next picture, if stdout is one.
pub(crate) fn clear() -> Result<()> {
    if std::io::stdout().is_terminal() {
        print("\x1b[H\x1b[2J")
    } else {
        print("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Vec<Cell>> {
        let why = "its linearizable read was not answered in time,\n ".repeat(6);
        vec![vec![cell("etcd-0", Tone::Good), cell(why, Tone::Bad)]]
    }

    const HEADINGS: [&str; 2] = ["MEMBER", "WHY"];

    #[test]
    fn a_row_is_one_line_in_a_pipe_and_has_the_width_of_a_terminal() {
        let in_pipe = table_within(None, &HEADINGS, rows(), Paint::Never);
        assert_eq!(in_pipe.lines().count(), 2, "{in_pipe}");
        // The output of tests is no terminal.
        assert_eq!(table(&HEADINGS, rows(), Paint::Never), in_pipe);
        for width in [60, 100] {
            let shown = table_within(Some(width), &HEADINGS, rows(), Paint::Never);
            assert!(shown.lines().count() > 2, "{shown}");
            let width = usize::from(width);
            assert!(shown.lines().all(|line| line.len() <= width), "{shown}");
        }
    }

    #[test]
    fn colours_are_used_only_where_they_are_wanted() {
        assert!(!table(&HEADINGS, rows(), Paint::Never).contains('\x1b'));
        assert!(table(&HEADINGS, rows(), Paint::Always).contains('\x1b'));
        assert!(!table(&HEADINGS, rows(), Paint::Auto).contains('\x1b'));
        assert_eq!(Paint::Auto.word("OK", Tone::Good), "OK");
        assert!(Paint::Always.word("OK", Tone::Good).contains('\x1b'));
    }
}
