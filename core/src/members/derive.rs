//! The next status of an `EtcdMember`, from the recorded one and one observation.

use std::time::Duration;

use super::input::{Etcd, MemberInput, PreviousSizes, Restoration, StageResult};
use super::path::{Impossible, way};
use super::state::State;
use super::status::{
    LastRestoration, MOST_TRANSITIONS, Mismatch, RestorationStatus, RestorationType, Snapshots,
    Status, Stored,
};
use super::transition::{Transition, TransitionReason, UnixTime};
use crate::quorum::{Sizes, VolumeFinding};

/// The time after which sizes are written however little they have changed.
const SIZES_AFTER: Duration = Duration::from_secs(10 * 60);

/// The change of a size that is written at once: one part in so many, which is 5 %.
const SIZE_STEP: u64 = 20;

/// The result of [`derive()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The status to record. Nothing is written if it equals the recorded one.
    pub status: Status,
    /// The change of state that was refused, if any. The caller makes an Event of it.
    pub refused: Option<Impossible>,
    /// Whether the annotation [`CREATE_AS_LEARNER`](super::CREATE_AS_LEARNER) is to be removed:
    /// the member has become a voter.
    pub drop_annotation: bool,
}

/// Derives the next status of a member.
///
/// ```
/// use quorumgate_core::members::{Exit, MemberInput, State, Status, UnixTime, derive};
/// use quorumgate_core::quorum::{Snapshot, example};
///
/// let cluster = Snapshot::assemble(&example::healthy("etcd-main", 3));
/// let mut input = MemberInput::from_snapshot(&cluster, &"etcd-main-1".into(), UnixTime(1_000));
/// input.exit = Some(Exit::Clean);
/// let derived = derive(&Status::default(), &input);
///
/// // The member serves already. The states before are those that it must have passed.
/// let states: Vec<State> = derived.status.transitions.iter().map(|t| t.state).collect();
/// assert_eq!(states, [State::New, State::DbValidationSanity, State::Follower]);
/// // As long as nothing changes there is nothing to write.
/// assert_eq!(derive(&derived.status, &input).status, derived.status);
/// ```
pub fn derive(recorded: &Status, input: &MemberInput) -> Derived {
    let mut status = recorded.clone();
    let refused = append_transitions(&mut status, input).err();
    let new = status
        .transitions
        .get(recorded.transitions.len()..)
        .unwrap_or_default()
        .to_vec();
    for transition in &new {
        restored(&mut status.last_restoration, transition);
    }
    note_restoration(&mut status.last_restoration, input);
    status.id = input.id.or(status.id);
    status.cluster_id = input.cluster_id.or(status.cluster_id);
    status.peer_tls_enabled = input.peer_tls.or(status.peer_tls_enabled);
    write_sizes(&mut status, input);
    if let Some(snapshots) = &input.snapshots {
        status.snapshots = merged(&status.snapshots, snapshots);
    }
    if let Some(run) = &input.defragmentation {
        let known = status.last_defragmentation.as_ref();
        if known.is_none_or(|known| known.start_time <= run.start_time) {
            status.last_defragmentation = Some(run.clone());
        }
    }
    note_volume(&mut status.volume_mismatches, input);
    let excess = status.transitions.len().saturating_sub(MOST_TRANSITIONS);
    status.transitions.drain(..excess);
    Derived {
        drop_annotation: input.create_as_learner && status.state().is_some_and(State::is_started),
        status,
        refused,
    }
}

fn append_transitions(status: &mut Status, input: &MemberInput) -> Result<(), Impossible> {
    if status.transitions.is_empty() {
        let first = transition(created(input), State::New, input.now, input);
        status.transitions.push(first);
    }
    let Some(last) = status.transitions.last().cloned() else {
        return Ok(());
    };
    // No time lies before the last one, or before the start of the process: otherwise that start
    // would be taken for a restart again and again where the clock of the node is ahead.
    let time = not_before_start(input).max(last.time);
    let steps = way(&last, input)?.into_iter();
    status
        .transitions
        .extend(steps.map(|(reason, state)| transition(reason, state, time, input)));
    Ok(())
}

/// The start of etcd's container, if it is known.
fn started(input: &MemberInput) -> Option<UnixTime> {
    match input.etcd {
        Etcd::Started { since, .. } => since,
        Etcd::NotStarted => None,
    }
}

/// The time of the observation, which is not before the start of etcd's container.
fn not_before_start(input: &MemberInput) -> UnixTime {
    input.now.max(started(input).unwrap_or(input.now))
}

/// The reason for the first entry.
fn created(input: &MemberInput) -> TransitionReason {
    match (input.create_as_learner, input.single) {
        (true, _) => TransitionReason::ClusterScaledUp,
        (false, true) => TransitionReason::NewSingleNodeClusterCreated,
        (false, false) => TransitionReason::NewMultiNodeClusterCreated,
    }
}

fn transition(
    reason: TransitionReason,
    state: State,
    time: UnixTime,
    input: &MemberInput,
) -> Transition {
    Transition {
        state,
        reason,
        time,
        message: message(reason, state, input).into(),
    }
}

fn message(reason: TransitionReason, state: State, input: &MemberInput) -> &'static str {
    match reason {
        TransitionReason::ClusterScaledUp => "New member added due to etcd cluster scale-up",
        TransitionReason::NewSingleNodeClusterCreated => "New cluster with a single member",
        TransitionReason::NewMultiNodeClusterCreated => "New cluster with several members",
        TransitionReason::DetectedPreviousCleanExit => "Detected previous clean exit",
        TransitionReason::DetectedPreviousUncleanExit if input.exit.is_none() => {
            "No clean exit is known, requires full DB validation"
        }
        TransitionReason::DetectedPreviousUncleanExit => {
            "Detected previous unclean exit, requires full DB validation"
        }
        TransitionReason::DbValidationFailed if state == State::Restoration => {
            "DB validation failed, restoring from the backup"
        }
        TransitionReason::DbValidationFailed => "The data was given up, the member joins again",
        TransitionReason::DbValidationSucceeded => "The member serves",
        TransitionReason::RestorationSucceeded => "The data was restored, the member serves",
        TransitionReason::WaitingToJoinAsLearner => "Waiting to join the cluster as a learner",
        TransitionReason::JoinedAsLearner => "Joined the cluster as a learner",
        TransitionReason::PromotedAsVotingMember => {
            "Now in sync with leader, promoted as voting member"
        }
        TransitionReason::GainedClusterLeadership => "Elected leader",
        TransitionReason::LostClusterLeadership => "Another member leads",
    }
}

/// Notes the beginning and the success of a restoration. A learner is restored from the leader.
fn restored(last: &mut Option<LastRestoration>, transition: &Transition) {
    let begun = |from| LastRestoration {
        from,
        status: RestorationStatus::InProgress,
        reason: Some(transition.reason.to_string()),
        message: Some(transition.message.clone()),
        start_time: transition.time,
        end_time: None,
    };
    match transition.reason {
        TransitionReason::JoinedAsLearner => *last = Some(begun(RestorationType::FromLeader)),
        TransitionReason::DbValidationFailed => {
            if transition.state == State::Restoration {
                *last = Some(begun(RestorationType::FromSnapshot));
            }
        }
        TransitionReason::PromotedAsVotingMember => {
            succeed(last, RestorationType::FromLeader, transition);
        }
        TransitionReason::RestorationSucceeded => {
            succeed(last, RestorationType::FromSnapshot, transition);
        }
        TransitionReason::ClusterScaledUp
        | TransitionReason::NewSingleNodeClusterCreated
        | TransitionReason::NewMultiNodeClusterCreated
        | TransitionReason::DetectedPreviousCleanExit
        | TransitionReason::DetectedPreviousUncleanExit
        | TransitionReason::DbValidationSucceeded
        | TransitionReason::WaitingToJoinAsLearner
        | TransitionReason::GainedClusterLeadership
        | TransitionReason::LostClusterLeadership => {}
    }
}

fn succeed(last: &mut Option<LastRestoration>, from: RestorationType, transition: &Transition) {
    let is_open = |last: &&mut LastRestoration| {
        last.from == from && last.status != RestorationStatus::Success
    };
    if let Some(last) = last.as_mut().filter(is_open) {
        last.status = RestorationStatus::Success;
        last.reason = Some(transition.reason.to_string());
        last.message = Some(transition.message.clone());
        last.end_time = Some(transition.time);
    }
}

/// Notes a restoration from the backup that backup-restore has counted, once for each start of
/// etcd's container and result. A failure is not told after a success, which came later.
fn note_restoration(last: &mut Option<LastRestoration>, input: &MemberInput) {
    let Some(Restoration { result, took }) = input.restoration else {
        return;
    };
    let is_of_this_start = |time: UnixTime| started(input).is_none_or(|since| time >= since);
    let is_told = |last: &LastRestoration| match (last.from, last.end_time) {
        (RestorationType::FromLeader, _) => is_of_this_start(last.start_time),
        (RestorationType::FromSnapshot, None) => false,
        (RestorationType::FromSnapshot, Some(end)) => {
            is_of_this_start(end)
                && (last.status == RestorationStatus::Success || result == StageResult::Failed)
        }
    };
    if last.as_ref().is_some_and(is_told) {
        return;
    }
    let (status, reason, message) = match result {
        StageResult::Succeeded => (
            RestorationStatus::Success,
            TransitionReason::RestorationSucceeded.to_string(),
            "backup-restore has restored the data from the backup; where the backup is empty, it has removed the data",
        ),
        StageResult::Failed => (
            RestorationStatus::Failed,
            "RestorationFailed".into(),
            "backup-restore could not restore the data from the backup, and tries again by itself",
        ),
    };
    let end = not_before_start(input);
    let seconds = i64::try_from(took.as_secs()).unwrap_or(i64::MAX);
    let begun = UnixTime(end.0.saturating_sub(seconds));
    *last = Some(LastRestoration {
        from: RestorationType::FromSnapshot,
        status,
        reason: Some(reason),
        message: Some(message.into()),
        start_time: begun.max(started(input).unwrap_or(begun)),
        end_time: Some(end),
    });
}

/// Takes the sizes over if they are new, have changed by 5 %, or were written 10 minutes ago.
fn write_sizes(status: &mut Status, input: &MemberInput) {
    let Some(Sizes { db, in_use, .. }) = input.sizes else {
        return;
    };
    let old = match input.previous_sizes {
        PreviousSizes::WrittenFor(age) => age >= SIZES_AFTER,
        PreviousSizes::NotMine => true,
    };
    let changed = |recorded: Option<u64>, now: u64| {
        recorded.is_none_or(|before| before.abs_diff(now) >= (before / SIZE_STEP).max(1))
    };
    if old || changed(status.db_size, db) || changed(status.db_size_in_use, in_use) {
        status.db_size = Some(db);
        status.db_size_in_use = Some(in_use);
    }
}

/// The snapshots as they were read, completed from the record where that knows more about the same
/// snapshot: the Leases tell only the revision.
fn merged(recorded: &Snapshots, read: &Snapshots) -> Snapshots {
    Snapshots {
        last_full: same(recorded.last_full.as_ref(), read.last_full.as_ref()),
        last_delta: same(recorded.last_delta.as_ref(), read.last_delta.as_ref()),
        accumulated_delta_size: read.accumulated_delta_size,
    }
}

fn same(recorded: Option<&Stored>, read: Option<&Stored>) -> Option<Stored> {
    let read = read?;
    let known = recorded.filter(|known| known.end_revision == read.end_revision);
    Some(known.map_or_else(
        || read.clone(),
        |known| Stored {
            timestamp: read.timestamp.or(known.timestamp),
            name: read.name.clone().or_else(|| known.name.clone()),
            size: read.size.or(known.size),
            start_revision: read.start_revision.or(known.start_revision),
            end_revision: read.end_revision,
        },
    ))
}

/// Opens an entry for a wrong volume, one per volume, and closes all when the right one is back.
fn note_volume(mismatches: &mut Vec<Mismatch>, input: &MemberInput) {
    match &input.volume {
        VolumeFinding::Unknown => {}
        VolumeFinding::AsRecorded => {
            for open in mismatches.iter_mut().filter(|m| m.fixed_at.is_none()) {
                open.fixed_at = Some(input.now);
            }
        }
        VolumeFinding::Wrong { volume, .. } => {
            // A claim that is not bound has no wrong volume yet.
            let Some(id) = &volume.volume_id else {
                return;
            };
            let known = mismatches.iter_mut().find(|known| known.volume_id == *id);
            if let Some(known) = known {
                known.fixed_at = None;
                // A new pod counts from 0 again, so the sum over several pods is a lower bound.
                known.num_restarts = known.num_restarts.max(input.restarts);
            } else {
                mismatches.push(Mismatch {
                    identified_at: input.now,
                    fixed_at: None,
                    volume_id: id.clone(),
                    num_restarts: input.restarts,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
