//! A permission, and the truth at the moment of its look.

use quorumgate_core::quorum::{Basis, Teardown, majority};

use crate::appearance::Appearance::{
    self, Answers, Crashed, Ending, Held, Leaderless, Lost, Missing, Refusing, Silent, Starting,
};
use crate::decision::What;
use crate::halves::Sight;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{Budget, Listed, MEMBERS, Permit, Phase, State};
use crate::truth;

/// The truth at the moment of a look.
#[derive(Clone, Copy)]
pub(crate) struct True {
    /// The voters that took part.
    serving: Set,
    /// The voters that ran.
    able: Set,
    /// The voters that still ran when the look was over.
    able_still: Set,
    /// The members whose processes did not run.
    down: Set,
}

impl True {
    /// The truth for a look. A look in one moment is compared with the present state. For a look in
    /// several moments the truth about each member is that of the moment at which the look saw it.
    pub(crate) fn at(state: &State, seen: Sight, scenario: &Scenario) -> Self {
        if !scenario.torn && !scenario.halves {
            let is_down = |phase| {
                matches!(
                    phase,
                    Phase::Missing
                        | Phase::Held
                        | Phase::Starting
                        | Phase::Initialising
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
            Set::new((0..MEMBERS).filter(|n| shown.contains(&seen.answers[*n])))
        };
        // A member that answered may have been terminating by then, although its pod was not when
        // it was read.
        let stood = Set::new((0..MEMBERS).filter(|n| seen.pods[*n] != Ending));
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
            down: seen.which(|shown| {
                matches!(shown, Missing | Held | Starting | Refusing | Crashed | Lost)
            }),
        }
    }
}

/// The permission at the moment of the look.
pub(crate) fn permit(state: &State, true_then: True, target: usize, expected: (u8, u8)) -> Permit {
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
        expected,
        look: Sight::default(),
    }
}

/// Whether the reason of the decision was true (see `properties`).
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
        | Basis::TwoMembers
        | Basis::Intent
        | Basis::OwnerAsks
        | Basis::TeardownAllowed
        | Basis::NobodyServes
        | Basis::OwnerGone
        | Basis::MembersRemoved
        | Basis::Removal
        | Basis::Recovery => false,
    }
}
