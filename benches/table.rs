//! The result of a benchmark: a row per number, with its target if it has one.

use std::io::{self, Write as _};
use std::ops::{Bound, RangeBounds};

use crate::spread::Spread;

/// The target of a number in words, and whether it is met.
#[derive(Debug)]
struct Target {
    words: String,
    verdict: &'static str,
}

impl Target {
    /// The target with these bounds. A number that only explains the others has the bounds `..`.
    fn from_bounds(bounds: &impl RangeBounds<f64>, measured: f64) -> Self {
        let words = match (bounds.start_bound(), bounds.end_bound()) {
            (Bound::Included(least), _) => format!("at least {least}"),
            (_, Bound::Included(most)) => format!("at most {most}"),
            _ => String::new(),
        };
        let verdict = match (words.is_empty(), bounds.contains(&measured)) {
            (true, _) => "",
            (false, true) => "PASS",
            (false, false) => "MISS",
        };
        Self { words, verdict }
    }
}

/// A table of results.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<(String, Spread, Target)>,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            rows: Vec::new(),
        }
    }

    #[must_use]
    pub(crate) fn row(
        mut self,
        what: &str,
        measured: Spread,
        target: impl RangeBounds<f64>,
    ) -> Self {
        let target = Target::from_bounds(&target, measured.median);
        self.rows.push((what.to_owned(), measured, target));
        self
    }

    /// Writes it to standard output.
    pub(crate) fn print(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let wide = self.rows.iter().map(|(what, ..)| what.chars().count());
        let wide = wide.max().unwrap_or_default();
        writeln!(out, "\n{}\n", self.title)?;
        writeln!(
            out,
            "{:wide$}  {:>10}  {:^23}  target",
            "", "median", "least to most"
        )?;
        for (what, measured, target) in &self.rows {
            let Target { words, verdict } = target;
            let Spread {
                median,
                least,
                most,
            } = measured;
            let (median, least, most) = (short(*median), short(*least), short(*most));
            let spread = if least == most {
                String::new()
            } else {
                format!("{least} to {most}")
            };
            let line = format!("{what:wide$}  {median:>10}  {spread:^23}  {words:15}  {verdict}");
            writeln!(out, "{}", line.trim_end())?;
        }
        out.flush()
    }
}

/// A number with three significant digits.
fn short(number: f64) -> String {
    match number.abs() {
        size if size >= 100.0 => format!("{number:.0}"),
        size if size >= 10.0 => format!("{number:.1}"),
        size if size > 0.0 => format!("{number:.2}"),
        _ => "0".to_owned(),
    }
}
