//! A permission, and what was true at the moment of its look.

use quorumgate::quorum::{Basis, Teardown, majority};

use crate::appearance::Appearance::{
    self, Answers, Crashed, Ending, Leaderless, Lost, Missing, Refusing, Silent, Starting,
};
use crate::decision::What;
use crate::halves::Sight;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{Budget, Listed, MEMBERS, Permit, Phase, State};
use crate::truth;

/// What was true at the look.
#[derive(Clone, Copy)]
pub(crate) struct True {
    /// The voters that took part.
    serving: Set,
    /// The voters that ran.
    able: Set,
    /// The voters that ran when the look was over.
    able_still: Set,
    /// Those whose processes did not.
    down: Set,
}

impl True {
    /// Of a look in one moment, what is true now; of one in many, what was true of each when it was seen, which is what was seen.
    pub(crate) fn at(state: &State, seen: Sight, scenario: &Scenario) -> Self {
        if !scenario.torn && !scenario.halves {
            let is_down = |phase| {
                matches!(
                    phase,
                    Phase::Missing
                        | Phase::Starting
                        | Phase::Booting
                        | Phase::Crashed
                        | Phase::Lost
                )
            };
            return Self {
                serving: truth::serving(state),
                able: truth::able(state),
                able_still: truth::able(state),
                down: state.which(|member| is_down(member.phase)),
            };
        }
        let voters = truth::voters(state);
        let which = |shown: &[Appearance]| {
            Set::of((0..MEMBERS).filter(|n| shown.contains(&seen.answers[*n])))
        };
        // One that answered may have been on its way out by then, and not yet when its pod was read.
        let stood = Set::of((0..MEMBERS).filter(|n| seen.pods[*n] != Ending));
        let able = which(&[Answers, Leaderless, Ending, Silent, Refusing]);
        let able = able.and(stood).and(voters);
        Self {
            serving: which(&[Answers, Ending]).and(stood).and(voters),
            able,
            able_still: if scenario.halves {
                truth::able(state)
            } else {
                able
            },
            down: seen
                .which(|shown| matches!(shown, Missing | Starting | Refusing | Crashed | Lost)),
        }
    }
}

/// A permission as it stands at the moment of the look.
pub(crate) fn permit(state: &State, true_then: True, target: usize, latch: (u8, u8)) -> Permit {
    let granted = state.budget.as_ref().map_or(Set::NONE, Budget::granted);
    let without = |able: Set| able.minus(granted).without(target).count();
    let needed = majority(truth::voters(state).count());
    Permit {
        excused: Set::NONE,
        harmless: without(true_then.able) + 1 < needed,
        spared: without(true_then.able_still) >= needed,
        founded: true,
        recorded: true,
        announced: false,
        latch,
        look: Sight::default(),
    }
}

/// Whether what was decided is true: see `properties`.
pub(crate) fn is_founded(
    state: &State,
    true_then: True,
    basis: Basis,
    target: usize,
    what: What,
    scenario: &Scenario,
    permit: &Permit,
) -> bool {
    let member = &state.members[target];
    let granted = state.budget.as_ref().map_or(Set::NONE, Budget::granted);
    let others = true_then.serving.minus(granted).without(target).count();
    let down = true_then.down.has(target);
    match basis {
        Basis::Majority { .. } => others >= truth::needed(state, scenario),
        Basis::CostsNothing => {
            let costs_nothing = permit.harmless || permit.spared;
            down && (costs_nothing || member.phase == Phase::Lost || what.is_own())
        }
        Basis::Learner => {
            let one_more = majority(truth::voters(state).count() + 1);
            member.listed == Listed::Learner && (others >= one_more || down || what.is_own())
        }
        Basis::NotAMember => member.listed == Listed::No,
        Basis::Repair => what == What::Step && !truth::is_quorate(state),
        Basis::Teardown(Teardown::ScaleIn) => {
            let recorded = state.budget.and_then(|budget| budget.scale_in);
            recorded.is_some_and(|scale_in| scale_in.founded)
        }
        Basis::Teardown(_)
        | Basis::Override
        | Basis::Proceed
        | Basis::SingleMember
        | Basis::TwoMembers => false,
    }
}
