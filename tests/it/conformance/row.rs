//! A row of the conformance table.

/// An assertion of a peer's tests, or a question that no peer tests, with this gate's answer.
pub(crate) struct Row {
    /// A letter for the group and a number.
    pub(crate) id: &'static str,
    /// The peer's tests by their names; empty without a peer.
    pub(crate) theirs: &'static str,
    /// The assertion of those tests; without a peer, the question.
    pub(crate) asserted: &'static str,
    pub(crate) ours: Ours,
    /// The gate's own tests by name: functions (also steps of a test), or titles of scenarios.
    pub(crate) shown_by: &'static [&'static str],
}

/// The gate's answer.
pub(crate) enum Ours {
    /// The same as the peer's.
    Same(&'static str),
    /// Another than the peer's, with the reason.
    Differs {
        answer: &'static str,
        because: &'static str,
    },
    /// No answer, because the row is about something that this gate does not have. `instead` is the
    /// nearest counterpart, if there is one.
    Elsewhere {
        because: &'static str,
        instead: Option<&'static str>,
    },
    /// An answer without a peer to compare with.
    Own(&'static str),
}

impl Row {
    /// The id in the form in which names of tests begin with it.
    pub(crate) fn prefix(&self) -> String {
        self.id.to_lowercase()
    }

    /// Whether some test has to show the row: all rows but those about something that this gate
    /// neither has nor has a counterpart for.
    pub(crate) fn is_testable(&self) -> bool {
        !matches!(self.ours, Ours::Elsewhere { instead: None, .. })
    }
}
