//! The defragmentation of a member: the grant, its renewal right before the one call, and its
//! settlement once the member takes part again.
//!
//! The planner asks for more than this model does: all voters have to serve. Here a member may be
//! defragmented whenever `quorum::decide` finds that the others make the majority. A call cannot be
//! cancelled, so a member goes on when the process that made the call is gone. Others may also
//! defragment a member without asking: that is a failure like another (`Phase::Busy` among the
//! ailments of a scenario).
//!
//! The grant matters until the member begins. After that the member does not serve, whatever became
//! of the grant, because it answers nobody. So a replica that settles by age alone, although the
//! member is busy, breaks nothing here; one that settles because the member is not busy does.

use quorumgate_core::quorum::{Basis, DefragmentationProgress as Progress};

use crate::action::Action;
use crate::appearance::look;
use crate::decision::{Question, Ruling, What, rule};
use crate::ledger::{self, For};
use crate::mutations::Mutation;
use crate::replica::{scene, worth};
use crate::scenario::{LIFE, Scenario};
use crate::set::Set;
use crate::state::{Budget, Defragmentation, Out, Phase, Stage, State};

/// The possible next actions of the process that defragments.
pub(crate) fn actions(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if !scenario.defragmentation || state.budget.is_none() {
        return;
    }
    let Some(run) = state.defragmentation else {
        let up = state.which(|member| member.phase == Phase::Up);
        actions.extend(up.iter().map(Action::Defragment));
        return;
    };
    match run.stage {
        Stage::Granted if scenario.mutation == Mutation::DefragmentWithoutRenewal => {
            actions.push(Action::DefragmentationBegins);
        }
        Stage::Granted => actions.push(Action::DefragmentationRenews),
        Stage::Renewed { .. } => actions.push(Action::DefragmentationBegins),
        Stage::Called => {
            if state.members[usize::from(run.target)].phase == Phase::Up {
                actions.push(Action::DefragmentationSettles);
            }
        }
    }
    actions.push(Action::DefragmentationCrashes);
}

/// Whether the time may pass: the call is made within a request's life after the renewal.
pub(crate) fn is_in_time(state: &State) -> bool {
    let run = state.defragmentation;
    !run.is_some_and(|run| matches!(run.stage, Stage::Renewed { age } if age >= LIFE))
}

/// Asks for the grant, and gets it or not.
pub(crate) fn ask(state: &mut State, n: usize, scenario: &Scenario) {
    if grant(state, n, scenario) {
        state.defragmentation = Some(Defragmentation {
            target: u8::try_from(n).unwrap(),
            excused: Set::NONE,
            stage: Stage::Granted,
        });
    }
}

/// Judges once more, and renews the grant. The run ends if the grant is gone or the judgement is
/// no.
pub(crate) fn renew(state: &mut State, scenario: &Scenario) {
    let (Some(run), Some(budget)) = (state.defragmentation.take(), state.budget) else {
        return;
    };
    let n = usize::from(run.target);
    if budget.grants[n].defragment.is_none() {
        return;
    }
    if grant(state, n, scenario) {
        state.defragmentation = Some(Defragmentation {
            excused: Set::NONE,
            stage: Stage::Renewed { age: 0 },
            ..run
        });
    } else {
        settle(state, n, Progress::NotBegun, scenario);
    }
}

/// Writes a grant, if the decision is yes. Returns whether it is.
fn grant(state: &mut State, n: usize, scenario: &Scenario) -> bool {
    let Some(budget) = state.budget else {
        return false;
    };
    let question = Question {
        scene: scene(state, look(state, Set::NONE), scenario, &budget),
        open: budget.grants,
        ledger: worth(state, &budget, scenario),
        target: n,
        what: What::Defragment,
    };
    let Ruling::Granted {
        basis: Basis::Majority { .. },
        ..
    } = rule(question)
    else {
        return false;
    };
    let (grants, is_fence) = ledger::issued(budget.grants, n, For::Defragment);
    state.put(Budget { grants, ..budget }, is_fence, scenario.mutation);
    true
}

/// Makes the call. A member that does not run does not hear it.
pub(crate) fn begin(state: &mut State) {
    let Some(run) = &mut state.defragmentation else {
        return;
    };
    run.stage = Stage::Called;
    let (n, excused) = (usize::from(run.target), run.excused);
    if state.members[n].phase == Phase::Up {
        state.members[n].phase = Phase::Busy;
        state.members[n].out = Out::Taken(excused);
    }
}

/// Ends the grant, as the call has returned and the member takes part.
pub(crate) fn end(state: &mut State, scenario: &Scenario) {
    if let Some(run) = state.defragmentation.take() {
        settle(state, usize::from(run.target), Progress::Returned, scenario);
    }
}

fn settle(state: &mut State, n: usize, progress: Progress, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let ended = ledger::has_ended_defragmenting(progress, 0, scenario.settle_time);
    assert!(ended, "{progress:?} is an end");
    let grants = ledger::without_defragmentation(budget.grants, Set::new([n]));
    state.put(Budget { grants, ..budget }, false, scenario.mutation);
}

/// The members whose defragmentations have ended, for a replica that did not begin them.
pub(crate) fn due(state: &State, budget: &Budget, scenario: &Scenario) -> Set {
    let by_metric_alone = scenario.mutation == Mutation::SettleADefragmentationByItsMetricAlone;
    let grants = budget.grants.iter().enumerate();
    Set::new(grants.filter_map(|(n, grant)| {
        let age = grant.defragment?;
        let progress = match state.members[n].phase {
            Phase::Busy => Progress::Running,
            _ if by_metric_alone => Progress::NotBegun,
            _ => Progress::NotMine,
        };
        ledger::has_ended_defragmenting(progress, age, scenario.settle_time).then_some(n)
    }))
}
