//! The states and sub-states of a member (DEP-04, "States and Sub-States").

/// A state together with its sub-state, under the names of DEP-04.
///
/// A single enum holds both, because each sub-state belongs to exactly one state.
///
/// ```
/// use quorumgate_core::members::State;
///
/// assert_eq!(State::Learner.name(), "Starting");
/// assert_eq!(State::Learner.sub_state(), "Learner");
/// assert_eq!(State::parse("Initializing", "DBValidationFull"), Some(State::DbValidationFull));
/// assert_eq!(State::parse("Started", "Learner"), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr)]
pub enum State {
    /// The member was created, or its data was given up. The sub-state is written as `New`, as in
    /// the example of DEP-04.
    New,
    /// Initializing: the structure of the data is checked, after a clean exit.
    #[strum(serialize = "DBValidationSanity")]
    DbValidationSanity,
    /// Initializing: the data is checked in full, because no clean exit is known.
    #[strum(serialize = "DBValidationFull")]
    DbValidationFull,
    /// Initializing: the only member of a cluster is restored from the backup.
    Restoration,
    /// Starting: the member waits to be added as a learner.
    PendingLearner,
    /// Starting: the member is a learner and catches up.
    Learner,
    /// Started: a voter that does not lead.
    Follower,
    /// Started: the voter that leads.
    Leader,
}

impl State {
    /// All states, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::New,
        Self::DbValidationSanity,
        Self::DbValidationFull,
        Self::Restoration,
        Self::PendingLearner,
        Self::Learner,
        Self::Follower,
        Self::Leader,
    ];

    /// The state, without its sub-state.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "New",
            Self::DbValidationSanity | Self::DbValidationFull | Self::Restoration => "Initializing",
            Self::PendingLearner | Self::Learner => "Starting",
            Self::Follower | Self::Leader => "Started",
        }
    }

    /// The sub-state.
    pub fn sub_state(self) -> &'static str {
        self.into()
    }

    /// The state with these names. A state without a sub-state is `New`.
    pub fn parse(state: &str, sub_state: &str) -> Option<Self> {
        let sub_state = if sub_state.is_empty() {
            state
        } else {
            sub_state
        };
        Self::ALL
            .into_iter()
            .find(|known| known.name() == state && known.sub_state() == sub_state)
    }

    /// Whether the member has become a voter and served.
    pub fn is_started(self) -> bool {
        matches!(self, Self::Follower | Self::Leader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_back_from_its_names() {
        for state in State::ALL {
            let names = (state.name(), state.sub_state());
            assert_eq!(State::parse(names.0, names.1), Some(state));
        }
        assert_eq!(State::parse("New", ""), Some(State::New));
        assert_eq!(State::parse("Started", ""), None);
        assert_eq!(State::parse("New", "Leader"), None);
    }
}
