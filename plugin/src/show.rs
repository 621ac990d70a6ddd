//! Output: text on stdout, tables that fit 100 columns, colours only on a terminal.

use std::io::{IsTerminal as _, Write as _};

use anyhow::Result;
use clap::ValueEnum;
use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::cli::Form;

/// The most columns of a table.
const WIDTH: u16 = 100;

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
pub(crate) fn cell(text: impl ToString, tone: Tone) -> Cell {
    let cell = Cell::new(text);
    match tone {
        Tone::Plain => cell,
        Tone::Good => cell.fg(Color::Green),
        Tone::Uneasy => cell.fg(Color::Yellow),
        Tone::Bad => cell.fg(Color::Red),
    }
}

/// A table with these headings, without lines.
pub(crate) fn table(headings: &[&str], rows: Vec<Vec<Cell>>, paint: Paint) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH);
    match paint {
        Paint::Always => table.enforce_styling(),
        Paint::Never => table.force_no_tty(),
        Paint::Auto => &mut table,
    };
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

/// Writes to stdout. That nobody reads on is no failure.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes a line to stderr.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Writes for programs.
pub(crate) fn print_as(form: Form, shown: &impl Serialize) -> Result<()> {
    print(&match form {
        Form::Json => serde_json::to_string_pretty(shown)? + "\n",
        Form::Yaml => serde_saphyr::to_string(shown)?,
    })
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

    #[test]
    fn a_table_fits_a_hundred_columns_and_has_colours_only_where_they_are_wanted() {
        let rows = || {
            let why = "its linearizable read was not answered in time, ".repeat(6);
            vec![vec![cell("etcd-0", Tone::Good), cell(why, Tone::Bad)]]
        };
        let headings = ["MEMBER", "WHY"];
        let plain = table(&headings, rows(), Paint::Never);
        assert!(plain.lines().count() > 2, "{plain}");
        assert!(plain.lines().all(|line| line.len() <= 100), "{plain}");
        assert!(!plain.contains('\x1b'), "{plain}");
        assert!(table(&headings, rows(), Paint::Always).contains('\x1b'));
        // The output of tests is no terminal.
        assert!(!table(&headings, rows(), Paint::Auto).contains('\x1b'));
    }
}
