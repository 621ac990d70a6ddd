//! What was done, when, and what came of it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;

use super::operation::{Broken, Operation};

/// The outcome of what came about.
const DONE: &str = "done";
/// How many of the last entries are told.
const LAST: usize = 60;

/// Entries in the order of their ends.
#[derive(Default)]
pub(super) struct Timeline {
    entries: Vec<Entry>,
    breaks: Vec<Break>,
}

/// That somebody was broken, where that was not as long as the operation.
struct Break {
    who: Broken,
    from: Timestamp,
    until: Timestamp,
}

/// An operation that had to come about found nobody to do it to.
#[derive(Debug, thiserror::Error)]
#[error("nobody is there: {0}")]
pub(super) struct Nobody(pub(super) String);

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
        self.undone &= outcome.as_ref().is_err_and(|error| !error.is::<Nobody>());
        self.outcome = match outcome {
            Ok(()) => DONE.to_owned(),
            Err(error) => format!("{error:#}"),
        };
        self
    }
}

impl Timeline {
    pub(super) fn add(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    /// That this one was broken from then until now.
    pub(super) fn broken(&mut self, who: Broken, from: Timestamp) {
        let until = Timestamp::now();
        self.breaks.push(Break { who, from, until });
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How often each kind of operation came about, and how often it was tried.
    pub(super) fn kinds(&self) -> BTreeMap<String, (usize, usize)> {
        let mut kinds = BTreeMap::<String, (usize, usize)>::new();
        for entry in &self.entries {
            let kind = entry.what.split('(').next().unwrap_or_default();
            let counted = kinds.entry(kind.to_owned()).or_default();
            counted.0 += usize::from(entry.outcome == DONE);
            counted.1 += 1;
        }
        kinds
    }

    /// Whether something that was done here broke this member, or the node that it was on, at some time between these two.
    pub(super) fn broke(
        &self,
        member: &str,
        node: Option<&str>,
        from: Timestamp,
        until: Timestamp,
    ) -> bool {
        let operations = self.entries.iter();
        let operations = operations.map(|entry| (&entry.breaks, entry.begun, entry.ended));
        let breaks = self.breaks.iter();
        let breaks = breaks.map(|fault| (&fault.who, fault.from, fault.until));
        operations.chain(breaks).any(|(broken, begun, ended)| {
            let this = match broken {
                Broken::Nobody => false,
                Broken::Member(broken) => broken == member,
                Broken::Node(broken) => Some(broken.as_str()) == node,
            };
            this && begun <= until && ended >= from
        })
    }

    /// Fails with whatever had to come about and did not.
    pub(super) fn nothing_was_left_undone(&self) -> Result<()> {
        let undone: Vec<_> = self.entries.iter().filter(|entry| entry.undone).collect();
        let listed = undone.iter().map(|entry| format!("\n  {entry}"));
        let listed = listed.collect::<Vec<_>>().concat();
        ensure!(undone.is_empty(), "something is wedged:{listed}");
        Ok(())
    }

    /// What happened around a moment.
    pub(super) fn around(&self, moment: Timestamp, reach: Duration) -> String {
        let near = self
            .entries
            .iter()
            .filter(|entry| entry.begun <= moment + reach && entry.ended >= moment - reach);
        near.map(|entry| format!("  {entry}\n"))
            .collect::<Vec<_>>()
            .concat()
    }

    /// All of it.
    pub(super) fn told(&self) -> String {
        let entries = self.entries.iter().map(|entry| format!("{entry}\n"));
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
        for entry in self.entries.iter().rev().take(LAST).rev() {
            writeln!(f, "  {entry}")?;
        }
        Ok(())
    }
}
