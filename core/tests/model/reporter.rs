//! The reporter: it shows the state of the cluster in the budget's status. Nothing in its report is
//! a permission, but every write of it replaces the whole status, including the grants.
//!
//! Each look leads to two writes: first the expected voters, on which decisions depend, then the
//! report for people. The second write is based on the result of the first. A model of one reporter
//! is enough, although two replicas may take themselves for the leader for a moment: a reporter
//! with an old reading only begins again.

use crate::action::Action;
use crate::appearance::look;
use crate::decision::expected_of;
use crate::ledger;
use crate::mutations::Mutation;
use crate::possible::hideable;
use crate::replica::scene;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{Budget, Reporter, State};

impl Reporter {
    /// Another write was accepted, so the reporter's own would meet a conflict.
    pub(crate) fn lose_race(&mut self, mutation: Mutation) {
        if mutation != Mutation::ReportOverTheLedger {
            *self = Self::Idle;
        }
    }
}

/// The possible next actions of the reporter.
pub(crate) fn actions(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if !scenario.reports || state.budget.is_none() {
        return;
    }
    match state.reporter {
        Reporter::Idle => actions.push(Action::ReporterReads),
        Reporter::Page(_) => {
            let hidden = hideable(state).subsets(scenario.hidden);
            actions.extend(hidden.map(Action::ReporterLooks));
        }
        Reporter::Seen { .. } | Reporter::Updated => {
            actions.extend([Action::ReporterWrites, Action::ReporterCrashes]);
        }
    }
}

/// Reads the ledger.
pub(crate) fn read(state: &mut State, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    // The reading is up to date until the next write.
    let keeps_it = scenario.mutation == Mutation::ReportOverTheLedger;
    state.reporter = Reporter::Page(keeps_it.then_some(budget.grants));
}

/// Looks at the members that are not in `hidden`.
pub(crate) fn look_around(state: &mut State, hidden: Set, scenario: &Scenario) {
    let (Some(budget), Reporter::Page(before)) = (state.budget, state.reporter) else {
        return;
    };
    let scene = scene(state, look(state, hidden), scenario, &budget);
    state.reporter = Reporter::Seen {
        expected: expected_of(scene),
        stale: before,
    };
}

/// Writes. The write is accepted, because the reporter's reading is up to date.
pub(crate) fn write(state: &mut State, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let (next, written) = match state.reporter {
        Reporter::Idle | Reporter::Page(_) => return,
        Reporter::Seen { expected, stale } => {
            let grants = stale.map_or(budget.grants, |stale| {
                ledger::as_they_were(stale, budget.grants)
            });
            let written = Budget {
                grants,
                expected: budget.expected.after(expected),
                ..budget
            };
            (Reporter::Updated, written)
        }
        Reporter::Updated => (Reporter::Idle, budget),
    };
    // The report for people has changed in any case.
    state.put(written, true, scenario.mutation);
    state.reporter = next;
}
