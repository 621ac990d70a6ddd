//! The consequences of an accepted write for everyone who has read before it.

use crate::mutations::Mutation;
use crate::state::{At, Budget, State};

impl State {
    /// Writes the budget. If the write changes the resourceVersion, all earlier readings are out of
    /// date: their holders would meet a conflict and begin again by reading.
    pub(crate) fn put(&mut self, budget: Budget, is_fence: bool, mutation: Mutation) {
        let changes = is_fence || self.budget != Some(budget);
        self.budget = Some(budget);
        if changes {
            self.lose_races(mutation);
        }
    }

    /// Makes every holder of a reading begin again.
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
        self.replacer.lose_race();
        self.reporter.lose_race(mutation);
        self.guard.lose_race(&mut self.unwritten);
    }
}
