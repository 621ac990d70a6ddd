use super::*;
use crate::quorum::{Observation, example};

fn cluster() -> ClusterRef {
    ClusterRef::new("a", "etcd")
}

fn snapshot(quorum_lost: bool) -> Snapshot {
    let observation = Observation::before_any_look(cluster(), 3);
    Snapshot {
        quorum_lost,
        ..Snapshot::assemble(&observation)
    }
}

/// Looks every two seconds, as the observers do. Returns the duration after the last look.
fn after(looks: &[bool]) -> Option<Duration> {
    let watches = Memory::default();
    let mut now = Instant::now();
    for lost in looks {
        now += Duration::from_secs(2);
        watches.note(&snapshot(*lost), &Round::default(), now);
    }
    watches.ages(&cluster(), now).quorum_lost_for
}

#[test]
fn a_lost_quorum_counts_once_it_was_seen_for_seven_seconds() {
    assert_eq!(after(&[true, true, true]), None);
    let seconds = after(&[true, true, true, true, true]);
    assert_eq!(seconds, Some(Duration::from_secs(8)));
}

#[test]
fn one_look_with_a_quorum_resets_the_stopwatch() {
    assert_eq!(after(&[true, true, true, false, true, true]), None);
}

#[test]
fn members_are_mute_for_as_long_as_the_same_pods_were_seen_so() {
    let watches = Memory::default();
    let start = Instant::now();
    let mute = |is_mute: bool, uid: &str| {
        let mut observation = example::healthy("etcd", 1);
        observation.cluster = cluster();
        observation.pods[0].uid = PodUid::new(uid);
        Snapshot {
            is_mute,
            ..Snapshot::assemble(&observation)
        }
    };
    let looks = [
        (true, "1", Some(0)),
        (true, "1", Some(4)),
        (true, "2", Some(0)),
        (true, "2", Some(4)),
        (false, "2", None),
        (true, "2", Some(0)),
    ];
    for (n, (is_mute, uid, expected)) in (0..).zip(looks) {
        let now = start + 4 * n * Duration::from_secs(1);
        watches.note(&mute(is_mute, uid), &Round::default(), now);
        let seen = watches.ages(&cluster(), now).mute_for;
        assert_eq!(seen, expected.map(Duration::from_secs), "look {n}");
    }
}

#[test]
fn a_gap_between_looks_resets_the_stopwatch() {
    let watches = Memory::default();
    let start = Instant::now();
    watches.note(&snapshot(true), &Round::default(), start);
    let later = start + GAP;
    watches.note(&snapshot(true), &Round::default(), later);
    let ages = watches.ages(&cluster(), later);
    assert_eq!(ages.quorum_lost_for, None);
}

#[test]
fn old_looks_prove_nothing_about_the_present() {
    let watches = Memory::default();
    let start = Instant::now();
    for second in [0, 4, 8] {
        let now = start + Duration::from_secs(second);
        watches.note(&snapshot(true), &Round::default(), now);
    }
    let fresh = watches.ages(&cluster(), start + Duration::from_secs(9));
    assert_eq!(fresh.quorum_lost_for, Some(Duration::from_secs(8)));
    let stale = watches.ages(&cluster(), start + Duration::from_secs(8) + GAP);
    assert_eq!(stale.quorum_lost_for, None);
}

mod learners {
    use super::*;
    use crate::quorum::evidence::{Probe, Status, Target};
    use crate::quorum::{ClusterId, Member, ProcessState};

    const ID: MemberId = MemberId(7);

    fn learning(lag: u64) -> Snapshot {
        let learner = Member {
            id: Some(ID),
            name: "etcd-3".into(),
            pod_name: Some("etcd-3".into()),
            pod: None,
            role: Role::Learner,
            leader: false,
            condition: Condition::Learning,
            process: ProcessState::Alive,
            leaderless: false,
            lag: Some(lag),
            sizes: None,
            alarms: Vec::new(),
        };
        Snapshot {
            members: vec![learner],
            ..snapshot(false)
        }
    }

    fn answered(applied_index: u64) -> Round {
        let status = Status {
            cluster_id: ClusterId(1),
            member_id: ID,
            leader: None,
            term: 1,
            raft_index: applied_index,
            applied_index,
            learner: true,
            alarms: Vec::new(),
            db_size: 0,
            db_size_in_use: 0,
            revision: 0,
            db_size_quota: None,
            version: String::new(),
        };
        let silence = crate::quorum::evidence::Unanswered::NotAsked;
        let mut probe = Probe::unanswered(Target::External(ID), silence);
        probe.status = Ok(status);
        Round {
            probes: vec![probe],
        }
    }

    fn stuck_after(looks: &[(u64, u64)]) -> Option<Duration> {
        let watches = Memory::default();
        let mut now = Instant::now();
        for (applied, lag) in looks {
            now += Duration::from_secs(2);
            watches.note(&learning(*lag), &answered(*applied), now);
        }
        watches.ages(&cluster(), now).learners_stuck_for.remove(&ID)
    }

    #[test]
    fn a_learner_that_applies_entries_makes_progress() {
        let looks = [(10, 90), (20, 90), (30, 90)];
        assert_eq!(stuck_after(&looks), Some(Duration::ZERO));
    }

    #[test]
    fn a_learner_without_progress_behind_the_leader_is_stuck_since_it_was_first_seen_there() {
        let looks = [(10, 90), (20, 90), (20, 95), (20, 99)];
        assert_eq!(stuck_after(&looks), Some(Duration::from_secs(4)));
    }

    #[test]
    fn each_learner_has_a_stopwatch_of_its_own() {
        const OTHER: MemberId = MemberId(8);
        let other = |lag| {
            let mut members = learning(lag).members;
            for member in &mut members {
                member.id = Some(OTHER);
            }
            members
        };
        let watches = Memory::default();
        let mut now = Instant::now();
        for applied in [10, 20, 30] {
            now += Duration::from_secs(2);
            let mut both = learning(90);
            both.members.extend(other(90));
            let mut round = answered(applied);
            let mut stands = answered(5).probes;
            for probe in &mut stands {
                probe.status.as_mut().unwrap().member_id = OTHER;
            }
            round.probes.extend(stands);
            watches.note(&both, &round, now);
        }
        let stuck = watches.ages(&cluster(), now).learners_stuck_for;
        let expected = [(ID, Duration::ZERO), (OTHER, Duration::from_secs(4))];
        assert_eq!(stuck, expected.into());
    }

    #[test]
    fn a_learner_that_has_caught_up_on_an_idle_leader_is_not_stuck() {
        let looks = [(10, 0), (10, 0), (10, 0)];
        assert_eq!(stuck_after(&looks), Some(Duration::ZERO));
    }
}
