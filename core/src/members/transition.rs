//! The transitions between states, and the table of those that are permitted (DEP-04, "Reason
//! Codes").

use super::state::State;

/// A moment, in seconds since the Unix epoch. Kubernetes writes times in whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(pub i64);

/// The reason codes of DEP-04, completed by `NewMultiNodeClusterCreated`.
///
/// DEP-04 has no code for the creation of a fresh cluster of several members, and its example says
/// `DBCorruptionDetected` where its table says `DBValidationFailed`: the table counts.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display, strum::IntoStaticStr, strum::EnumString,
)]
pub enum TransitionReason {
    /// The member was added to a running cluster.
    ClusterScaledUp,
    /// The member is the only one of a new cluster.
    NewSingleNodeClusterCreated,
    /// The member is one of several of a new cluster.
    NewMultiNodeClusterCreated,
    /// The process before ended cleanly.
    DetectedPreviousCleanExit,
    /// The process before did not end cleanly, or its end is not known.
    DetectedPreviousUncleanExit,
    /// The data was found to be invalid and was given up.
    #[strum(serialize = "DBValidationFailed")]
    DbValidationFailed,
    /// The data was found to be valid, and the member serves.
    #[strum(serialize = "DBValidationSucceeded")]
    DbValidationSucceeded,
    /// The data was restored from the backup, and the member serves.
    RestorationSucceeded,
    /// The member is not in etcd's member list yet.
    WaitingToJoinAsLearner,
    /// The member list has the member as a learner.
    JoinedAsLearner,
    /// The member list has the member as a voter.
    PromotedAsVotingMember,
    /// The member was elected leader.
    GainedClusterLeadership,
    /// Another member was elected leader.
    LostClusterLeadership,
}

/// A row of the table: with this reason, each state of `from` may turn into each of `to`.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The reason code.
    pub reason: TransitionReason,
    /// The states before. An empty list means that there was none.
    pub from: &'static [State],
    /// The states after.
    pub to: &'static [State],
}

use State::{
    DbValidationFull, DbValidationSanity, Follower, Leader, Learner, New, PendingLearner,
    Restoration,
};

/// The permitted transitions: the table of DEP-04, row by row.
pub const TABLE: [Row; 13] = [
    row(TransitionReason::ClusterScaledUp, &[], &[New]),
    row(TransitionReason::NewSingleNodeClusterCreated, &[], &[New]),
    row(TransitionReason::NewMultiNodeClusterCreated, &[], &[New]),
    row(
        TransitionReason::DetectedPreviousCleanExit,
        &[New, Leader, Follower],
        &[DbValidationSanity],
    ),
    row(
        TransitionReason::DetectedPreviousUncleanExit,
        &[New, Leader, Follower],
        &[DbValidationFull],
    ),
    row(
        TransitionReason::DbValidationFailed,
        &[DbValidationSanity, DbValidationFull],
        &[Restoration, New],
    ),
    row(
        TransitionReason::DbValidationSucceeded,
        &[DbValidationSanity, DbValidationFull],
        &[Leader, Follower],
    ),
    row(
        TransitionReason::RestorationSucceeded,
        &[Restoration],
        &[Leader],
    ),
    row(
        TransitionReason::WaitingToJoinAsLearner,
        &[New],
        &[PendingLearner],
    ),
    row(
        TransitionReason::JoinedAsLearner,
        &[PendingLearner],
        &[Learner],
    ),
    row(
        TransitionReason::PromotedAsVotingMember,
        &[Learner],
        &[Follower],
    ),
    row(
        TransitionReason::GainedClusterLeadership,
        &[Follower],
        &[Leader],
    ),
    row(
        TransitionReason::LostClusterLeadership,
        &[Leader],
        &[Follower],
    ),
];

const fn row(reason: TransitionReason, from: &'static [State], to: &'static [State]) -> Row {
    Row { reason, from, to }
}

/// Whether the table permits the transition. `from` is `None` for the first one.
pub fn is_permitted(from: Option<State>, reason: TransitionReason, to: State) -> bool {
    TABLE.iter().any(|row| {
        let begins = from.map_or(row.from.is_empty(), |from| row.from.contains(&from));
        begins && row.reason == reason && row.to.contains(&to)
    })
}

/// A recorded transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transition {
    /// The state after the transition.
    pub state: State,
    /// The reason code.
    pub reason: TransitionReason,
    /// The time of the transition.
    pub time: UnixTime,
    /// The details, for people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_reason_once_under_the_name_of_dep_04() {
        let names: Vec<&str> = TABLE.iter().map(|row| row.reason.into()).collect();
        assert_eq!(
            names,
            [
                "ClusterScaledUp",
                "NewSingleNodeClusterCreated",
                "NewMultiNodeClusterCreated",
                "DetectedPreviousCleanExit",
                "DetectedPreviousUncleanExit",
                "DBValidationFailed",
                "DBValidationSucceeded",
                "RestorationSucceeded",
                "WaitingToJoinAsLearner",
                "JoinedAsLearner",
                "PromotedAsVotingMember",
                "GainedClusterLeadership",
                "LostClusterLeadership",
            ]
        );
        for (name, row) in names.iter().zip(TABLE) {
            assert_eq!(name.parse(), Ok(row.reason));
        }
    }

    #[test]
    fn a_life_begins_as_new_and_never_again_without_a_failed_validation() {
        assert!(is_permitted(None, TransitionReason::ClusterScaledUp, New));
        assert!(!is_permitted(
            Some(Leader),
            TransitionReason::ClusterScaledUp,
            New
        ));
        assert!(!is_permitted(
            None,
            TransitionReason::DbValidationSucceeded,
            Follower
        ));
        let again = State::ALL.into_iter().filter(|from| {
            TABLE
                .iter()
                .any(|row| row.from.contains(from) && row.to.contains(&New))
        });
        assert!(again.eq([DbValidationSanity, DbValidationFull]));
    }
}
