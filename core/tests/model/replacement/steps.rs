//! The effects of a replacement's steps.

use quorumgate_core::quorum::{ReplacementProgress as Progress, majority};

use super::{Call, Record, Replacer, Step, ask_etcd_to_remove, is_only_learner};
use crate::appearance::look;
use crate::decision::{Question, Ruling, What, rule};
use crate::ledger::{self, For};
use crate::replica::{scene, worth};
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{Budget, Listed, Out, Phase, State, Volume};
use crate::{truth, volumes};

/// Writes what was decided. The write is accepted, because the reading is up to date.
pub(crate) fn write(state: &mut State, scenario: &Scenario) {
    let (
        Replacer::Decided {
            target,
            step,
            excused,
            founded,
            expected,
        },
        Some(budget),
    ) = (state.replacer, state.budget)
    else {
        return;
    };
    state.replacer = Replacer::Idle;
    state.unfounded |= !founded;
    let n = usize::from(target);
    let written = match step {
        Step::Grant(_) | Step::Remove => {
            let (grants, _) = ledger::issued(budget.grants, n, For::Replace);
            let record = match step {
                Step::Grant(record) => Some(record),
                _ => budget.record,
            };
            Budget {
                grants,
                record,
                expected: budget.expected.after(expected),
                ..budget
            }
        }
        Step::RecordVolume => Budget {
            record: budget.record.map(|record| Record {
                listed: false,
                ..record
            }),
            ..budget
        },
        Step::Settle | Step::Undo => {
            let end = match step {
                Step::Settle => Progress::Serves,
                _ => Progress::Undone,
            };
            Budget {
                grants: ledger::without_replacement(budget.grants, n, end),
                record: None,
                ..budget
            }
        }
        Step::Add | Step::DeleteClaim | Step::DeletePod | Step::Release | Step::Promote => return,
    };
    state.put(written, true, scenario.mutation);
    match step {
        Step::Remove => ask_etcd_to_remove(state, target, excused),
        Step::RecordVolume => volumes::record(state, n),
        Step::Settle => {
            state.asked = state.asked.filter(|asked| *asked != target);
            volumes::record(state, n);
        }
        _ => {}
    }
}

/// etcd removes the member, if it has a quorum and the others keep one.
pub(crate) fn remove(state: &mut State) {
    let Some(removal) = state.removal.take() else {
        return;
    };
    let n = usize::from(removal.target);
    let member = state.members[n];
    let voters = truth::voters(state).without(n);
    let left = truth::up(state).without(n).count();
    let is_listed = member.listed != Listed::No && member.renewed == removal.renewed;
    if !is_listed || !volumes::commits(state) || left < majority(voters.count()) {
        return;
    }
    let counts = member.listed == Listed::Voter;
    let blame = match member.out {
        _ if counts && truth::takes_part(member) => Some(removal.excused),
        Out::Taken(excused) if counts => Some(excused),
        Out::Taken(_) | Out::NotByUs => None,
    };
    let member = &mut state.members[n];
    member.listed = Listed::No;
    member.renewed = false;
    member.behind = false;
    if member.volume == Volume::New {
        member.volume = Volume::Stale;
    }
    member.out = Out::NotByUs;
    if !matches!(
        member.phase,
        Phase::Ending | Phase::Missing | Phase::Held | Phase::Starting
    ) {
        // Its process ends, and so does each that starts on its data.
        member.phase = Phase::Crashed;
    }
    state.touch(n);
    state.unstarted = state.unstarted.without(n);
    state.holders = state.holders.without(n);
    state.removed = blame
        .map(|excused| (removal.target, excused))
        .or(state.removed);
}

/// A call of the replacer takes effect, if its preconditions hold.
pub(crate) fn carry_out(state: &mut State, scenario: &Scenario) {
    let Some(Call {
        target,
        step,
        excused,
    }) = state.call.take()
    else {
        return;
    };
    let n = usize::from(target);
    let member = state.members[n];
    let commits = volumes::commits(state);
    match step {
        Step::Add if member.listed == Listed::No && is_only_learner(state, n) && commits => {
            state.members[n].listed = Listed::Learner;
            state.members[n].renewed = true;
            state.unstarted = state.unstarted.with(n);
        }
        Step::DeleteClaim => delete_claim(state, n, scenario),
        Step::Release if member.phase == Phase::Held => {
            state.members[n].phase = Phase::Starting;
            state.touch(n);
        }
        Step::Promote if member.listed == Listed::Learner && !member.renewed && commits => {
            promote(state, n, excused);
        }
        _ => {}
    }
}

/// The learner becomes a voter. That takes the quorum if the voters that take part make no majority
/// of one voter more, although nobody has failed since the look.
fn promote(state: &mut State, n: usize, excused: Set) {
    state.promote(n);
    let running = truth::up(state).or(excused).count();
    state.outvoted |= running < majority(truth::voters(state).count());
}

/// The claim is deleted, if the webhook for claims permits it.
fn delete_claim(state: &mut State, n: usize, scenario: &Scenario) {
    let Some(budget) = state.budget else { return };
    let question = Question {
        scene: scene(state, look(state, Set::NONE), scenario, &budget),
        open: budget.grants,
        ledger: worth(state, &budget, scenario),
        target: n,
        what: What::DeleteClaim,
    };
    let volume = state.members[n].volume;
    if volume.is_going() || !matches!(rule(question), Ruling::Granted { .. }) {
        return;
    }
    let (grants, is_fence) = ledger::issued(budget.grants, n, For::Replace);
    state.put(Budget { grants, ..budget }, is_fence, scenario.mutation);
    if state.members[n].phase == Phase::Missing {
        state.lose_claim(n);
    } else {
        state.members[n].volume = if volume == Volume::Failed {
            Volume::FailedGoing
        } else {
            Volume::Going
        };
    }
}
