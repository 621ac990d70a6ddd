//! The properties that have to hold.
//!
//! **Safety.** "No reachable state has fewer than a majority of the expected voters up because of
//! permitted disruptions." Two of these words need a definition: *because* and *permitted*.
//!
//! A member is *taken* from the moment at which a permitted delete reaches it while it takes part,
//! until it takes part again. The delete's permission is to blame, and it knows what was true when
//! its replica looked. So a state is wrong if, for some taken member,
//!
//! > the voters that are up, together with those that failed after the look of the permission by
//! > which it was taken, make no majority.
//!
//! - Without failures nothing is excused. The property then says that the voters that are up always
//!   make a majority.
//! - A failure *before* the look excuses nothing, because the gate could have known. If the failure
//!   could not be seen (a look that misses members that run, or is fooled about those that do not),
//!   the gate has to assume the worst. A failure *after* the look is no fault, because a permission
//!   cannot be recalled. So the invariant's exception for failures is counted exactly.
//! - Disruptions that pass unasked while the gate is out of force, and those by an announced
//!   scale-in, count as failures from the moment at which they pass, and not only when they happen.
//!   A permission whose look comes in between has to reckon with them.
//! - A voter that the owner of a scale-out adds before it runs is excused for looks before the
//!   scale-out, and for no others.
//! - Of several taken members the one that was permitted last decides, because the fewest failures
//!   are excused for it. Asking it of each member is the same.
//! - A voter that is removed from etcd counts as failed, and does not lower the majority (it
//!   is still expected). A promoted one raises it.
//! - A permission takes nothing from anyone if fewer than a majority ran at the look, even with the
//!   target (rule 12), or if quorum was lost and the delete is to repair it (rule 13). Two or more
//!   members would have to come back while such a delete is on its way before it could take
//!   anything. Such deletes count as failures, but have to be *founded*.
//!
//! **Replacements.** A member that the gate removes while it takes part is taken from then on,
//! until it takes part again as a voter under its new id. Besides:
//!
//! - A change of the member list is not to take the quorum: the voters that take part afterwards,
//!   with those that failed after the look, make a majority.
//! - The voters that may ever vote and do not have the last acknowledged write are fewer than a
//!   majority. So every leader knows the write.
//! - Members that started without data are fewer than a majority. So there is one quorum.
//! - With everyone well again a replacement comes to its end.
//!
//! A permission is *founded* if its reason was the truth at the moment of its look:
//!
//! - Rule 15: the others that truly took part, without every granted one, made a majority.
//! - Rule 12: the target truly did not run, and could not have been the one to complete a majority,
//!   unless it was lost for good or the delete is fenced by the pod's resourceVersion.
//! - Rule 13: there truly was no quorum.
//!
//! **Liveness.** Requests, decisions and terminations end by themselves, each within its life. A
//! decision that meets a conflict begins again, but only because another write was accepted. The
//! question that is left is whether everything else gets anywhere. It is asked in every state in
//! which no request is under way:
//!
//! - Settlers that look again and again, while time passes, remove every grant.
//! - Without grants, every member that is up and can be spared would be let go, and so would every
//!   member that is lost for good, or dead while the others make the majority.

use quorumgate_core::quorum::majority;
use stateright::Property;

use crate::appearance::look;
use crate::decision::{Ledger, Question, Ruling, What, rule};
use crate::mutations::Mutation;
use crate::replica::{doctored, scene};
use crate::scenario::Scenario;
use crate::set::Set;
use crate::settler;
use crate::state::{Budget, Listed, Member, Out, Phase, State};
use crate::truth;
use crate::{replacement, volumes};

/// The properties, by name.
pub(crate) fn all() -> Vec<Property<Scenario>> {
    vec![
        Property::always(MAJORITY, keeps_the_majority),
        Property::always(FOUNDED, |_, state: &State| !state.unfounded),
        Property::always(QUORUM, |_, state: &State| !state.outvoted),
        Property::always(KEPT, |_, state: &State| volumes::keeps_the_write(state)),
        Property::always(EMPTY, |_, state: &State| volumes::has_one_quorum(state)),
        Property::always(SETTLES, settles),
        Property::always(REPLACES, replacement::comes_to_its_end),
        Property::always(NOBODY_WAITS, nobody_waits_for_nothing),
        Property::always(DEAD_GO, the_dead_may_go),
        Property::sometimes(TAKEN, |_, state: &State| {
            let taken = |member: &Member| matches!(member.out, Out::Taken(_));
            let mut members = state.members();
            members.any(|(_, member)| taken(member) || member.renewed)
        }),
    ]
}

pub(crate) const MAJORITY: &str = "no permitted disruption takes the majority";
pub(crate) const FOUNDED: &str = "every permission is founded";
pub(crate) const QUORUM: &str = "no change of the member list takes the quorum";
pub(crate) const KEPT: &str = "no acknowledged write can be lost";
pub(crate) const EMPTY: &str = "no quorum consists of members that started without data";
pub(crate) const REPLACES: &str = "every replacement comes to its end";
pub(crate) const SETTLES: &str = "every grant settles";
pub(crate) const NOBODY_WAITS: &str = "nobody waits while there is headroom";
pub(crate) const DEAD_GO: &str = "what is lost for good, or dead beside a majority, may go";
pub(crate) const TAKEN: &str = "something is permitted and happens";

pub(crate) fn keeps_the_majority(scenario: &Scenario, state: &State) -> bool {
    let up = truth::up(state);
    let needed = truth::needed(state, scenario);
    // A member that has yet to become a voter excuses nothing.
    let spare = scenario
        .spare()
        .filter(|n| state.members[*n].listed != Listed::Voter);
    let counted = |excused: Set| spare.map_or(excused, |n| excused.without(n));
    let survives = |excused: Set| up.or(counted(excused)).count() >= needed;
    let removed = state.removed.is_none_or(|(_, excused)| survives(excused));
    removed
        && state.members().all(|(_, member)| match member.out {
            Out::NotByUs => true,
            Out::Taken(_) if member.listed != Listed::Voter => true,
            Out::Taken(excused) => survives(excused),
        })
}

/// Whether the grants settle if every replica gets its turn and time passes.
fn settles(scenario: &Scenario, state: &State) -> bool {
    let replaces = state.budget.is_some_and(|budget| budget.record.is_some());
    let works = replaces || state.defragmentation.is_some();
    if works || state.requests.iter().any(Option::is_some) {
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
                Phase::Busy => state.come_up(n),
                _ => {}
            }
        }
        settler::settle_at_once(&mut state, scenario);
        scenario.tick(&mut state);
    }
    false
}

/// The budget, if nothing in it keeps a member that could be spared: no permission is open, its
/// ledger is trusted, and no scale-out is young, for which room is kept for the voter that may be
/// added. Where the gate is rejected it knows nothing of anybody.
fn unhindered(state: &State) -> Option<&Budget> {
    state.budget.as_ref().filter(|budget| {
        let young = budget.expected.is_young(state.replicas);
        let unburdened = budget.granted().is_empty() && budget.trust.untrusted_for.is_none();
        unburdened && !young && !state.is_rejected
    })
}

/// Whether no member is refused that could be spared.
fn nobody_waits_for_nothing(scenario: &Scenario, state: &State) -> bool {
    let Some(budget) = unhindered(state) else {
        return true;
    };
    let up = truth::serving(state);
    let needed = truth::needed(state, scenario).max(majority(u32::from(budget.expected.voters)));
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
                ledger: Ledger::Trusted,
                target,
                what: What::Delete,
            };
            matches!(rule(question), Ruling::Granted { .. })
        })
}

/// Whether every member that does not run and is not needed would be let go.
fn the_dead_may_go(scenario: &Scenario, state: &State) -> bool {
    let Some(budget) = unhindered(state) else {
        return true;
    };
    let needed = truth::needed(state, scenario).max(majority(u32::from(budget.expected.voters)));
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
            ledger: Ledger::Trusted,
            target,
            what: What::Delete,
        };
        let refused = scenario.mutation == Mutation::RefuseTheDead;
        matches!(rule(question), Ruling::Granted { .. }) && !refused
    })
}
