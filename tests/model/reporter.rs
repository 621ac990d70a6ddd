//! The reporter: it shows in the budget's status what it sees of the cluster. None of that is a permission, but every write of it replaces the
//! whole status, grants and all.
//!
//! Two writes come of one look: what verdicts rest on (the latch), then what people read. The second is made over what the first stored. One
//! reporter is enough, although two replicas may take themselves for the leader for a moment: whoever holds an old page does nothing but
//! begin again.

use crate::action::Action;
use crate::appearance::look;
use crate::decision::latch_of;
use crate::ledger;
use crate::mutations::Mutation;
use crate::possible::hideable;
use crate::replica::scene;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{Budget, Reporter, State};

impl Reporter {
    /// Somebody has written: its own write would meet a conflict.
    pub(crate) fn lose_race(&mut self, mutation: Mutation) {
        if mutation != Mutation::ReportOverTheLedger {
            *self = Self::Idle;
        }
    }
}

/// What the reporter may do next.
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
        Reporter::Seen { .. } | Reporter::Testified => {
            actions.extend([Action::ReporterWrites, Action::ReporterCrashes]);
        }
    }
}

/// Reads the ledger.
pub(crate) fn read(state: &mut State, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    // Its page is the present one, until somebody writes.
    let keeps_it = scenario.mutation == Mutation::ReportOverTheLedger;
    state.reporter = Reporter::Page(keeps_it.then_some(budget.grants));
}

/// Looks at the cluster, except at those `hidden`.
pub(crate) fn look_around(state: &mut State, hidden: Set, scenario: &Scenario) {
    let (Some(budget), Reporter::Page(before)) = (state.budget, state.reporter) else {
        return;
    };
    let scene = scene(state, look(state, hidden), scenario, &budget);
    state.reporter = Reporter::Seen {
        latch: latch_of(scene),
        stale: before,
    };
}

/// Writes. The page is the present one, so the write is accepted.
pub(crate) fn write(state: &mut State, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let (next, written) = match state.reporter {
        Reporter::Idle | Reporter::Page(_) => return,
        Reporter::Seen { latch, stale } => {
            let grants = stale.map_or(budget.grants, |stale| {
                ledger::as_they_were(stale, budget.grants)
            });
            let written = Budget {
                grants,
                latched: budget.latched.after(latch),
                ..budget
            };
            (Reporter::Testified, written)
        }
        Reporter::Testified => (Reporter::Idle, budget),
    };
    // What people read has changed, whatever else has.
    state.put(written, true, scenario.mutation);
    state.reporter = next;
}
