//! The replacement of a member by the gate, effect by effect, and what may happen between any two.
//!
//! The replacer is the leader's driver. It reads the ledger, looks, and takes the step that the
//! shipped planner names (`plan`). Steps that take something are judged by a look of their own, and
//! written by compare-and-swap: the grant with its record, the renewal right before the removal,
//! and the end. All other steps are calls that may take effect later, or never. A crash between two
//! effects is a call that is lost, or a step that is never written; the next replica goes on from
//! the record and from what it sees.
//!
//! - The removal has a place of its own, because it may still be on its way when the next replica
//!   looks. It lives as long as a request (`LIFE`). etcd carries it out only while it has a quorum
//!   and the others keep one.
//! - A change of the member list is an entry of the log. So it takes effect once a majority has it,
//!   and with it everything that was acknowledged before.
//! - The delete of the pod is a request like a stranger's, with the pod's resourceVersion.
//! - The leader hands leadership over at once. (The model does not say who leads.)
//! - etcd may promote a learner that has caught up at any moment, whoever asks. That it refuses to
//!   promote another one is not relied on.

mod plan;
mod steps;

use crate::action::Action;
use crate::appearance::look;
use crate::decision::{Question, Ruling, What, rule};
use crate::memo::{Memo, remembered};
use crate::mutations::Mutation;
use crate::permission::{True, is_founded, permit};
use crate::replica::{scene, worth};
use crate::scenario::{LIFE, Scenario};
use crate::set::Set;
use crate::state::{At, By, Listed, Phase, Request, Settler, State};
use crate::{model, replica, settler, truth, volumes};

pub(crate) use plan::{Volumes, must_wait};
pub(crate) use steps::{carry_out, remove, write};

/// The record of a replacement, which is written together with its grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Record {
    pub(crate) target: u8,
    /// Whether etcd listed the member, so that its id is to be removed. No longer once the volume
    /// of the new id is recorded: the id on record is the new one then.
    pub(crate) listed: bool,
    /// The pod that is to go.
    pub(crate) pod: Named,
    /// The claim that is to go.
    pub(crate) claim: Named,
}

/// A UID on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Named {
    Nothing,
    /// The UID of the object that exists now.
    Present,
    /// The UID of one that is gone.
    Past,
}

/// A step of a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    Grant(Record),
    Remove,
    Add,
    DeleteClaim,
    DeletePod,
    Release,
    RecordVolume,
    /// The volume of the learner is on record by then, so the id on record is the learner's.
    Promote,
    Settle,
    Undo,
}

/// The replica that replaces members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Replacer {
    Idle,
    /// The replacer has read the ledger and chosen this step, which has yet to be judged. Its
    /// reading is up to date.
    Planned {
        target: u8,
        step: Step,
    },
    /// The step may be written. The members in `excused` have failed since the look.
    Decided {
        target: u8,
        step: Step,
        excused: Set,
        founded: bool,
        /// The expected voters to record, and the replicas at that time.
        expected: (u8, u8),
    },
}

/// The removal of a member, on its way to etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Removal {
    pub(crate) target: u8,
    /// Whether it names the id on record, or a newer one.
    pub(crate) renewed: bool,
    pub(crate) age: u8,
    /// The members that have failed since the look.
    pub(crate) excused: Set,
}

/// Another call, on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Call {
    pub(crate) target: u8,
    pub(crate) step: Step,
    /// The members that have failed since the look.
    pub(crate) excused: Set,
}

/// The number of ticks after which no call of an earlier replacer can be alive.
const CALLS_ARE_OVER: u8 = LIFE + 1;

impl Removal {
    /// The removal after the newer id of a member was recorded. `None` if it names the older one.
    pub(crate) fn after_record_of(self, n: usize) -> Option<Self> {
        if usize::from(self.target) != n {
            return Some(self);
        }
        self.renewed.then_some(Self {
            renewed: false,
            ..self
        })
    }
}

impl Replacer {
    /// Another write was accepted, so the replacer's own would meet a conflict.
    pub(crate) fn lose_race(&mut self) {
        *self = Self::Idle;
    }
}

/// The possible next actions.
pub(crate) fn actions(scenario: &Scenario, state: &State, actions: &mut Vec<Action>) {
    if !scenario.replacement || state.budget.is_none() {
        return;
    }
    match state.replacer {
        Replacer::Idle => actions.push(Action::ReplacerPlans),
        Replacer::Planned { .. } => actions.push(Action::ReplacerJudges),
        Replacer::Decided { .. } => actions.push(Action::ReplacerWrites),
    }
    if state.replacer != Replacer::Idle {
        actions.push(Action::ReplacerCrashes);
    }
    if state.removal.is_some() {
        actions.extend([Action::RemovalTakesEffect, Action::RemovalLost]);
    }
    if state.call.is_some() {
        actions.extend([Action::CallTakesEffect, Action::CallLost]);
    }
    if scenario.requested && state.asked.is_none() {
        let up = state.which(|member| member.phase == Phase::Up && !member.renewed);
        actions.extend(up.iter().map(Action::ReplacementAsked));
    }
}

/// Whether time may pass: a removal takes effect within a request's life, or never.
pub(crate) fn is_in_time(state: &State) -> bool {
    state.removal.is_none_or(|removal| removal.age < LIFE)
}

/// Reads the ledger, looks, and chooses the step that the plan names.
pub(crate) fn plan(state: &mut State, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let mut scene = scene(state, look(state, Set::NONE), scenario, &budget);
    if scenario.mutation == Mutation::PromoteBeforeCaughtUp {
        scene.behind = Set::NONE;
    }
    let planned = plan::next(scene, budget.grants, budget.record, state.asked);
    let Some((target, step)) = planned else {
        return;
    };
    let n = usize::from(target);
    match step {
        Step::Grant(_) if scenario.mutation == Mutation::RemoveBeforeTheGrant => {
            ask_etcd_to_remove(state, target, Set::NONE);
        }
        Step::Grant(_) | Step::Remove => state.replacer = Replacer::Planned { target, step },
        Step::Undo if !calls_are_over(state, n, scenario) => {}
        Step::RecordVolume | Step::Settle | Step::Undo => {
            state.replacer = Replacer::Decided {
                target,
                step,
                excused: Set::NONE,
                founded: true,
                expected: (budget.expected.voters, budget.expected.replicas),
            };
        }
        Step::DeletePod => {
            if let Some(slot) = state.free_slot(scenario.requests) {
                state.requests[slot] = Some(Request {
                    target,
                    stands: true,
                    age: 0,
                    by: By::Step { untouched: true },
                    at: At::Called,
                });
            }
        }
        Step::Add | Step::DeleteClaim | Step::Release | Step::Promote => {
            if state.call.is_none() {
                state.call = Some(Call {
                    target,
                    step,
                    excused: Set::NONE,
                });
            }
        }
    }
}

/// Whether no call of an earlier replacer can take effect any more. A replacement is not given up
/// before that.
fn calls_are_over(state: &State, n: usize, scenario: &Scenario) -> bool {
    let age = state.budget.and_then(|budget| budget.grants[n].replace);
    let at_once = scenario.mutation == Mutation::UndoWhileACallIsAlive;
    at_once || age.is_none_or(|age| age >= CALLS_ARE_OVER.min(scenario.settle_time))
}

/// The judge looks, and permits the step or not. The ledger is the one that the replacer has read.
pub(crate) fn judge(state: &mut State, scenario: &Scenario) {
    let (Replacer::Planned { target, step }, Some(budget)) = (state.replacer, state.budget) else {
        return;
    };
    state.replacer = Replacer::Idle;
    let scene = scene(state, look(state, Set::NONE), scenario, &budget);
    let n = usize::from(target);
    let question = Question {
        scene,
        open: budget.grants,
        ledger: worth(state, &budget, scenario),
        target: n,
        what: What::Replace,
    };
    let Ruling::Granted { basis, found } = rule(question) else {
        return;
    };
    let true_then = True::at(state, scene.sight, scenario);
    let permit = permit(state, true_then, n, found.expected);
    let what = What::Replace;
    let founded = is_founded(state, true_then, basis, n, what, scenario, &permit);
    state.replacer = Replacer::Decided {
        target,
        step,
        excused: Set::NONE,
        founded,
        expected: found.expected,
    };
}

/// The removal of a member is on its way to etcd.
fn ask_etcd_to_remove(state: &mut State, target: u8, excused: Set) {
    state.removal = Some(Removal {
        target,
        renewed: state.members[usize::from(target)].renewed,
        age: 0,
        excused,
    });
}

/// Whether a replacement that is under way, or the wish for one, is about this member.
pub(crate) fn concerns(state: &State, n: usize) -> bool {
    let record = state.budget.and_then(|budget| budget.record);
    let planned = match state.replacer {
        Replacer::Idle => None,
        Replacer::Planned { target, .. } | Replacer::Decided { target, .. } => Some(target),
    };
    let named = [record.map(|record| record.target), planned, state.asked];
    named
        .into_iter()
        .flatten()
        .any(|target| usize::from(target) == n)
}

/// Renames the members in everything about replacements.
pub(crate) fn permute(state: &mut State, renamed: impl Fn(u8) -> u8, moved: impl Fn(Set) -> Set) {
    let of_record = |record: Record| Record {
        target: renamed(record.target),
        ..record
    };
    let of_step = |step: Step| match step {
        Step::Grant(record) => Step::Grant(of_record(record)),
        step => step,
    };
    if let Some(budget) = &mut state.budget {
        budget.record = budget.record.map(of_record);
    }
    match &mut state.replacer {
        Replacer::Idle => {}
        Replacer::Planned { target, step } => {
            (*target, *step) = (renamed(*target), of_step(*step));
        }
        Replacer::Decided {
            target,
            step,
            excused,
            ..
        } => {
            (*target, *step, *excused) = (renamed(*target), of_step(*step), moved(*excused));
        }
    }
    if let Some(removal) = &mut state.removal {
        (removal.target, removal.excused) = (renamed(removal.target), moved(removal.excused));
    }
    if let Some(call) = &mut state.call {
        (call.target, call.excused) = (renamed(call.target), moved(call.excused));
    }
}

/// Whether a replacement comes to its end, if everyone gets a turn and nothing else fails. It waits
/// for ever where another volume is lost too and the others make no majority.
pub(crate) fn comes_to_its_end(scenario: &Scenario, state: &State) -> bool {
    let busy = state.requests.iter().any(Option::is_some)
        || state.removal.is_some()
        || state.call.is_some()
        || state.replacer != Replacer::Idle;
    if busy || state.budget.is_none_or(|budget| budget.record.is_none()) {
        return true;
    }
    thread_local!(static MEMO: Memo<(State, Mutation), bool> = Memo::default());
    // Settlers and ages come round by themselves.
    let mut alike = *state;
    alike.settlers = [Settler::Idle; _];
    let grants = alike.budget.iter_mut().flat_map(|b| b.grants.iter_mut());
    for age in grants.filter_map(|grant| grant.replace.as_mut()) {
        *age = 0;
    }
    remembered(&MEMO, (alike, scenario.mutation), |(state, _)| {
        goes_on_to_its_end(scenario, state)
    })
}

fn goes_on_to_its_end(scenario: &Scenario, mut state: State) -> bool {
    for _ in 0..ROUNDS {
        for n in 0..scenario.members() {
            volumes::heal(&mut state, n, scenario);
        }
        let Some(record) = state.budget.and_then(|budget| budget.record) else {
            return true;
        };
        let others = state.which(|_| true).without(usize::from(record.target));
        if !others.minus(truth::up(&state)).is_empty() {
            return true;
        }
        plan(&mut state, scenario);
        judge(&mut state, scenario);
        write(&mut state, scenario);
        remove(&mut state);
        carry_out(&mut state, scenario);
        for slot in 0..scenario.requests {
            if state.requests[slot].is_some() {
                replica::read(&mut state, slot, scenario);
                replica::look_and_decide(&mut state, slot, Set::NONE, scenario);
                replica::record(&mut state, slot, scenario);
                model::execute(&mut state, slot, scenario);
            }
        }
        settler::settle_at_once(&mut state, scenario);
        scenario.tick(&mut state);
    }
    false
}

/// The rounds of [`comes_to_its_end`]: more than there are steps.
const ROUNDS: u32 = 30;

/// Whether the entry of this member is the only one that is no voter's.
fn is_only_learner(state: &State, n: usize) -> bool {
    let learners = state.which(|member| member.listed == Listed::Learner);
    learners.without(n).is_empty()
}
