//! The actions that are possible in a state.

use quorumgate_core::quorum::majority;

use crate::action::Action;
use crate::halves::Half;
use crate::mutations::Mutation;
use crate::scenario::Scenario;
use crate::set::Set;
use crate::state::{At, Listed, Member, Phase, Request, Settler, State};
use crate::truth;
use crate::volumes;

impl Scenario {
    pub(crate) fn request_actions(&self, state: &State, slot: usize, actions: &mut Vec<Action>) {
        let Some(request) = &state.requests[slot] else {
            if self.strangers && state.free_slot(self.requests) == Some(slot) {
                let there = state.which(|m| !matches!(m.phase, Phase::Ending | Phase::Missing));
                actions.extend(there.iter().map(Action::Delete));
            }
            return;
        };
        actions.push(Action::Lose(slot));
        let heard = state
            .requests
            .iter()
            .flatten()
            .filter(|r| r.is_heard())
            .count();
        match request.at {
            At::Called if heard < self.gates => actions.push(Action::Read(slot)),
            At::Called => {}
            At::Page if self.torn => looks_left(state, slot, Set::NONE, actions),
            At::Page if self.halves => actions.extend([
                Action::LookAtHalf(slot, Half::Pods),
                Action::LookAtHalf(slot, Half::Answers),
            ]),
            At::Half { .. } => actions.push(Action::LookAtOtherHalf(slot)),
            At::Looking { seen, .. } => looks_left(state, slot, seen, actions),
            At::Page => {
                let hidden = hideable(state).subsets(self.hidden);
                actions.extend(hidden.map(|hidden| Action::Look(slot, hidden)));
            }
            At::Again(_) => actions.push(Action::DecideAgain(slot)),
            At::Decided(_) => actions.push(Action::Record(slot)),
            At::Answered(_) => actions.extend([Action::CallAgain(slot), Action::Execute(slot)]),
            At::Unasked => actions.push(Action::Execute(slot)),
        }
    }

    pub(crate) fn settler_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let Some(budget) = &state.budget else { return };
        for n in 0..self.gates {
            match state.settlers[n] {
                Settler::Idle if self.mutation == Mutation::LookBeforeTheLedger => {
                    actions.push(Action::SettlerLooks(n));
                }
                // Without a grant the settler has nothing to do.
                Settler::Idle if budget.granted().is_empty() => {}
                Settler::Idle | Settler::LookedFirst(_) => actions.push(Action::SettlerReads(n)),
                Settler::Page => actions.push(Action::SettlerLooks(n)),
                Settler::Due(..) => {
                    actions.extend([Action::SettlerWrites(n), Action::SettlerCrashes(n)]);
                }
            }
        }
    }

    pub(crate) fn member_actions(
        &self,
        state: &State,
        n: usize,
        member: Member,
        actions: &mut Vec<Action>,
    ) {
        let may_fail = truth::failed(state) < self.failures;
        let can_start = volumes::can_start(member);
        match member.phase {
            Phase::Up => {
                if may_fail {
                    if !(self.boots && has_read_pods(state)) {
                        actions.extend(self.ailments.iter().map(|phase| Action::Fails(n, *phase)));
                    }
                    if self.bypasses {
                        actions.push(Action::Bypassed(n));
                    }
                }
                let voters = truth::voters(state);
                let left = truth::up(state).without(n).count();
                if self.removals > 0
                    && member.listed == Listed::Voter
                    && voters.count() + u32::from(self.removals) > u32::from(self.voters)
                    && left >= majority(voters.count() - 1)
                {
                    actions.push(Action::Removed(n));
                }
            }
            Phase::Ending => actions.push(Action::Ends(n)),
            Phase::Missing if n < usize::from(state.replicas) => actions.push(Action::Created(n)),
            Phase::Absent | Phase::Lost | Phase::Missing | Phase::Held => {}
            // A removed member has nothing to come back to.
            Phase::Starting | Phase::Crashed
                if member.listed == Listed::No && !self.replacement =>
            {
                let comes_back = self.spare() != Some(n);
                if comes_back && truth::is_quorate(state) && !is_going(state, n) {
                    actions.push(Action::Joins(n));
                }
            }
            // Nothing runs without its volume.
            Phase::Crashed if !can_start => {}
            Phase::Starting if !member.volume.is_usable() => {}
            Phase::Starting if self.initialises => actions.push(Action::Runs(n)),
            Phase::Starting | Phase::Initialising if self.boots => actions.push(Action::Boots(n)),
            Phase::Starting | Phase::Initialising | Phase::Booting => {
                actions.push(Action::Starts(n));
            }
            Phase::Crashed | Phase::Hung | Phase::Busy | Phase::Cut | Phase::Impersonated => {
                // A look is over before a member that it saw down is back.
                if !is_being_looked_at(state, n) {
                    actions.push(Action::Recovers(n));
                }
            }
        }
        let runs = matches!(member.phase, Phase::Up | Phase::Ending);
        if member.listed == Listed::Learner && runs && !member.behind && truth::is_quorate(state) {
            actions.push(Action::Promoted(n));
        }
    }
}

/// Whether a member has permission to go, or is about to get it.
pub(crate) fn is_going(state: &State, n: usize) -> bool {
    let asked = state
        .requests
        .iter()
        .flatten()
        .any(|request| usize::from(request.target) == n);
    asked || state.budget.is_some_and(|budget| budget.granted().has(n))
}

/// Whether some replica has seen this member, and not yet all of them.
fn is_being_looked_at(state: &State, n: usize) -> bool {
    let has_seen = |request: &Request| match request.at {
        At::Looking { seen, .. } => seen.has(n),
        _ => false,
    };
    state.requests.iter().flatten().any(has_seen)
}

/// Whether some replica has read the pods, and has yet to ask the members. A process that ends in
/// between looks like one that runs and does not listen yet. So where members run before they
/// listen, no process ends then.
fn has_read_pods(state: &State) -> bool {
    let has_read = |request: &Request| {
        matches!(
            request.at,
            At::Half {
                first: Half::Pods,
                ..
            }
        )
    };
    state.requests.iter().flatten().any(has_read)
}

fn looks_left(state: &State, slot: usize, seen: Set, actions: &mut Vec<Action>) {
    let unseen = state.which(|_| true).minus(seen);
    actions.extend(unseen.iter().map(|n| Action::LookAt(slot, n)));
}

/// The members that a look may miss although they run.
pub(crate) fn hideable(state: &State) -> Set {
    state.which(|m| matches!(m.phase, Phase::Up | Phase::Cut))
}
