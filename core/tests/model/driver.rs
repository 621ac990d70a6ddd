//! The rollout driver. It reads the ledger, looks, and asks for the steps that the shipped planner
//! names, one after the other. It deletes like every asker.
//!
//! A cycle of several steps goes on until someone else gets a permission. The shipped driver does
//! less: it takes the second permission, which its own delete gets from the webhook, for someone
//! else's, and so plans anew after each step.

use crate::action::Action;
use crate::appearance::look;
use crate::decision;
use crate::mutations::Mutation;
use crate::possible::hideable;
use crate::replica::scene;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{At, By, Driver, Phase, Request, State};
use crate::steps::Steps;

/// The possible next actions of the driver.
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
        // A step is over before the next one of its cycle is asked for.
        Driver::Cycle(_) if busy => {}
        Driver::Page | Driver::Cycle(_) if state.free_slot(scenario.requests).is_none() => {}
        Driver::Cycle(_) => actions.extend([Action::DriverGoesOn, Action::DriverCrashes]),
        Driver::Page => {
            let hidden = hideable(state).subsets(scenario.hidden);
            actions.extend(hidden.map(Action::DriverPlans));
        }
    }
    if outdated.is_empty() {
        actions.push(Action::TemplateChanges);
    }
}

/// Looks, and asks for the first of the steps that the plan names.
pub(crate) fn plan(state: &mut State, hidden: Set, scenario: &Scenario) {
    state.driver = Driver::Idle;
    let Some(budget) = state.budget else { return };
    let steps = if scenario.mutation == Mutation::StepsByMaxUnavailableAlone {
        unbounded(state, scenario)
    } else {
        let scene = scene(state, look(state, hidden), scenario, &budget);
        decision::steps(scene, budget.grants, scenario.strategy())
    };
    ask_for_the_first_of(steps, state, scenario);
}

/// By mutation: outdated members that are up go while fewer than the limit are out, even if the
/// others cannot spare them.
fn unbounded(state: &State, scenario: &Scenario) -> Steps {
    let out = state.which(|member| member.phase != Phase::Up).count();
    let open = state.which(|member| member.phase == Phase::Up && member.outdated);
    let has_room = out < u32::from(scenario.max_unavailable);
    Steps::new(open.iter().take(usize::from(has_room)))
}

/// Asks for the next step of the cycle. The step is judged by a look of its own. Its delete is
/// fenced by the look that it was planned by.
pub(crate) fn go_on(state: &mut State, scenario: &Scenario) {
    if let Driver::Cycle(rest) = state.driver {
        state.driver = Driver::Idle;
        ask_for_the_first_of(rest, state, scenario);
    }
}

fn ask_for_the_first_of(steps: Steps, state: &mut State, scenario: &Scenario) {
    let (Some(slot), Some((target, rest))) = (state.free_slot(scenario.requests), steps.split())
    else {
        return;
    };
    assert_ne!(
        state.members[target].phase,
        Phase::Missing,
        "a step needs a pod"
    );
    if !rest.is_empty() {
        state.driver = Driver::Cycle(rest);
    }
    state.requests[slot] = Some(Request {
        target: u8::try_from(target).unwrap(),
        stands: true,
        age: 0,
        by: By::Driver,
        at: At::Called,
    });
}
