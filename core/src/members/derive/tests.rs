use proptest::prelude::*;

use super::*;
use crate::members::{CREATE_AS_LEARNER, Exit, Listing, is_permitted};
use crate::members::{LastDefragmentation, Restoration, RunStatus};
use crate::quorum::{Difference, Snapshot, Volume, example};

/// A follower that serves, of a cluster of three.
fn input() -> MemberInput {
    let cluster = Snapshot::assemble(&example::healthy("etcd", 3));
    let mut input = MemberInput::from_snapshot(&cluster, &"etcd-1".into(), UnixTime(1_000));
    input.exit = Some(Exit::Clean);
    input
}

fn initializing(since: i64) -> MemberInput {
    MemberInput {
        etcd: Etcd::Started {
            since: Some(UnixTime(since)),
            initializes: true,
        },
        listing: Listing::Unknown,
        serves: false,
        leads: false,
        now: UnixTime(since + 1),
        ..input()
    }
}

fn listed(listing: Listing, now: i64) -> MemberInput {
    MemberInput {
        listing,
        serves: listing == Listing::Voter,
        now: UnixTime(now),
        etcd: Etcd::Started {
            since: None,
            initializes: false,
        },
        ..input()
    }
}

fn single(input: MemberInput) -> MemberInput {
    MemberInput {
        single: true,
        leads: input.serves,
        ..input
    }
}

/// A restoration from the backup that took 4 seconds.
fn ended(result: StageResult) -> Restoration {
    let took = Duration::from_secs(4);
    Restoration { result, took }
}

/// The states and reasons of all transitions, while each of these is observed.
fn life(observations: &[MemberInput]) -> Vec<(&'static str, &'static str)> {
    let status = after(observations);
    let steps = status.transitions.iter();
    steps
        .map(|step| (step.state.sub_state(), step.reason.into()))
        .collect()
}

fn after(observations: &[MemberInput]) -> Status {
    let mut status = Status::default();
    for input in observations {
        let derived = derive(&status, input);
        assert_eq!(derived.refused, None);
        status = derived.status;
    }
    status
}

#[test]
fn a_single_member_goes_straight_to_leader() {
    let seen = [
        single(MemberInput {
            etcd: Etcd::NotStarted,
            ..initializing(0)
        }),
        single(initializing(10)),
        single(listed(Listing::Voter, 20)),
    ];
    assert_eq!(
        life(&seen),
        [
            ("New", "NewSingleNodeClusterCreated"),
            ("DBValidationSanity", "DetectedPreviousCleanExit"),
            ("Leader", "DBValidationSucceeded"),
        ]
    );
}

#[test]
fn a_single_member_with_bad_data_is_restored_from_the_backup() {
    let fails = MemberInput {
        exit: Some(Exit::Unclean),
        ..single(initializing(10))
    };
    let bad_data = MemberInput {
        validation: Some(StageResult::Failed),
        now: UnixTime(15),
        ..fails.clone()
    };
    let seen = [fails, bad_data, single(listed(Listing::Voter, 20))];
    let status = after(&seen[..2]);
    let restoration = status.last_restoration.unwrap();
    assert_eq!(restoration.from, RestorationType::FromSnapshot);
    assert_eq!(restoration.status, RestorationStatus::InProgress);
    assert_eq!(
        life(&seen)[1..],
        [
            ("DBValidationFull", "DetectedPreviousUncleanExit"),
            ("Restoration", "DBValidationFailed"),
            ("Leader", "RestorationSucceeded"),
        ]
    );
    let restored = after(&seen).last_restoration.unwrap();
    assert_eq!(restored.status, RestorationStatus::Success);
    assert_eq!(restored.end_time, Some(UnixTime(20)));
}

#[test]
fn each_transition_says_what_happened() {
    let messages = |observations: &[MemberInput]| {
        let steps = after(observations).transitions.into_iter();
        steps.map(|step| step.message).collect::<Vec<_>>()
    };
    let failed = |input: MemberInput| MemberInput {
        validation: Some(StageResult::Failed),
        ..input
    };
    let unknown = MemberInput {
        exit: None,
        ..initializing(10)
    };
    let unclean = MemberInput {
        exit: Some(Exit::Unclean),
        ..initializing(20)
    };
    assert_eq!(
        messages(&[single(unknown.clone()), failed(single(unknown))])[1..],
        [
            "No clean exit is known, requires full DB validation",
            "DB validation failed, restoring from the backup",
        ]
    );
    assert_eq!(
        messages(&[listed(Listing::Voter, 10), unclean.clone(), failed(unclean)])[3..],
        [
            "Detected previous unclean exit, requires full DB validation",
            "The data was given up, the member joins again",
        ]
    );
}

#[test]
fn only_an_open_restoration_from_the_backup_fails_with_it() {
    let learner = [MemberInput {
        restoration: Some(ended(StageResult::Failed)),
        create_as_learner: true,
        ..listed(Listing::Learner, 10)
    }];
    let from_leader = after(&learner).last_restoration.unwrap();
    assert_eq!(from_leader.from, RestorationType::FromLeader);
    assert_eq!(from_leader.status, RestorationStatus::InProgress);

    let bad_data = MemberInput {
        validation: Some(StageResult::Failed),
        ..single(initializing(10))
    };
    let served = single(listed(Listing::Voter, 20));
    let late = MemberInput {
        restoration: Some(ended(StageResult::Failed)),
        ..served.clone()
    };
    let restored = after(&[bad_data, served, late]).last_restoration.unwrap();
    assert_eq!(restored.status, RestorationStatus::Success);
}

#[test]
fn only_an_open_restoration_of_the_same_kind_succeeds() {
    let promoted = transition(
        TransitionReason::PromotedAsVotingMember,
        State::Follower,
        UnixTime(20),
        &input(),
    );
    let ends = |from, status| {
        let mut last = Some(LastRestoration {
            from,
            status,
            reason: None,
            message: None,
            start_time: UnixTime(10),
            end_time: None,
        });
        succeed(&mut last, RestorationType::FromLeader, &promoted);
        last.unwrap().end_time.is_some()
    };
    assert!(ends(
        RestorationType::FromLeader,
        RestorationStatus::InProgress
    ));
    assert!(!ends(
        RestorationType::FromLeader,
        RestorationStatus::Success
    ));
    assert!(!ends(
        RestorationType::FromSnapshot,
        RestorationStatus::InProgress
    ));
}

#[test]
fn a_failed_restoration_is_told_and_a_later_success_ends_in_leader() {
    let fails = MemberInput {
        validation: Some(StageResult::Failed),
        restoration: Some(ended(StageResult::Failed)),
        ..single(initializing(10))
    };
    let failed = after(std::slice::from_ref(&fails));
    let restoration = failed.last_restoration.clone().unwrap();
    assert_eq!(restoration.status, RestorationStatus::Failed);
    assert_eq!(derive(&failed, &fails).status, failed, "told once");
    let restored = derive(&failed, &single(listed(Listing::Voter, 30)));
    assert_eq!(restored.status.state(), Some(State::Leader));
}

#[test]
fn a_restoration_that_is_seen_when_all_is_over_is_told_in_full() {
    let restored = MemberInput {
        exit: Some(Exit::Unclean),
        validation: Some(StageResult::Failed),
        restoration: Some(ended(StageResult::Succeeded)),
        etcd: Etcd::Started {
            since: Some(UnixTime(90)),
            initializes: false,
        },
        ..single(listed(Listing::Voter, 100))
    };
    let seen = [single(listed(Listing::Voter, 20)), restored.clone()];
    assert_eq!(
        life(&seen)[3..],
        [
            ("DBValidationFull", "DetectedPreviousUncleanExit"),
            ("Restoration", "DBValidationFailed"),
            ("Leader", "RestorationSucceeded"),
        ]
    );
    let status = after(&seen);
    let told = status.last_restoration.clone().unwrap();
    assert_eq!(told.from, RestorationType::FromSnapshot);
    assert_eq!(told.status, RestorationStatus::Success);
    assert_eq!(told.end_time, Some(UnixTime(100)));
    assert_eq!(derive(&status, &restored).status, status, "told once");
}

#[test]
fn a_restoration_begins_as_long_before_its_end_as_it_took_and_not_before_the_start_of_etcd() {
    let began = |since| {
        let input = MemberInput {
            restoration: Some(ended(StageResult::Succeeded)),
            etcd: Etcd::Started {
                since: Some(UnixTime(since)),
                initializes: false,
            },
            ..listed(Listing::Voter, 100)
        };
        after(&[input]).last_restoration.unwrap().start_time
    };
    assert_eq!(began(50), UnixTime(96));
    assert_eq!(began(98), UnixTime(98));
}

#[test]
fn each_start_of_etcd_may_have_a_restoration_of_its_own() {
    let at = |since, now, result| MemberInput {
        restoration: Some(ended(result)),
        etcd: Etcd::Started {
            since: Some(UnixTime(since)),
            initializes: false,
        },
        ..listed(Listing::Voter, now)
    };
    let mut status = after(&[at(10, 20, StageResult::Succeeded)]);
    for (input, told, end) in [
        (
            at(10, 30, StageResult::Failed),
            RestorationStatus::Success,
            20,
        ),
        (
            at(40, 50, StageResult::Failed),
            RestorationStatus::Failed,
            50,
        ),
        (
            at(40, 60, StageResult::Failed),
            RestorationStatus::Failed,
            50,
        ),
        (
            at(40, 70, StageResult::Succeeded),
            RestorationStatus::Success,
            70,
        ),
    ] {
        status = derive(&status, &input).status;
        let last = status.last_restoration.as_ref().unwrap();
        assert_eq!((last.status, last.end_time), (told, Some(UnixTime(end))));
    }
}

#[test]
fn one_of_several_whose_data_was_given_up_is_not_told_as_valid_although_it_serves_again() {
    let again = MemberInput {
        exit: Some(Exit::Unclean),
        validation: Some(StageResult::Failed),
        etcd: Etcd::Started {
            since: Some(UnixTime(20)),
            initializes: false,
        },
        ..listed(Listing::Voter, 30)
    };
    let seen = [listed(Listing::Voter, 10), again];
    assert_eq!(
        life(&seen)[3..],
        [
            ("DBValidationFull", "DetectedPreviousUncleanExit"),
            ("New", "DBValidationFailed"),
            ("PendingLearner", "WaitingToJoinAsLearner"),
            ("Learner", "JoinedAsLearner"),
            ("Follower", "PromotedAsVotingMember"),
        ]
    );
    let from_leader = after(&seen).last_restoration.unwrap();
    assert_eq!(from_leader.from, RestorationType::FromLeader);
    assert_eq!(from_leader.status, RestorationStatus::Success);
}

#[test]
fn a_member_added_by_growth_waits_learns_and_is_promoted() {
    let grown = |input| MemberInput {
        create_as_learner: true,
        ..input
    };
    let seen = [
        grown(MemberInput {
            etcd: Etcd::NotStarted,
            ..initializing(0)
        }),
        grown(initializing(10)),
        grown(listed(Listing::No, 20)),
        grown(listed(Listing::Learner, 30)),
        grown(listed(Listing::Voter, 40)),
    ];
    assert_eq!(
        life(&seen),
        [
            ("New", "ClusterScaledUp"),
            ("PendingLearner", "WaitingToJoinAsLearner"),
            ("Learner", "JoinedAsLearner"),
            ("Follower", "PromotedAsVotingMember"),
        ]
    );
    let learning = after(&seen[..4]);
    let restoration = learning.last_restoration.as_ref().unwrap();
    assert_eq!(restoration.from, RestorationType::FromLeader);
    assert!(!derive(&learning, &seen[3]).drop_annotation);
    assert!(
        derive(&learning, &seen[4]).drop_annotation,
        "{CREATE_AS_LEARNER} goes with the promotion"
    );
    // A learner that restarts stays a learner.
    assert_eq!(derive(&learning, &grown(initializing(35))).status, learning);
}

#[test]
fn a_voter_that_restarts_is_validated_and_serves_again() {
    let seen = [
        listed(Listing::Voter, 10),
        initializing(20),
        listed(Listing::Voter, 30),
    ];
    assert_eq!(
        life(&seen)[2..],
        [
            ("Follower", "DBValidationSucceeded"),
            ("DBValidationSanity", "DetectedPreviousCleanExit"),
            ("Follower", "DBValidationSucceeded"),
        ]
    );
}

#[test]
fn a_restart_that_nobody_saw_is_recorded_once_also_by_a_clock_that_is_ahead() {
    let before = after(&[listed(Listing::Voter, 10)]);
    let restarted = MemberInput {
        etcd: Etcd::Started {
            since: Some(UnixTime(90)),
            initializes: false,
        },
        ..listed(Listing::Voter, 30)
    };
    let status = derive(&before, &restarted).status;
    assert_eq!(status.transitions.len(), before.transitions.len() + 2);
    assert_eq!(derive(&status, &restarted).status, status);
}

#[test]
fn a_member_whose_data_was_given_up_is_new_and_joins_again() {
    let fails = MemberInput {
        exit: Some(Exit::Unclean),
        validation: Some(StageResult::Failed),
        ..initializing(20)
    };
    let seen = [
        listed(Listing::Voter, 10),
        fails,
        listed(Listing::Learner, 30),
    ];
    assert_eq!(
        life(&seen)[3..],
        [
            ("DBValidationFull", "DetectedPreviousUncleanExit"),
            ("New", "DBValidationFailed"),
            ("PendingLearner", "WaitingToJoinAsLearner"),
            ("Learner", "JoinedAsLearner"),
        ]
    );
}

#[test]
fn leadership_comes_and_goes() {
    let leads = MemberInput {
        leads: true,
        ..listed(Listing::Voter, 20)
    };
    let seen = [
        listed(Listing::Voter, 10),
        leads,
        listed(Listing::Voter, 30),
    ];
    assert_eq!(
        life(&seen)[3..],
        [
            ("Leader", "GainedClusterLeadership"),
            ("Follower", "LostClusterLeadership"),
        ]
    );
}

#[test]
fn an_impossible_change_is_refused_and_leaves_the_record() {
    let learning = after(&[listed(Listing::Learner, 10)]);
    let derived = derive(&learning, &listed(Listing::No, 20));
    let refused = derived.refused.unwrap();
    assert_eq!(
        refused.to_string(),
        "the member is recorded as Starting (Learner) and was seen as Starting (PendingLearner), \
         which cannot follow; the record stays"
    );
    assert_eq!(derived.status.transitions, learning.transitions);
}

#[test]
fn sizes_are_written_at_a_change_of_5_percent_or_after_10_minutes() {
    let sized = |db, age| MemberInput {
        sizes: Some(Sizes {
            db,
            in_use: 500,
            quota: None,
        }),
        previous_sizes: age,
        ..input()
    };
    let at = |seconds| PreviousSizes::WrittenFor(Duration::from_secs(seconds));
    let status = derive(&Status::default(), &sized(1_000, PreviousSizes::NotMine)).status;
    let size = |db, age| derive(&status, &sized(db, age)).status.db_size;
    assert_eq!(size(1_049, at(599)), Some(1_000));
    assert_eq!(size(1_050, at(0)), Some(1_050));
    assert_eq!(size(950, at(0)), Some(950));
    assert_eq!(size(1_001, at(600)), Some(1_001));
    assert_eq!(size(1_001, PreviousSizes::NotMine), Some(1_001));
}

#[test]
fn what_is_not_known_is_absent_and_what_was_known_stays() {
    let unknown = MemberInput {
        id: None,
        cluster_id: None,
        sizes: None,
        ..initializing(10)
    };
    let status = derive(&Status::default(), &unknown).status;
    assert_eq!((status.id, status.cluster_id), (None, None));
    assert_eq!((status.db_size, status.peer_tls_enabled), (None, None));
    let known = derive(&status, &input()).status;
    assert!(known.id.is_some() && known.db_size.is_some());
    let still = derive(&known, &unknown).status;
    assert_eq!((still.id, still.db_size), (known.id, known.db_size));
}

#[test]
fn a_snapshot_known_by_its_revision_alone_keeps_what_was_known_before() {
    let stored = |name: Option<&str>, revision| {
        Some(Stored {
            name: name.map(Into::into),
            end_revision: Some(revision),
            ..Stored::default()
        })
    };
    let with = |last_full| MemberInput {
        snapshots: Some(Snapshots {
            last_full,
            ..Snapshots::default()
        }),
        ..input()
    };
    let known = derive(&Status::default(), &with(stored(Some("Full-7"), 7))).status;
    let same = derive(&known, &with(stored(None, 7))).status;
    assert_eq!(same.snapshots.last_full, stored(Some("Full-7"), 7));
    let next = derive(&known, &with(stored(None, 8))).status;
    assert_eq!(next.snapshots.last_full, stored(None, 8));
}

#[test]
fn a_wrong_volume_opens_one_entry_and_the_right_one_closes_it() {
    let wrong = |id: &str, restarts| MemberInput {
        volume: VolumeFinding::Wrong {
            volume: Volume {
                claim_uid: "c".into(),
                volume_id: Some(id.into()),
                directory: None,
            },
            difference: Difference::Foreign,
        },
        restarts,
        ..input()
    };
    let right = MemberInput {
        volume: VolumeFinding::AsRecorded,
        now: UnixTime(2_000),
        ..input()
    };
    let seen = [wrong("v9", 0), wrong("v9", 3), wrong("v8", 1), right];
    let status = after(&seen);
    let closed = |id: &str, restarts| Mismatch {
        identified_at: UnixTime(1_000),
        fixed_at: Some(UnixTime(2_000)),
        volume_id: id.into(),
        num_restarts: restarts,
    };
    assert_eq!(status.volume_mismatches, [closed("v9", 3), closed("v8", 1)]);
    let again = derive(&status, &wrong("v9", 4)).status;
    assert_eq!(again.volume_mismatches.len(), 2);
    assert_eq!(again.volume_mismatches[0].fixed_at, None);
}

#[test]
fn the_latest_defragmentation_is_kept() {
    let run = |start, status| {
        Some(LastDefragmentation {
            start_time: UnixTime(start),
            end_time: None,
            status,
            reason: Some("Reclaim".into()),
            message: None,
            initial_db_size: Some(9),
            final_db_size: None,
        })
    };
    let with = |defragmentation| MemberInput {
        defragmentation,
        ..input()
    };
    let ended = run(5, Some(RunStatus::Succeeded));
    let seen = [
        with(run(5, None)),
        with(ended.clone()),
        with(run(4, None)),
        with(None),
    ];
    assert_eq!(after(&seen).last_defragmentation, ended);
}

#[test]
fn at_most_50_transitions_are_kept_the_latest_ones() {
    let mut status = Status::default();
    for time in 0..100 {
        let leads = time % 2 == 0;
        let input = MemberInput {
            leads,
            ..listed(Listing::Voter, time)
        };
        status = derive(&status, &input).status;
    }
    assert_eq!(status.transitions.len(), MOST_TRANSITIONS);
    assert_eq!(status.transitions[49].time, UnixTime(99));
}

fn any_facts() -> impl Strategy<Value = MemberInput> {
    let listing = prop_oneof![
        Just(Listing::Voter),
        Just(Listing::Learner),
        Just(Listing::No),
        Just(Listing::Unknown)
    ];
    let exit = proptest::option::of(prop_oneof![Just(Exit::Clean), Just(Exit::Unclean)]);
    let outcome = || {
        proptest::option::of(prop_oneof![
            Just(StageResult::Succeeded),
            Just(StageResult::Failed)
        ])
    };
    let etcd = prop_oneof![
        Just(Etcd::NotStarted),
        (proptest::option::of(0_i64..300), any::<bool>()).prop_map(|(since, initializes)| {
            Etcd::Started {
                since: since.map(UnixTime),
                initializes,
            }
        })
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), 0_i64..300);
    let restoration = outcome().prop_map(|result| result.map(ended));
    (listing, exit, outcome(), restoration, etcd, flags).prop_map(
        |(listing, exit, validation, restoration, etcd, (single, grown, leads, now))| MemberInput {
            now: UnixTime(now),
            single,
            create_as_learner: grown,
            listing,
            serves: listing == Listing::Voter,
            leads: leads && listing == Listing::Voter,
            exit,
            validation,
            restoration,
            etcd,
            ..input()
        },
    )
}

proptest! {
    /// The record is a life by the table of DEP-04 whatever is observed, and times never go back.
    #[test]
    fn every_record_is_a_way_by_the_table(observations in prop::collection::vec(any_facts(), 1..30)) {
        let mut status = Status::default();
        let mut complete: Vec<Transition> = Vec::new();
        for input in &observations {
            let before = status.transitions.len();
            let derived = derive(&status, input);
            prop_assert!(derived.status.transitions.len() <= MOST_TRANSITIONS);
            if complete.len() < MOST_TRANSITIONS - 8 {
                complete.extend(derived.status.transitions[before..].to_vec());
            }
            status = derived.status;
        }
        let mut from = None;
        for step in &complete {
            prop_assert!(is_permitted(from, step.reason, step.state), "{from:?} {step:?}");
            from = Some(step.state);
        }
        prop_assert!(complete.windows(2).all(|pair| pair[0].time <= pair[1].time));
    }

    /// The same observation twice writes nothing the second time.
    #[test]
    fn what_has_been_recorded_is_not_written_again(
        observations in prop::collection::vec(any_facts(), 1..10)
    ) {
        let mut status = Status::default();
        for input in &observations {
            status = derive(&status, input).status;
            prop_assert_eq!(&derive(&status, input).status, &status);
        }
    }
}
