//! The record of operations, with their times and outcomes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;

use super::operation::{Broken, Operation};

/// The outcome of a success.
const DONE: &str = "done";
/// The number of entries that are printed.
const LAST: usize = 60;

/// Entries in the order in which they ended.
#[derive(Default)]
pub(super) struct Timeline {
    entries: Vec<Entry>,
    breaks: Vec<Break>,
    replacements: Vec<Replacement>,
}

/// Why a member was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The volume was lost, which is a fault.
    Lost,
    /// A request by the annotation.
    Asked,
}

/// The time in which a member was replaced.
struct Replacement {
    member: String,
    why: Replaced,
    from: Timestamp,
    until: Timestamp,
}

/// A time for which a target was broken, if that differs from the time of the operation.
struct Break {
    who: Broken,
    from: Timestamp,
    until: Timestamp,
}

/// The error of an operation that had no target.
#[derive(Debug, thiserror::Error)]
#[error("no target: {0}")]
pub(super) struct Nobody(pub(super) String);

/// The record of one operation.
pub(super) struct Entry {
    begun: Timestamp,
    ended: Timestamp,
    what: String,
    breaks: Broken,
    outcome: String,
    /// The operation had to succeed and did not.
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

    /// Records that this target was broken from then until now.
    pub(super) fn broken(&mut self, who: Broken, from: Timestamp) {
        let until = Timestamp::now();
        self.breaks.push(Break { who, from, until });
    }

    /// Records that this member was replaced at some time from then until now.
    pub(super) fn replaced(&mut self, member: &str, from: Timestamp, why: Replaced) {
        self.replacements.push(Replacement {
            member: member.to_owned(),
            why,
            from,
            until: Timestamp::now(),
        });
    }

    /// The members that were being replaced at this moment, and why.
    pub(super) fn replaced_at(
        &self,
        moment: Timestamp,
    ) -> impl Iterator<Item = (&str, Replaced)> + use<'_> {
        let replacements = self.replacements.iter();
        let now = replacements.filter(move |one| one.from <= moment && one.until >= moment);
        now.map(|one| (one.member.as_str(), one.why))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// For each kind of operation the number of successes and the number of attempts.
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

    /// Whether an operation broke this member or its node at some time between these two.
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

    /// Fails with all operations that had to succeed and did not.
    pub(super) fn nothing_was_left_undone(&self) -> Result<()> {
        let undone: Vec<_> = self.entries.iter().filter(|entry| entry.undone).collect();
        let listed = undone.iter().map(|entry| format!("\n  {entry}"));
        let listed = listed.collect::<Vec<_>>().concat();
        ensure!(undone.is_empty(), "something is wedged:{listed}");
        Ok(())
    }

    /// The operations around a moment, as text.
    pub(super) fn around(&self, moment: Timestamp, reach: Duration) -> String {
        let near = self
            .entries
            .iter()
            .filter(|entry| entry.begun <= moment + reach && entry.ended >= moment - reach);
        near.map(|entry| format!("  {entry}\n"))
            .collect::<Vec<_>>()
            .concat()
    }

    /// All operations, as text.
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
    /// Writes the last operations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} operations; the last of them:", self.len())?;
        for entry in self.entries.iter().rev().take(LAST).rev() {
            writeln!(f, "  {entry}")?;
        }
        Ok(())
    }
}
