//! What was done, when, and what came of it.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;

use super::operation::Operation;

/// Entries in the order of their ends.
#[derive(Default)]
pub(super) struct Timeline(Vec<Entry>);

/// One operation.
pub(super) struct Entry {
    pub(super) begun: Timestamp,
    pub(super) ended: Timestamp,
    what: String,
    /// The member that it breaks.
    breaks: Option<String>,
    outcome: String,
}

impl Entry {
    pub(super) fn begin(operation: &Operation) -> Self {
        let now = Timestamp::now();
        Self {
            begun: now,
            ended: now,
            what: format!("{operation:?}"),
            breaks: operation.breaks().map(str::to_owned),
            outcome: String::new(),
        }
    }

    pub(super) fn end(mut self, outcome: Result<()>) -> Self {
        self.ended = Timestamp::now();
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

    /// Whether something that was done here broke this member at some time between these two.
    pub(super) fn broke(&self, member: &str, from: Timestamp, until: Timestamp) -> bool {
        self.0.iter().any(|entry| {
            let this = entry.breaks.as_deref() == Some(member);
            this && entry.begun <= until && entry.ended >= from
        })
    }

    /// What happened around a moment.
    pub(super) fn around(&self, moment: Timestamp, reach: Duration) -> String {
        let near = self
            .0
            .iter()
            .filter(|entry| entry.begun <= moment + reach && entry.ended >= moment - reach);
        near.map(|entry| format!("{entry}\n"))
            .collect::<Vec<_>>()
            .concat()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome: String = self.outcome.chars().take(160).collect();
        write!(
            f,
            "{} … {}  {}: {outcome}",
            self.begun, self.ended, self.what
        )
    }
}

impl fmt::Display for Timeline {
    /// The last of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} operations; the last of them:", self.len())?;
        for entry in self.0.iter().rev().take(40).rev() {
            writeln!(f, "  {entry}")?;
        }
        Ok(())
    }
}
