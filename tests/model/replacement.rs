//! The replacement of a volume. It holds its grant from the permission until its new voter serves,
//! however many pods come and go meanwhile.

use crate::action::Action;
use crate::appearance::look;
use crate::decision::{Question, Ruling, What, rule};
use crate::ledger::{self, For};
use crate::replica::{scene, worth};
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{Budget, Out, Phase, Replacement, State};

/// The possible next actions of the replacement.
pub(crate) fn actions(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if !scenario.replacement || state.budget.is_none() {
        return;
    }
    match &state.replacement {
        None => actions.extend((0..scenario.members()).map(Action::Replace)),
        Some(Replacement { done: false, .. }) => actions.push(Action::ReplacementTakes),
        Some(Replacement { target, .. }) => {
            if state.members[usize::from(*target)].phase == Phase::Up {
                actions.push(Action::ReplacementEnds);
            }
        }
    }
}

/// Asks for the grant, and gets it or not.
pub(crate) fn ask(state: &mut State, n: usize, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let question = Question {
        scene: scene(state, look(state, Set::NONE), scenario, &budget),
        open: budget.grants,
        ledger: worth(state, &budget, scenario),
        target: n,
        what: What::Replace,
    };
    if let Ruling::Granted { .. } = rule(question) {
        let (grants, is_fence) = ledger::issued(budget.grants, n, For::Replace);
        state.replacement = Some(Replacement {
            target: u8::try_from(n).unwrap(),
            excused: Set::NONE,
            done: false,
        });
        state.put(Budget { grants, ..budget }, is_fence, scenario.mutation);
    }
}

/// Takes the pod and its claim, whatever the incarnation.
pub(crate) fn take(state: &mut State) {
    let Some(replacement) = &mut state.replacement else {
        return;
    };
    replacement.done = true;
    let (n, excused) = (usize::from(replacement.target), replacement.excused);
    if state.members[n].phase == Phase::Up {
        state.members[n].out = Out::Taken(excused);
    }
    state.end(n);
}

/// Ends the grant, as the new voter serves.
pub(crate) fn end(state: &mut State, scenario: &Scenario) {
    let (Some(replacement), Some(budget)) = (state.replacement.take(), state.budget) else {
        return;
    };
    let grants = ledger::without_replacement(budget.grants, usize::from(replacement.target));
    state.put(Budget { grants, ..budget }, false, scenario.mutation);
}
