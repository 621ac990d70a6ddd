//! An outage of the gate, and the guard that writes it down.
//!
//! A namespace loses its label, or the webhook configurations are missing, and then deletes pass
//! unasked. They may still be on their way when the gate is asked again.
//!
//! Such a delete counts as a failure from the moment at which it passes: every later look has to
//! reckon with one. It is for one incarnation, and an API server that finds another one there asks
//! again. While the gate is out of force, some API servers may ask it all the same, because each
//! learns of the change in its own time.
//!
//! Assumptions: every replica's watch shows an outage when it begins, some replica writes it down
//! within a settle time, and no replica starts before that. A model of one guard is enough: a guard
//! with an old reading only begins again.

use crate::action::Action;
use crate::mutations::Mutation;
use crate::scenario::Scenario;
use crate::state::{At, Budget, By, Force, Guard, Phase, Request, State};
use crate::trust::{Event, Recorded, Webhooks};

impl Guard {
    /// Another write was accepted, so the guard's own would meet a conflict. An outage that it has
    /// yet to write down stays to be written.
    pub(crate) fn lose_race(&mut self, unwritten: &mut bool) {
        *unwritten |= self.knows_of_an_outage();
        *self = Self::Idle;
    }

    /// Whether the guard has yet to write down an outage that it was told of.
    pub(crate) fn knows_of_an_outage(self) -> bool {
        match self {
            Self::Idle => false,
            Self::Page { outage } | Self::Out { outage } | Self::In { outage, .. } => outage,
        }
    }
}

/// The possible next actions.
pub(crate) fn actions(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if !scenario.outages {
        return;
    }
    match state.force {
        Force::In => actions.extend([
            Action::OutOfForce(Force::Unlabelled),
            Action::OutOfForce(Force::Unconfigured),
        ]),
        Force::Unlabelled | Force::Unconfigured => {
            actions.push(Action::InForce);
            if state.free_slot(scenario.requests).is_some() {
                let there = state.which(|m| !matches!(m.phase, Phase::Ending | Phase::Missing));
                actions.extend(there.iter().map(Action::DeleteUnasked));
            }
        }
    }
    let Some(budget) = &state.budget else { return };
    match state.guard {
        // The guard leaves alone what is as it should be.
        Guard::Idle if !state.unwritten && is_told(state, budget) => {}
        Guard::Idle => actions.push(Action::GuardReads),
        Guard::Page { .. } => actions.push(Action::GuardLooks),
        Guard::Out { .. } | Guard::In { .. } => {
            actions.extend([Action::GuardWrites, Action::GuardCrashes]);
        }
    }
}

/// Whether the budget says how things are.
fn is_told(state: &State, budget: &Budget) -> bool {
    let trust = budget.trust;
    trust
        == trust.after(match state.force {
            Force::In => Event::InForce(trust.standing()),
            Force::Unlabelled | Force::Unconfigured => Event::OutOfForce,
        })
}

/// Puts the gate out of force.
pub(crate) fn begin(state: &mut State, why: Force) {
    state.force = why;
    if why == Force::Unlabelled {
        state.outage_ago = Some(0);
        state.unwritten = true;
    }
}

/// Puts the gate in force again. Webhook configurations that were missing are made anew.
pub(crate) fn end(state: &mut State) {
    if state.force == Force::Unconfigured {
        if let Some(budget) = &mut state.budget {
            budget.trust.by_others = true;
        }
        if let Guard::In { by, .. } = &mut state.guard
            && *by == Webhooks::Others
        {
            *by = Webhooks::Former;
        }
    }
    state.force = Force::In;
}

/// Lets a delete pass unasked.
pub(crate) fn delete(state: &mut State, n: usize, scenario: &Scenario) {
    let slot = state.free_slot(scenario.requests).unwrap();
    state.requests[slot] = Some(Request {
        target: u8::try_from(n).unwrap(),
        stands: true,
        age: 0,
        by: By::Stranger,
        at: At::Unasked,
    });
    state.reckon_with_failure_of(n);
}

/// The guard reads the ledger, with what it was told of an outage.
pub(crate) fn read(state: &mut State) {
    state.guard = Guard::Page {
        outage: state.unwritten,
    };
    state.unwritten = false;
}

/// The guard reads whether the gate is in force, and by which configurations.
pub(crate) fn look(state: &mut State) {
    let (Guard::Page { outage }, Some(budget)) = (state.guard, state.budget) else {
        return;
    };
    let by = budget.trust.standing();
    state.guard = match state.force {
        Force::In => Guard::In { outage, by },
        Force::Unlabelled | Force::Unconfigured => Guard::Out { outage },
    };
}

/// The guard writes. The write is accepted, because the reading is up to date. An outage that is
/// over is recorded as well, in the same write.
pub(crate) fn write(state: &mut State, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let out = Some(Event::OutOfForce);
    let (out, back) = match state.guard {
        Guard::Idle | Guard::Page { .. } => return,
        Guard::Out { .. } => (out, None),
        Guard::In { outage, by } => (out.filter(|_| outage), Some(Event::InForce(by))),
    };
    let events = out.into_iter().chain(back);
    let mut trust = events.fold(budget.trust, Recorded::after);
    let at_once = scenario.mutation == Mutation::TrustedRightAfterAnOutage;
    if at_once && back.is_some() && trust != budget.trust {
        trust.untrusted_for = None;
    }
    // An outage that is recorded is no longer announced.
    state.guard = Guard::Idle;
    if trust != budget.trust {
        state.put(Budget { trust, ..budget }, true, scenario.mutation);
    }
}
