//! The way from the recorded state to the one that the facts show.
//!
//! An observer does not see every state. So the way between two observations is the shortest one
//! that the table permits and of which the facts support every transition.

use super::facts::{Etcd, Exit, Facts, Listing, StageResult};
use super::state::State;
use super::transition::{Reason, TABLE, Transition};
use std::collections::VecDeque;

/// A change of state that the table of DEP-04 has no way for. `Display` is a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, derive_more::Display)]
#[display("the member is recorded as {} ({from}) and was seen as {} ({to}), which cannot follow; the record stays", from.name(), to.name())]
pub struct Impossible {
    /// The recorded state.
    pub from: State,
    /// The state that the facts show.
    pub to: State,
}

/// A step of the way: the reason, and the state after it.
pub(super) type Step = (Reason, State);

/// The way from the last recorded transition to the state that the facts show. An empty way means
/// that nothing has changed.
pub(super) fn way(last: &Transition, facts: &Facts) -> Result<Vec<Step>, Impossible> {
    let Some(target) = seen(last, facts) else {
        return Ok(Vec::new());
    };
    let from = last.state;
    if from.is_started() && target.is_started() && was_restarted(last, facts) {
        let (reason, validation) = validation(facts);
        let rest = shortest(validation, target, last, facts);
        return Ok(rest.map_or_else(Vec::new, |rest| {
            [(reason, validation)].into_iter().chain(rest).collect()
        }));
    }
    shortest(from, target, last, facts).ok_or(Impossible { from, to: target })
}

/// The state that the facts show. `None` if they show nothing new.
fn seen(last: &Transition, facts: &Facts) -> Option<State> {
    let initializes = match facts.etcd {
        Etcd::NotStarted => return None,
        Etcd::Started { initializes, .. } => initializes,
    };
    match facts.listing {
        Listing::Learner if !facts.single => return Some(State::Learner),
        Listing::No if !facts.single => return Some(State::PendingLearner),
        Listing::Voter | Listing::Learner | Listing::No | Listing::Unknown => {}
    }
    if facts.serves {
        let leader = facts.leads.then_some(State::Leader);
        return leader.or(Some(State::Follower));
    }
    let is_before_join = matches!(last.state, State::PendingLearner | State::Learner);
    if !initializes || is_before_join || joins_as_learner(last) {
        return None;
    }
    let failed = facts.validation == Some(StageResult::Failed);
    match (last.state, failed, facts.single) {
        (_, true, true) => Some(State::Restoration),
        (State::New, true, false) => None,
        (_, true, false) => Some(State::New),
        (State::New | State::Follower | State::Leader, false, _) => Some(validation(facts).1),
        _ => None,
    }
}

/// Whether the member, which is `New`, has to join a running cluster: it was added to one, or its
/// data was given up.
fn joins_as_learner(last: &Transition) -> bool {
    let joins = matches!(
        last.reason,
        Reason::ClusterScaledUp | Reason::DbValidationFailed
    );
    last.state == State::New && joins
}

/// Whether etcd's container was started after the last transition.
fn was_restarted(last: &Transition, facts: &Facts) -> bool {
    matches!(facts.etcd, Etcd::Started { since: Some(since), .. } if since > last.time)
}

/// The first state of an initialisation. Only a clean exit that was seen spares the validation in
/// full, as in etcd-wrapper.
fn validation(facts: &Facts) -> Step {
    match facts.exit {
        Some(Exit::Clean) => (Reason::DetectedPreviousCleanExit, State::DbValidationSanity),
        Some(Exit::Unclean) | None => {
            (Reason::DetectedPreviousUncleanExit, State::DbValidationFull)
        }
    }
}

/// The shortest way by the table, of which the facts support every transition.
fn shortest(from: State, to: State, last: &Transition, facts: &Facts) -> Option<Vec<Step>> {
    let mut ways = VecDeque::from([(from, Vec::new())]);
    let mut known = vec![from];
    while let Some((at, way)) = ways.pop_front() {
        if at == to {
            return Some(way);
        }
        let steps = TABLE
            .iter()
            .filter(|row| row.from.contains(&at))
            .flat_map(|row| row.to.iter().map(|to| (row.reason, *to)));
        for (reason, next) in steps {
            if !known.contains(&next) && supports(reason, at, next, last, facts) {
                known.push(next);
                let further = way.iter().copied().chain([(reason, next)]);
                ways.push_back((next, further.collect()));
            }
        }
    }
    None
}

/// Whether the facts support this transition.
fn supports(reason: Reason, at: State, next: State, last: &Transition, facts: &Facts) -> bool {
    let listing = facts.listing;
    let is_member = matches!(listing, Listing::Learner | Listing::Voter);
    let gave_up = matches!(listing, Listing::Learner | Listing::No);
    let failed = facts.validation == Some(StageResult::Failed);
    let joins = at == State::New && (joins_as_learner(last) || last.state != State::New);
    match reason {
        Reason::ClusterScaledUp
        | Reason::NewSingleNodeClusterCreated
        | Reason::NewMultiNodeClusterCreated => false,
        Reason::DetectedPreviousCleanExit | Reason::DetectedPreviousUncleanExit => {
            validation(facts) == (reason, next) && !joins
        }
        Reason::DbValidationFailed if next == State::Restoration => facts.single && failed,
        Reason::DbValidationFailed => !facts.single && (failed || gave_up),
        Reason::DbValidationSucceeded => {
            !failed && facts.serves && facts.leads == (next == State::Leader)
        }
        Reason::RestorationSucceeded => facts.single && facts.serves,
        Reason::WaitingToJoinAsLearner => !facts.single && (gave_up || joins && is_member),
        Reason::JoinedAsLearner => is_member,
        Reason::PromotedAsVotingMember => listing == Listing::Voter,
        Reason::GainedClusterLeadership => facts.leads,
        Reason::LostClusterLeadership => facts.serves && !facts.leads,
    }
}
