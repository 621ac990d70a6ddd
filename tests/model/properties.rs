//! What must hold.
//!
//! **Safety.** "No reachable state has fewer than a majority of the latched voters up because of permitted disruptions." Two words of it need a
//! definition: *because* and *permitted*.
//!
//! A member is *taken* from the moment at which a delete that was permitted reaches it while it takes part, until it takes part again. It is
//! blamed on that permission, and a permission knows what was true when its replica looked. So a state is wrong if, for some taken
//! member,
//!
//! > the voters that are up, together with those that failed after the look of the permission by which it was taken, make no majority.
//!
//! - Without failures nothing is excused, and this says: the voters that are up make a majority, always.
//! - A failure *before* the look excuses nothing: the gate could have known, and if it could not be seen (a look that misses members that run,
//!   or is fooled about those that do not) then it has to assume the worst. A failure *after* the look is nobody's fault: a
//!   permission cannot be recalled. So "who became fewer by something that nobody was asked about" is counted exactly.
//! - What passes unasked while the gate is out of force, and what goes by an announced scale-in, is a failure from the moment at which it passes or
//!   is let go, not only when it happens: a permission whose look comes in between has to reckon with it.
//! - A voter that the owner of a scale-out adds before it runs is excused for those who looked before the scale-out, and for nobody else.
//! - Of several taken members the one that was permitted last decides, because fewest are excused for it; asking it of each is the same.
//! - A voter that somebody removes from etcd counts as failed, and does not lower the majority (the latch). One that is promoted raises it.
//! - Where at the look fewer than a majority ran, even with the target, the permission takes nothing from anyone (rule 12); the same where
//!   quorum was lost and the delete is to repair it (rule 13). Two or more members would have to come back while such a delete is on its way
//!   before it could take anything. They count as failures, but have to be *founded*:
//!
//! A permission is *founded* if at the moment of its look the reason that it gives was the truth: rule 15, that the others that truly took
//! part, without every granted one, made a majority; rule 12, that the target truly did not run, and could not have been the one to complete
//! a majority, unless it was lost for good or the delete is fenced by the pod's resourceVersion; rule 13, that there truly was no quorum.
//!
//! **Liveness.** Requests, judgements and terminations end by themselves, each within its life: a judgement that meets a conflict begins again,
//! but only because another write was accepted. What is left is whether the rest then gets
//! anywhere, and that is asked in every state in which no request is under way: settlers that look again and again, with time passing,
//! take back every grant; and where nothing is granted, whoever is up and can be spared would be let go, and so would whoever is lost for good,
//! or dead while the others make the majority.

use quorumgate::quorum::majority;
use stateright::Property;

use crate::appearance::look;
use crate::decision::{Ledger, Question, Ruling, What, rule};
use crate::mutations::Mutation;
use crate::replica::{doctored, scene};
use crate::scenario::Scenario;
use crate::set::Set;
use crate::settler;
use crate::state::{Listed, Out, Phase, Settler, State};
use crate::truth;

/// The properties, by name.
pub(crate) fn all() -> Vec<Property<Scenario>> {
    vec![
        Property::always(MAJORITY, keeps_the_majority),
        Property::always(FOUNDED, |_, state: &State| !state.unfounded),
        Property::always(SETTLES, settles),
        Property::always(NOBODY_WAITS, nobody_waits_for_nothing),
        Property::always(DEAD_GO, the_dead_may_go),
        Property::sometimes(TAKEN, |_, state: &State| {
            state
                .members()
                .any(|(_, member)| matches!(member.out, Out::Taken(_)))
        }),
    ]
}

pub(crate) const MAJORITY: &str = "no permitted disruption takes the majority";
pub(crate) const FOUNDED: &str = "every permission is founded";
pub(crate) const SETTLES: &str = "every grant settles";
pub(crate) const NOBODY_WAITS: &str = "nobody waits while there is headroom";
pub(crate) const DEAD_GO: &str = "what is lost for good, or dead beside a majority, may go";
pub(crate) const TAKEN: &str = "something is permitted and happens";

pub(crate) fn keeps_the_majority(scenario: &Scenario, state: &State) -> bool {
    let up = truth::up(state);
    let needed = truth::needed(state, scenario);
    // Who is to become a voter, and is none yet, excuses nothing.
    let spare = scenario
        .spare()
        .filter(|n| state.members[*n].listed != Listed::Voter);
    let counted = |excused: Set| spare.map_or(excused, |n| excused.without(n));
    state.members().all(|(_, member)| match member.out {
        Out::NotByUs => true,
        Out::Taken(_) if member.listed != Listed::Voter => true,
        Out::Taken(excused) => up.or(counted(excused)).count() >= needed,
    })
}

/// Fair turns for everyone who only has to be given time.
fn settles(scenario: &Scenario, state: &State) -> bool {
    if state.requests.iter().any(Option::is_some) || state.replacement.is_some() {
        return true;
    }
    let mut state = *state;
    for _ in 0..=2 * u32::from(scenario.settle_time) {
        let Some(budget) = &state.budget else {
            return true;
        };
        if budget.granted().is_empty() {
            return true;
        }
        for n in 0..scenario.members() {
            match state.members[n].phase {
                Phase::Ending => state.end(n),
                Phase::Missing => state.members[n].phase = Phase::Starting,
                _ => {}
            }
        }
        state.settlers = [Settler::Idle; _];
        settler::read(&mut state, 0, scenario);
        settler::look_at_pods(&mut state, 0, scenario);
        settler::write(&mut state, 0, scenario);
        scenario.tick(&mut state);
    }
    false
}

/// Everybody who could be spared, and nobody is allowed to go?
fn nobody_waits_for_nothing(scenario: &Scenario, state: &State) -> bool {
    let Some(budget) = &state.budget else {
        return true;
    };
    // While a scale-out is young, room is kept for the voter that may be added.
    let young = budget.latched.is_young(state.replicas);
    if !budget.granted().is_empty() || budget.cold_for.is_some() || young {
        return true;
    }
    let up = truth::serving(state);
    let needed = truth::needed(state, scenario).max(majority(u32::from(budget.latched.voters)));
    let spare = up.count().saturating_sub(needed);
    let scene = scene(
        state,
        doctored(look(state, Set::NONE), scenario.mutation),
        scenario,
        budget,
    );
    spare == 0
        || up.iter().all(|target| {
            let question = Question {
                scene,
                open: budget.grants,
                ledger: Ledger::Warm,
                target,
                what: What::Delete,
            };
            matches!(rule(question), Ruling::Granted { .. })
        })
}

/// A member that does not run and is not needed, and nobody may take it away?
fn the_dead_may_go(scenario: &Scenario, state: &State) -> bool {
    let Some(budget) = &state.budget else {
        return true;
    };
    // While a scale-out is young, room is kept for the voter that may be added.
    let young = budget.latched.is_young(state.replicas);
    if !budget.granted().is_empty() || budget.cold_for.is_some() || young {
        return true;
    }
    let needed = truth::needed(state, scenario).max(majority(u32::from(budget.latched.voters)));
    let others_suffice = truth::serving(state).count() >= needed;
    let dead = state.which(|member| match member.phase {
        Phase::Lost => true,
        Phase::Crashed => others_suffice,
        _ => false,
    });
    let scene = scene(
        state,
        doctored(look(state, Set::NONE), scenario.mutation),
        scenario,
        budget,
    );
    dead.iter().all(|target| {
        let question = Question {
            scene,
            open: budget.grants,
            ledger: Ledger::Warm,
            target,
            what: What::Delete,
        };
        let refused = scenario.mutation == Mutation::RefuseTheDead;
        matches!(rule(question), Ruling::Granted { .. }) && !refused
    })
}
