//! The status of an `EtcdMember` as the core's [`Status`], and back.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::etcd_member::{
    DefragmentationState, EtcdMemberStatus, MemberTransition, RestorationState, SnapshotState,
    SnapshotsStatus, VolumeMismatch,
};
use crate::members::{
    LastDefragmentation, LastRestoration, Mismatch, Snapshots, State, Status, Stored, Transition,
    UnixTime,
};

/// The recorded status. `None` if it holds a word that this version does not know.
pub(super) fn read(shown: &EtcdMemberStatus) -> Option<Status> {
    Some(Status {
        id: parsed(shown.id.as_deref())?,
        cluster_id: parsed(shown.cluster_id.as_deref())?,
        peer_tls_enabled: shown.peer_tls_enabled,
        db_size: shown.db_size.and_then(unsigned),
        db_size_in_use: shown.db_size_in_use.and_then(unsigned),
        snapshots: shown
            .snapshots
            .as_ref()
            .map(read_snapshots)
            .unwrap_or_default(),
        last_restoration: match &shown.last_restoration {
            Some(last) => Some(read_restoration(last)?),
            None => None,
        },
        last_defragmentation: match &shown.last_defragmentation {
            Some(last) => Some(read_defragmentation(last)?),
            None => None,
        },
        volume_mismatches: shown.volume_mismatches.iter().map(read_mismatch).collect(),
        transitions: shown
            .transitions
            .iter()
            .map(read_transition)
            .collect::<Option<_>>()?,
    })
}

/// The status to write.
pub(super) fn show(status: &Status) -> EtcdMemberStatus {
    EtcdMemberStatus {
        id: status.id.map(|id| id.to_string()),
        cluster_id: status.cluster_id.map(|id| id.to_string()),
        peer_tls_enabled: status.peer_tls_enabled,
        db_size: status.db_size.and_then(signed),
        db_size_in_use: status.db_size_in_use.and_then(signed),
        snapshots: (status.snapshots != Snapshots::default())
            .then(|| show_snapshots(&status.snapshots)),
        last_restoration: status.last_restoration.as_ref().map(show_restoration),
        last_defragmentation: status
            .last_defragmentation
            .as_ref()
            .map(show_defragmentation),
        volume_mismatches: status.volume_mismatches.iter().map(show_mismatch).collect(),
        transitions: status.transitions.iter().map(show_transition).collect(),
    }
}

/// The value of a text that may be absent. `None` if the text is none of its type.
#[expect(
    clippy::option_option,
    reason = "absent and unreadable are different things"
)]
fn parsed<T: std::str::FromStr>(text: Option<&str>) -> Option<Option<T>> {
    text.map(str::parse).transpose().ok()
}

fn unsigned(number: i64) -> Option<u64> {
    number.try_into().ok()
}

fn signed(number: u64) -> Option<i64> {
    number.try_into().ok()
}

fn read_time(time: &Time) -> UnixTime {
    UnixTime(time.0.as_second())
}

fn show_time(time: UnixTime) -> Time {
    Time(Timestamp::from_second(time.0).unwrap_or_default())
}

fn read_snapshots(shown: &SnapshotsStatus) -> Snapshots {
    Snapshots {
        last_full: shown.last_full.as_ref().map(read_snapshot),
        last_delta: shown.last_delta.as_ref().map(read_snapshot),
        accumulated_delta_size: shown.accumulated_delta_size.and_then(unsigned),
    }
}

fn show_snapshots(snapshots: &Snapshots) -> SnapshotsStatus {
    SnapshotsStatus {
        last_full: snapshots.last_full.as_ref().map(show_snapshot),
        last_delta: snapshots.last_delta.as_ref().map(show_snapshot),
        accumulated_delta_size: snapshots.accumulated_delta_size.and_then(signed),
    }
}

fn read_snapshot(shown: &SnapshotState) -> Stored {
    Stored {
        timestamp: shown.timestamp.as_ref().map(read_time),
        name: shown.name.clone(),
        size: shown.size.and_then(unsigned),
        start_revision: shown.start_revision.and_then(unsigned),
        end_revision: shown.end_revision.and_then(unsigned),
    }
}

fn show_snapshot(stored: &Stored) -> SnapshotState {
    SnapshotState {
        timestamp: stored.timestamp.map(show_time),
        name: stored.name.clone(),
        size: stored.size.and_then(signed),
        start_revision: stored.start_revision.and_then(signed),
        end_revision: stored.end_revision.and_then(signed),
    }
}

fn read_restoration(shown: &RestorationState) -> Option<LastRestoration> {
    Some(LastRestoration {
        from: shown.from.parse().ok()?,
        status: shown.status.parse().ok()?,
        reason: shown.reason.clone(),
        message: shown.message.clone(),
        start_time: read_time(&shown.start_time),
        end_time: shown.end_time.as_ref().map(read_time),
    })
}

fn show_restoration(last: &LastRestoration) -> RestorationState {
    RestorationState {
        from: last.from.to_string(),
        status: last.status.to_string(),
        reason: last.reason.clone(),
        message: last.message.clone(),
        start_time: show_time(last.start_time),
        end_time: last.end_time.map(show_time),
    }
}

fn read_defragmentation(shown: &DefragmentationState) -> Option<LastDefragmentation> {
    Some(LastDefragmentation {
        start_time: read_time(&shown.start_time),
        end_time: shown.end_time.as_ref().map(read_time),
        status: parsed(shown.status.as_deref())?,
        reason: shown.reason.clone(),
        message: shown.message.clone(),
        initial_db_size: shown.initial_db_size.and_then(unsigned),
        final_db_size: shown.final_db_size.and_then(unsigned),
    })
}

fn show_defragmentation(last: &LastDefragmentation) -> DefragmentationState {
    DefragmentationState {
        start_time: show_time(last.start_time),
        end_time: last.end_time.map(show_time),
        status: last.status.map(|status| status.to_string()),
        reason: last.reason.clone(),
        message: last.message.clone(),
        initial_db_size: last.initial_db_size.and_then(signed),
        final_db_size: last.final_db_size.and_then(signed),
    }
}

fn read_mismatch(shown: &VolumeMismatch) -> Mismatch {
    Mismatch {
        identified_at: read_time(&shown.identified_at),
        fixed_at: shown.fixed_at.as_ref().map(read_time),
        volume_id: shown.volume_id.clone(),
        num_restarts: shown.num_restarts.try_into().unwrap_or_default(),
    }
}

fn show_mismatch(mismatch: &Mismatch) -> VolumeMismatch {
    VolumeMismatch {
        identified_at: show_time(mismatch.identified_at),
        fixed_at: mismatch.fixed_at.map(show_time),
        volume_id: mismatch.volume_id.clone(),
        num_restarts: mismatch.num_restarts.try_into().unwrap_or(i32::MAX),
    }
}

fn read_transition(shown: &MemberTransition) -> Option<Transition> {
    let sub_state = shown.sub_state.as_deref().unwrap_or_default();
    Some(Transition {
        state: State::parse(&shown.state, sub_state)?,
        reason: shown.reason.parse().ok()?,
        time: read_time(&shown.transition_time),
        message: shown.message.clone().unwrap_or_default(),
    })
}

fn show_transition(transition: &Transition) -> MemberTransition {
    MemberTransition {
        state: transition.state.name().into(),
        sub_state: Some(transition.state.sub_state().into()),
        reason: transition.reason.to_string(),
        transition_time: show_time(transition.time),
        message: (!transition.message.is_empty()).then(|| transition.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::{Exit, MemberInput, derive};
    use crate::quorum::{Snapshot, example};

    #[test]
    fn a_status_is_read_back_as_it_was_written() {
        let cluster = Snapshot::assemble(&example::healthy("etcd", 3));
        let mut facts = MemberInput::from_snapshot(&cluster, &"etcd-1".into(), UnixTime(1_000));
        facts.exit = Some(Exit::Clean);
        facts.snapshots = Some(Snapshots {
            last_full: Some(Stored {
                end_revision: Some(7),
                ..Stored::default()
            }),
            ..Snapshots::default()
        });
        let status = derive(&Status::default(), &facts).status;
        assert!(status.transitions.len() > 1 && status.id.is_some());
        assert_eq!(read(&show(&status)), Some(status));
    }

    #[test]
    fn an_unknown_word_is_not_read_as_something_else() {
        let mut shown = show(&Status::default());
        shown.id = Some("not hexadecimal".into());
        assert_eq!(read(&shown), None);
    }
}
