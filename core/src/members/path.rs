//! The way from the recorded state to the one that the facts show.
//!
//! An observer does not see every state. So the way between two observations is the shortest one
//! that the table permits and of which the facts support every transition.

use super::input::{Etcd, Exit, Listing, MemberInput, StageResult};
use super::state::State;
use super::transition::{TABLE, Transition, TransitionReason};
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
pub(super) type Step = (TransitionReason, State);

/// The way from the last recorded transition to the state that the facts show. An empty way means
/// that nothing has changed.
pub(super) fn way(last: &Transition, input: &MemberInput) -> Result<Vec<Step>, Impossible> {
    let Some(target) = seen(last, input) else {
        return Ok(Vec::new());
    };
    let from = last.state;
    if from.is_started() && target.is_started() && was_restarted(last, input) {
        let (reason, validation) = validation(input);
        let rest = shortest(validation, target, last, input);
        return Ok(rest.map_or_else(Vec::new, |rest| {
            [(reason, validation)].into_iter().chain(rest).collect()
        }));
    }
    shortest(from, target, last, input).ok_or(Impossible { from, to: target })
}

/// The state that the facts show. `None` if they show nothing new.
fn seen(last: &Transition, input: &MemberInput) -> Option<State> {
    let initializes = match input.etcd {
        Etcd::NotStarted => return None,
        Etcd::Started { initializes, .. } => initializes,
    };
    match input.listing {
        Listing::Learner if !input.single => return Some(State::Learner),
        Listing::No if !input.single => return Some(State::PendingLearner),
        Listing::Voter | Listing::Learner | Listing::No | Listing::Unknown => {}
    }
    if input.serves {
        let leader = input.leads.then_some(State::Leader);
        return leader.or(Some(State::Follower));
    }
    let is_before_join = matches!(last.state, State::PendingLearner | State::Learner);
    if !initializes || is_before_join || joins_as_learner(last) {
        return None;
    }
    let failed = input.validation == Some(StageResult::Failed);
    match (last.state, failed, input.single) {
        (_, true, true) => Some(State::Restoration),
        (_, true, false) => Some(State::New),
        (State::New | State::Follower | State::Leader, false, _) => Some(validation(input).1),
        _ => None,
    }
}

/// Whether the member, which is `New`, has to join a running cluster: it was added to one, or its
/// data was given up.
fn joins_as_learner(last: &Transition) -> bool {
    let joins = matches!(
        last.reason,
        TransitionReason::ClusterScaledUp | TransitionReason::DbValidationFailed
    );
    last.state == State::New && joins
}

/// Whether etcd's container was started after the last transition.
fn was_restarted(last: &Transition, input: &MemberInput) -> bool {
    matches!(input.etcd, Etcd::Started { since: Some(since), .. } if since > last.time)
}

/// The first state of an initialisation. Only a clean exit that was seen spares the validation in
/// full, as in etcd-wrapper.
fn validation(input: &MemberInput) -> Step {
    match input.exit {
        Some(Exit::Clean) => (
            TransitionReason::DetectedPreviousCleanExit,
            State::DbValidationSanity,
        ),
        Some(Exit::Unclean) | None => (
            TransitionReason::DetectedPreviousUncleanExit,
            State::DbValidationFull,
        ),
    }
}

/// The shortest way by the table, of which the facts support every transition.
fn shortest(from: State, to: State, last: &Transition, input: &MemberInput) -> Option<Vec<Step>> {
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
            if !known.contains(&next) && supports(reason, at, next, last, input) {
                known.push(next);
                let further = way.iter().copied().chain([(reason, next)]);
                ways.push_back((next, further.collect()));
            }
        }
    }
    None
}

/// Whether the facts support this transition.
fn supports(
    reason: TransitionReason,
    at: State,
    next: State,
    last: &Transition,
    input: &MemberInput,
) -> bool {
    let listing = input.listing;
    let is_member = matches!(listing, Listing::Learner | Listing::Voter);
    let gave_up = matches!(listing, Listing::Learner | Listing::No);
    let failed = input.validation == Some(StageResult::Failed);
    let joins = at == State::New && (joins_as_learner(last) || last.state != State::New);
    match reason {
        TransitionReason::ClusterScaledUp
        | TransitionReason::NewSingleNodeClusterCreated
        | TransitionReason::NewMultiNodeClusterCreated => false,
        TransitionReason::DetectedPreviousCleanExit
        | TransitionReason::DetectedPreviousUncleanExit => {
            validation(input) == (reason, next) && !joins
        }
        TransitionReason::DbValidationFailed if next == State::Restoration => {
            input.single && failed
        }
        TransitionReason::DbValidationFailed => !input.single && (failed || gave_up),
        TransitionReason::DbValidationSucceeded => {
            !failed && input.serves && input.leads == (next == State::Leader)
        }
        TransitionReason::RestorationSucceeded => input.single && input.serves,
        TransitionReason::WaitingToJoinAsLearner => {
            !input.single && (gave_up || joins && is_member)
        }
        TransitionReason::JoinedAsLearner => is_member,
        TransitionReason::PromotedAsVotingMember => listing == Listing::Voter,
        TransitionReason::GainedClusterLeadership => input.leads,
        TransitionReason::LostClusterLeadership => input.serves && !input.leads,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::UnixTime;
    use crate::quorum::{Snapshot, example};

    fn last(state: State, reason: TransitionReason) -> Transition {
        Transition {
            state,
            reason,
            time: UnixTime(900),
            message: String::new(),
        }
    }

    /// A member of which nothing is seen but that its container runs.
    fn input(single: bool) -> MemberInput {
        let cluster = Snapshot::assemble(&example::healthy("etcd", 3));
        MemberInput {
            single,
            listing: Listing::Unknown,
            serves: false,
            leads: false,
            etcd: Etcd::Started {
                since: None,
                initializes: false,
            },
            ..MemberInput::from_snapshot(&cluster, &"etcd-1".into(), UnixTime(1_000))
        }
    }

    #[test]
    fn the_only_member_is_no_learner_whatever_a_list_says() {
        let follower = last(State::Follower, TransitionReason::LostClusterLeadership);
        for listing in [Listing::Learner, Listing::No] {
            let input = MemberInput {
                listing,
                serves: true,
                leads: true,
                ..input(true)
            };
            assert_eq!(seen(&follower, &input), Some(State::Leader), "{listing:?}");
        }
    }

    #[test]
    fn a_member_that_runs_and_does_not_serve_shows_nothing_new() {
        for state in [State::Follower, State::Leader, State::DbValidationFull] {
            let before = last(state, TransitionReason::DbValidationSucceeded);
            assert_eq!(seen(&before, &input(false)), None, "{state}");
        }
    }

    #[test]
    fn a_member_that_is_new_stays_so_while_its_data_is_given_up() {
        let new = last(State::New, TransitionReason::NewMultiNodeClusterCreated);
        let input = MemberInput {
            etcd: Etcd::Started {
                since: None,
                initializes: true,
            },
            validation: Some(StageResult::Failed),
            ..input(false)
        };
        assert_eq!(way(&new, &input), Ok(Vec::new()));
    }

    #[test]
    fn each_reason_needs_all_of_its_facts() {
        let failed = Some(StageResult::Failed);
        let started = last(State::Follower, TransitionReason::DbValidationSucceeded);
        let holds = |reason, next, input: &MemberInput| {
            supports(reason, State::DbValidationFull, next, &started, input)
        };
        // Of a single member, that its validation failed.
        let restoration = |single, validation| {
            let input = MemberInput {
                validation,
                ..input(single)
            };
            holds(
                TransitionReason::DbValidationFailed,
                State::Restoration,
                &input,
            )
        };
        assert!(restoration(true, failed));
        assert!(!restoration(true, None) && !restoration(false, failed));
        // Of one of several, that its validation failed or that it is no voter any more.
        let gives_up = |single, validation, listing| {
            let input = MemberInput {
                listing,
                validation,
                ..input(single)
            };
            holds(TransitionReason::DbValidationFailed, State::New, &input)
        };
        assert!(gives_up(false, failed, Listing::Unknown) && gives_up(false, None, Listing::No));
        assert!(!gives_up(false, None, Listing::Voter) && !gives_up(true, failed, Listing::No));
        // Of a single member, that it serves.
        let restored = |single, serves| {
            let input = MemberInput {
                serves,
                ..input(single)
            };
            holds(
                TransitionReason::RestorationSucceeded,
                State::Leader,
                &input,
            )
        };
        assert!(restored(true, true) && !restored(true, false) && !restored(false, true));
        // That it serves and does not lead.
        let lost = |serves, leads| {
            let input = MemberInput {
                serves,
                leads,
                ..input(false)
            };
            holds(
                TransitionReason::LostClusterLeadership,
                State::Follower,
                &input,
            )
        };
        assert!(lost(true, false) && !lost(true, true) && !lost(false, false));
    }

    #[test]
    fn one_of_several_waits_to_join_if_it_is_no_voter_or_was_added_and_is_listed() {
        let added = last(State::New, TransitionReason::ClusterScaledUp);
        let created = last(State::New, TransitionReason::NewMultiNodeClusterCreated);
        let waits = |last, single, listing| {
            let input = MemberInput {
                listing,
                ..input(single)
            };
            let (reason, next) = (
                TransitionReason::WaitingToJoinAsLearner,
                State::PendingLearner,
            );
            supports(reason, State::New, next, last, &input)
        };
        assert!(waits(&created, false, Listing::No) && waits(&created, false, Listing::Learner));
        assert!(waits(&added, false, Listing::Voter));
        assert!(!waits(&created, false, Listing::Voter));
        assert!(!waits(&added, false, Listing::Unknown));
        assert!(!waits(&created, true, Listing::No) && !waits(&added, true, Listing::Voter));
    }
}
