//! The settler: it removes causes of grants that have ended, by what it sees after it has read the
//! ledger.

use crate::appearance::{Appearance, look};
use crate::defragmentation;
use crate::ledger;
use crate::mutations::Mutation;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{Budget, Phase, Settler, State};

impl Settler {
    /// Another write was accepted, so the settler's own would meet a conflict.
    pub(crate) fn lose_race(&mut self) {
        match self {
            Self::Page | Self::Due(..) => *self = Self::Idle,
            Self::Idle | Self::LookedFirst(_) => {}
        }
    }
}

/// By mutation: looks at the pods before it reads the ledger.
pub(crate) fn look_first(state: &mut State, n: usize) {
    state.settlers[n] = Settler::LookedFirst(state.which(|m| m.phase == Phase::Missing));
}

/// Reads the ledger.
pub(crate) fn read(state: &mut State, n: usize, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    state.settlers[n] = match state.settlers[n] {
        Settler::LookedFirst(gone) => to_do(due(state, &budget, Some(gone), scenario), Set::NONE),
        Settler::Idle | Settler::Page | Settler::Due(..) => Settler::Page,
    };
}

/// Looks at the members that have a grant.
pub(crate) fn look_at_pods(state: &mut State, n: usize, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let deletes = due(state, &budget, None, scenario);
    state.settlers[n] = to_do(deletes, defragmentation::due(state, &budget, scenario));
}

/// Settles everything that has ended, in one go.
pub(crate) fn settle_at_once(state: &mut State, scenario: &Scenario) {
    state.settlers = [Settler::Idle; _];
    read(state, 0, scenario);
    look_at_pods(state, 0, scenario);
    write(state, 0, scenario);
}

fn to_do(deletes: Set, defragmentations: Set) -> Settler {
    if deletes.or(defragmentations).is_empty() {
        Settler::Idle
    } else {
        Settler::Due(deletes, defragmentations)
    }
}

/// Removes the causes that have ended. The write is accepted, because the settler's reading is up
/// to date.
pub(crate) fn write(state: &mut State, n: usize, scenario: &Scenario) {
    let (Settler::Due(deletes, defragmentations), Some(budget)) = (state.settlers[n], state.budget)
    else {
        return;
    };
    let grants = ledger::without(budget.grants, deletes);
    let grants = ledger::without_defragmentation(grants, defragmentations);
    state.settlers[n] = Settler::Idle;
    state.put(Budget { grants, ..budget }, false, scenario.mutation);
}

/// The members whose deletes have ended. `gone` are those whose pods were missing at an earlier
/// look.
fn due(state: &State, budget: &Budget, gone: Option<Set>, scenario: &Scenario) -> Set {
    let seen = look(state, Set::NONE);
    let mut due = Set::NONE;
    for (n, grant) in budget.grants.iter().enumerate() {
        let Some(cause) = grant.delete else { continue };
        let shown = match (seen[n], scenario.mutation) {
            _ if gone.is_some_and(|gone| gone.has(n)) => Appearance::Missing,
            // Every pod is taken for one that exists and is not terminating.
            (_, Mutation::SettleByAgeWithoutALook) => Appearance::Answers,
            (Appearance::Answers, Mutation::NeverSettleWhatStands) => Appearance::Ending,
            (shown, _) => shown,
        };
        if ledger::has_ended(n, cause, shown, scenario.settle_time) {
            due = due.with(n);
        }
    }
    due
}
