//! What an accepted write does to everyone who has read before it.

use crate::mutations::Mutation;
use crate::state::{At, Budget, State};

impl State {
    /// An accepted write. Where it changes anything, every page that was read before is an old one: its holder would meet a conflict,
    /// and begin again from the reading.
    pub(crate) fn put(&mut self, budget: Budget, is_fence: bool, mutation: Mutation) {
        let changes = is_fence || self.budget != Some(budget);
        self.budget = Some(budget);
        if changes {
            self.lose_races(mutation);
        }
    }

    /// Those who hold a page hold an old one.
    pub(crate) fn lose_races(&mut self, mutation: Mutation) {
        for request in self.requests.iter_mut().flatten() {
            request.at = match (request.at, mutation) {
                (At::Decided(permit), Mutation::ResendAnOldVerdict) => At::Decided(permit),
                (
                    At::Decided(permit) | At::Again(permit),
                    Mutation::EvidenceAcrossAResourceVersion,
                ) => At::Again(permit),
                (
                    At::Page | At::Looking { .. } | At::Half { .. } | At::Decided(_) | At::Again(_),
                    _,
                ) => At::Called,
                (at @ (At::Called | At::Answered(_) | At::Unasked), _) => at,
            };
        }
        for settler in &mut self.settlers {
            settler.lose_race();
        }
        self.reporter.lose_race(mutation);
        self.guard.lose_race(&mut self.unwritten);
    }
}
