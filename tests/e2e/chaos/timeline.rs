//! What was done, when, and what came of it.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;

use super::operation::{Broken, Operation};

/// How many of the last entries are told.
const LAST: usize = 60;

/// Entries in the order of their ends.
#[derive(Default)]
pub(super) struct Timeline(Vec<Entry>);

/// One operation.
pub(super) struct Entry {
    begun: Timestamp,
    ended: Timestamp,
    what: String,
    breaks: Broken,
    outcome: String,
    /// It had to come about, and did not.
    undone: bool,
}

impl Entry {
    pub(super) fn begin(operation: &Operation) -> Self {
        let now = Timestamp::now();
        Self {
            begun: now,
            ended: now,
            what: format!("{operation:?}"),
            breaks: operation.breaks(),
            outcome: String::new(),
            undone: operation.must_come_about(),
        }
    }

    pub(super) fn end(mut self, outcome: Result<()>) -> Self {
        self.ended = Timestamp::now();
        self.undone &= outcome.is_err();
        self.outcome = match outcome {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        self
    }
}

impl Timeline {
    pub(super) fn add(&mut self, entry: Entry) {
        self.0.push(entry);
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether something that was done here broke this member, or the node that it was on, at some time between these two.
    pub(super) fn broke(
        &self,
        member: &str,
        node: Option<&str>,
        from: Timestamp,
        until: Timestamp,
    ) -> bool {
        self.0.iter().any(|entry| {
            let this = match &entry.breaks {
                Broken::Nobody => false,
                Broken::Member(broken) => broken == member,
                Broken::Node(broken) => Some(broken.as_str()) == node,
            };
            this && entry.begun <= until && entry.ended >= from
        })
    }

    /// Fails with whatever had to come about and did not.
    pub(super) fn nothing_was_left_undone(&self) -> Result<()> {
        let undone: Vec<_> = self.0.iter().filter(|entry| entry.undone).collect();
        let listed = undone.iter().map(|entry| format!("\n  {entry}"));
        let listed = listed.collect::<Vec<_>>().concat();
        ensure!(undone.is_empty(), "something is wedged:{listed}");
        Ok(())
    }

    /// What happened around a moment.
    pub(super) fn around(&self, moment: Timestamp, reach: Duration) -> String {
        let near = self
            .0
            .iter()
            .filter(|entry| entry.begun <= moment + reach && entry.ended >= moment - reach);
        near.map(|entry| format!("  {entry}\n"))
            .collect::<Vec<_>>()
            .concat()
    }

    /// All of it.
    pub(super) fn told(&self) -> String {
        let entries = self.0.iter().map(|entry| format!("{entry}\n"));
        entries.collect::<Vec<_>>().concat()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome: String = self.outcome.chars().take(160).collect();
        write!(
            f,
            "{} … {}  {}: {}",
            self.begun,
            self.ended,
            self.what,
            outcome.replace('\n', " ")
        )
    }
}

impl fmt::Display for Timeline {
    /// The last of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} operations; the last of them:", self.len())?;
        for entry in self.0.iter().rev().take(LAST).rev() {
            writeln!(f, "  {entry}")?;
        }
        Ok(())
    }
}
