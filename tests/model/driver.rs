//! The rollout driver: reads the ledger, looks, and asks for the step that the shipped planner names. It deletes like everyone.

use crate::action::Action;
use crate::appearance::look;
use crate::decision;
use crate::possible::hideable;
use crate::replica::scene;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{At, By, Driver, Phase, Request, State};

/// What the driver may do next.
pub(crate) fn actions(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if !scenario.rollout || state.budget.is_none() {
        return;
    }
    let ours = |request: &Request| request.by != By::Stranger;
    let busy = state.requests.iter().flatten().any(ours);
    let outdated = state.which(|m| m.outdated);
    match state.driver {
        Driver::Idle if busy || outdated.is_empty() => {}
        Driver::Idle => actions.push(Action::DriverReads),
        Driver::Page if state.free_slot(scenario.requests).is_none() => {}
        Driver::Page => {
            let hidden = hideable(state).subsets(scenario.hidden);
            actions.extend(hidden.map(Action::DriverPlans));
        }
    }
    if outdated.is_empty() {
        actions.push(Action::TemplateChanges);
    }
}

/// Looks, and asks for the step that the plan names.
pub(crate) fn plan(state: &mut State, hidden: Set, scenario: &Scenario) {
    state.driver = Driver::Idle;
    let (Some(budget), Some(slot)) = (state.budget, state.free_slot(scenario.requests)) else {
        return;
    };
    let scene = scene(state, look(state, hidden), scenario, budget.latch);
    let Some(target) = decision::step(scene, budget.grants) else {
        return;
    };
    assert_ne!(
        state.members[target].phase,
        Phase::Missing,
        "a step needs a pod"
    );
    state.requests[slot] = Some(Request {
        target: u8::try_from(target).unwrap(),
        stands: true,
        age: 0,
        by: By::Driver,
        at: At::Called,
    });
}
