//! What a row of the table is.

/// One thing that a peer's own tests assert, or that nobody tested before us, and what we answer.
pub(crate) struct Row {
    /// A letter for whose row it is, and a number.
    pub(crate) id: &'static str,
    /// The peer's tests by the names they have there; nothing where there is no peer.
    pub(crate) theirs: &'static str,
    /// What those assert. Without a peer: the question.
    pub(crate) asserted: &'static str,
    pub(crate) ours: Ours,
    /// Tests of ours, by name: functions (also steps of a test), or titles of scenarios.
    pub(crate) shown_by: &'static [&'static str],
}

/// What we answer.
pub(crate) enum Ours {
    /// What the peer answers.
    Same(&'static str),
    /// Something else, and why.
    Differs {
        answer: &'static str,
        because: &'static str,
    },
    /// It is about something that we do not have. `instead`: what comes nearest, where something does.
    Elsewhere {
        because: &'static str,
        instead: Option<&'static str>,
    },
    /// There is no peer to compare with.
    Own(&'static str),
}

impl Row {
    /// The id as names of tests begin with it.
    pub(crate) fn prefix(&self) -> String {
        self.id.to_lowercase()
    }

    /// Whether something has to show it: all but what is not about us and has no counterpart.
    pub(crate) fn is_testable(&self) -> bool {
        !matches!(self.ours, Ours::Elsewhere { instead: None, .. })
    }
}
