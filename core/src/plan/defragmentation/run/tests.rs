use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::plan::Handover;
use crate::plan::defragmentation::{Disarm, LastRun, Settings, disarm};
use crate::quorum::evidence::{Alarm, AlarmKind, Probe, Unanswered};
use crate::quorum::{Cause, CauseState};
use crate::quorum::{
    EvidenceMode, Observation, Settlement, SmallCluster, Trust, example, settlement,
};

const GIB: u64 = 1 << 30;
const ME: &str = "gate-0/1";

/// A cluster of `voters` in which every member is due.
fn cluster(voters: u32) -> Observation {
    let mut observation = example::healthy("etcd", voters);
    for n in 0..observation.pods.len() {
        sized(&mut observation, n, 2 * GIB, GIB);
        observation.pods[n].up_for = Some(Duration::from_secs(600));
    }
    observation
}

fn sized(observation: &mut Observation, n: usize, db: u64, in_use: u64) {
    let status = observation.round.probes[n].status.as_mut().unwrap();
    status.db_size = db;
    status.db_size_in_use = in_use;
    status.db_size_quota = Some(8 * GIB);
}

fn silent(observation: &mut Observation, n: usize) {
    let probe = &mut observation.round.probes[n];
    *probe = Probe::unanswered(probe.target.clone(), Unanswered::Deadline);
}

fn pod(n: u32) -> PodName {
    PodName::new(format!("etcd-{n}"))
}

fn input() -> DefragmentationInput {
    let member = || MemberFacts {
        version: "3.6.16".parse().ok(),
        quota: None,
        room: Some(8 * GIB),
        in_flight: Some(false),
        liveness: None,
        last: None,
    };
    DefragmentationInput {
        settings: Settings {
            mode: Mode::Auto,
            ..Settings::default()
        },
        request: None,
        in_window: true,
        other_schedule: None,
        rolling_out: false,
        all_served_for: Duration::from_secs(60),
        handover: Handover::Possible,
        me: ME.into(),
        call: Call::NotMade,
        members: (0..5).map(|n| (pod(n), member())).collect(),
    }
}

fn with(change: impl FnOnce(&mut DefragmentationInput)) -> DefragmentationInput {
    let mut input = input();
    change(&mut input);
    input
}

fn of_member(n: u32, change: impl FnOnce(&mut MemberFacts)) -> DefragmentationInput {
    with(|input| change(input.members.get_mut(&pod(n)).unwrap()))
}

fn granted(n: u32, holder: &str) -> Grants {
    let permitted = GrantKind::Defragment {
        holder: holder.into(),
        timeout_seconds: 900,
    };
    Grants::default().issue(&pod(n), permitted, holder.into(), String::new())
}

fn ask(observation: &Observation, grants: &Grants, input: &DefragmentationInput) -> Next {
    next(&Snapshot::assemble(observation), grants, input)
}

/// The step, or the reason to wait, as a word with the pod.
fn said(observation: &Observation, grants: &Grants, input: &DefragmentationInput) -> String {
    match ask(observation, grants, input) {
        Next::Nothing => "nothing".into(),
        Next::Wait { pod, because, .. } => format!("wait {pod} {}", because.slug()),
        Next::Watch { pod, because } => format!("watch {pod} {}", because.slug()),
        Next::Act(step) => match &step {
            Step::Grant { pod, .. } | Step::MoveLeader { pod, .. } | Step::Begin { pod } => {
                format!("{} {}", step.slug(), pod.name)
            }
            Step::Settle { pod } => format!("Settle {pod}"),
            Step::GiveUp { pod, because } => format!("GiveUp {pod} {}", because.slug()),
        },
    }
}

fn first(observation: &Observation, input: &DefragmentationInput) -> String {
    said(observation, &Grants::default(), input)
}

/// The reason why etcd-2, the first follower in order, is refused.
fn refused(observation: &Observation, input: &DefragmentationInput) -> String {
    let said = first(observation, input);
    said.strip_prefix("wait etcd-2 ")
        .unwrap_or(&said)
        .to_owned()
}

#[test]
fn a_run_goes_through_the_followers_and_ends_with_the_leader() {
    let mut observation = cluster(3);
    let (none, input) = (Grants::default(), input());
    let mut order = Vec::new();
    for _ in 0..3 {
        let Next::Act(Step::Grant { pod: target, .. }) = ask(&observation, &none, &input) else {
            panic!("{order:?}");
        };
        let n: usize = target.name.as_str()[5..].parse().unwrap();
        sized(&mut observation, n, GIB, GIB);
        order.push(n);
    }
    assert_eq!(order, [2, 1, 0]);
    assert_eq!(ask(&observation, &none, &input), Next::Nothing);
}

#[test]
fn a_grant_is_followed_by_one_call_and_settles_by_proof() {
    let observation = cluster(3);
    let open = granted(2, ME);
    assert_eq!(said(&observation, &open, &input()), "Begin etcd-2");
    let running = with(|f| f.call = Call::Running);
    assert_eq!(said(&observation, &open, &running), "watch etcd-2 InFlight");
    let returned = with(|f| f.call = Call::Returned { done: true });
    assert_eq!(said(&observation, &open, &returned), "Settle etcd-2");
}

#[test]
fn a_call_that_returned_settles_only_when_the_member_serves_and_nothing_is_in_flight() {
    let open = granted(2, ME);
    let returned = |done, in_flight| {
        let mut input = of_member(2, |m| m.in_flight = in_flight);
        input.call = Call::Returned { done };
        input
    };
    let mut blocked = cluster(3);
    silent(&mut blocked, 2);
    let watch = "watch etcd-2 InFlight";
    assert_eq!(said(&blocked, &open, &returned(true, Some(false))), watch);
    let serves = cluster(3);
    assert_eq!(said(&serves, &open, &returned(true, Some(true))), watch);
    // The client gave up. The server may not even have begun.
    assert_eq!(said(&serves, &open, &returned(false, None)), watch);
    let by_age = progress(
        &Snapshot::assemble(&serves),
        &pod(2),
        ME,
        &returned(false, None),
    );
    assert_eq!(by_age, DefragmentationProgress::NotMine);
    assert_eq!(
        said(&serves, &open, &returned(false, Some(false))),
        "Settle etcd-2"
    );
    assert_eq!(said(&serves, &open, &returned(true, None)), "Settle etcd-2");
}

#[test]
fn before_the_call_everything_is_judged_again() {
    let open = granted(2, ME);
    let mut ill = cluster(3);
    silent(&mut ill, 1);
    assert_eq!(said(&ill, &open, &input()), "GiveUp etcd-2 NotAllServing");
    let rollout = with(|f| f.rolling_out = true);
    assert_eq!(said(&cluster(3), &open, &rollout), "GiveUp etcd-2 Rollout");
    let gone = Observation {
        pods: cluster(3).pods[..2].to_vec(),
        ..cluster(3)
    };
    assert!(said(&gone, &open, &input()).starts_with("GiveUp etcd-2"));
}

#[test]
fn the_leader_hands_over_to_a_follower_that_is_done_or_stays_as_it_is() {
    let mut observation = cluster(3);
    for n in [1, 2] {
        sized(&mut observation, n, GIB, GIB);
    }
    assert_eq!(first(&observation, &input()), "Grant etcd-0");
    let open = granted(0, ME);
    assert_eq!(said(&observation, &open, &input()), "MoveLeader etcd-0");
    let refuses = with(|f| f.handover = Handover::Refused);
    assert_eq!(first(&observation, &refuses), "wait etcd-0 HandoverRefused");
    assert_eq!(
        said(&observation, &open, &refuses),
        "GiveUp etcd-0 HandoverRefused"
    );
    let remaining = Duration::from_secs(3);
    let rests = with(|f| f.handover = Handover::Resting { remaining });
    assert_eq!(first(&observation, &rests), "wait etcd-0 Leadership");
    for probe in &mut observation.round.probes {
        probe.status.as_mut().unwrap().leader = Some(MemberId(2));
    }
    assert_eq!(said(&observation, &open, &input()), "Begin etcd-0");
}

#[test]
fn the_leader_does_not_hand_over_to_a_follower_that_is_due() {
    let observation = cluster(3);
    let open = granted(0, ME);
    assert_eq!(said(&observation, &open, &input()), "GiveUp etcd-0 NoHeir");
}

#[test]
fn the_grant_of_another_process_is_watched_and_settles_by_age() {
    // The process has the same pod name as the one before its container restarted.
    let open = granted(2, "gate-0/0");
    assert_eq!(
        said(&cluster(3), &open, &input()),
        "watch etcd-2 OtherHolder"
    );
    let snapshot = Snapshot::assemble(&cluster(3));
    let seen = |input: &DefragmentationInput| progress(&snapshot, &pod(2), "gate-0/0", input);
    assert_eq!(seen(&input()), DefragmentationProgress::NotMine);
    let in_flight = of_member(2, |m| m.in_flight = Some(true));
    assert_eq!(seen(&in_flight), DefragmentationProgress::Running);
    let cause = Cause {
        what: GrantKind::Defragment {
            holder: "gate-0/0".into(),
            timeout_seconds: 900,
        },
        seq: 1,
        by: String::new(),
        at: String::new(),
    };
    let (age, settle) = (Duration::from_secs(1_020), Duration::from_secs(120));
    let of = |input: &DefragmentationInput| {
        settlement(
            &cause,
            CauseState::Defragmentation(seen(input)),
            age,
            settle,
        )
    };
    assert_eq!(of(&input()), Settlement::NeverHappened);
    assert_eq!(of(&in_flight), Settlement::Keep);
}

#[test]
fn a_call_that_outlives_its_ledger_keeps_the_next_run_waiting() {
    // The budget was deleted and created again, without the grant.
    let running = with(|f| f.call = Call::Running);
    assert_eq!(refused(&cluster(3), &running), "InFlight");
    let over = with(|f| f.call = Call::Returned { done: true });
    assert_eq!(first(&cluster(3), &over), "Grant etcd-2");
}

#[test]
fn due_is_what_exceeds_both_floors() {
    let sizes = |db, in_use| {
        let mut observation = cluster(3);
        sized(&mut observation, 2, db, in_use);
        for n in [0, 1] {
            sized(&mut observation, n, GIB, GIB);
        }
        first(&observation, &input())
    };
    assert_eq!(sizes(2 * GIB, GIB), "Grant etcd-2");
    // 1 GiB is 33 %, and half of 100 MiB is less than 200 MiB.
    assert_eq!(sizes(3 * GIB, 2 * GIB), "nothing");
    assert_eq!(sizes(100 << 20, 50 << 20), "nothing");
    // Above 80 % of the quota 32 MiB are enough.
    assert_eq!(sizes(7 * GIB, 7 * GIB - (32 << 20)), "Grant etcd-2");
    assert_eq!(sizes(7 * GIB, 7 * GIB - (31 << 20)), "nothing");
}

#[test]
fn no_gain_means_not_again_for_24_hours_unless_somebody_asks() {
    let ended = |hours: u64, size_after| {
        let mut input = input();
        for own in input.members.values_mut() {
            own.last = Some(LastRun {
                ended_ago: Duration::from_secs(hours * 3_600),
                took: Some(Duration::from_secs(9)),
                size_before: 2 * GIB,
                size_after,
                request: None,
            });
        }
        input
    };
    let none = Some(2 * GIB);
    assert_eq!(first(&cluster(3), &ended(23, none)), "nothing");
    assert_eq!(first(&cluster(3), &ended(24, none)), "Grant etcd-2");
    assert_eq!(first(&cluster(3), &ended(1, Some(GIB))), "Grant etcd-2");
    assert_eq!(first(&cluster(3), &ended(1, None)), "nothing", "failed");
    let mut asked = ended(1, none);
    asked.request = Some("now".into());
    assert_eq!(first(&cluster(3), &asked), "Grant etcd-2");
    for own in asked.members.values_mut() {
        own.last.as_mut().unwrap().request = Some("now".into());
    }
    assert_eq!(first(&cluster(3), &asked), "nothing", "each request once");
}

#[test]
fn the_mode_the_window_and_another_schedule_hold_back_what_nobody_asked_for() {
    let observation = cluster(3);
    let mode = |mode| with(|f| f.settings.mode = mode);
    assert_eq!(first(&observation, &mode(Mode::Off)), "nothing");
    assert_eq!(refused(&observation, &mode(Mode::Report)), "ReportOnly");
    let closed = with(|f| f.in_window = false);
    assert_eq!(refused(&observation, &closed), "OutsideWindow");
    let druid = with(|f| f.other_schedule = Some("0 0 */3 * *".into()));
    assert_eq!(refused(&observation, &druid), "OtherSchedule");
    for mut input in [mode(Mode::Report), closed, druid] {
        input.request = Some("now".into());
        assert_eq!(first(&observation, &input), "Grant etcd-2");
    }
    let mut off = mode(Mode::Off);
    off.request = Some("now".into());
    assert_eq!(first(&observation, &off), "nothing");
}

#[test]
fn a_corrupt_alarm_is_told_of_the_member_that_it_accuses() {
    let accused = |id| {
        let mut observation = cluster(3);
        let alarm = Alarm {
            member: MemberId(id),
            kind: AlarmKind::Corrupt,
        };
        observation.round.probes[1].status.as_mut().unwrap().alarms = vec![alarm];
        match ask(&observation, &Grants::default(), &input()) {
            Next::Wait { because, .. } => because.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert!(accused(2).contains("etcd-1"), "{}", accused(2));
    assert!(!accused(2).contains("etcd-0"), "{}", accused(2));
    assert!(accused(9).contains("no member"), "{}", accused(9));
}

#[test]
fn every_condition_of_the_cluster_is_a_reason_of_its_own() {
    let change = |change: &dyn Fn(&mut Observation)| {
        let mut observation = cluster(3);
        change(&mut observation);
        refused(&observation, &input())
    };
    assert_eq!(change(&|o| silent(o, 0)), "NotAllServing");
    assert_eq!(change(&|o| o.pods[0].terminating = true), "Terminating");
    assert_eq!(
        change(&|o| o.circumstances.ledger = Trust::Untrusted { remaining: None }),
        "LedgerUntrusted"
    );
    let lagging = |o: &mut Observation, entries: u64| {
        o.round.probes[0].status.as_mut().unwrap().applied_index = 10 + entries;
    };
    assert_eq!(change(&|o| lagging(o, 1_000)), "Grant etcd-2");
    assert_eq!(change(&|o| lagging(o, 1_001)), "Behind");
    let learner = |o: &mut Observation| {
        for probe in &mut o.round.probes {
            probe.members.as_mut().unwrap()[0].learner = true;
            probe.status.as_mut().unwrap().leader = Some(MemberId(2));
        }
        o.round.probes[0].status.as_mut().unwrap().learner = true;
    };
    assert_eq!(change(&learner), "Learner");
    let corrupt = |id: u64, o: &mut Observation| {
        let alarm = Alarm {
            member: MemberId(id),
            kind: AlarmKind::Corrupt,
        };
        o.round.probes[1].status.as_mut().unwrap().alarms = vec![alarm];
    };
    assert_eq!(change(&|o| corrupt(1, o)), "Corrupt");
    assert_eq!(change(&|o| corrupt(0, o)), "Corrupt", "etcd 3.5 names none");
    assert_eq!(
        refused(&cluster(3), &with(|f| f.rolling_out = true)),
        "Rollout"
    );
    let just = with(|f| f.all_served_for = Duration::from_secs(9));
    assert_eq!(refused(&cluster(3), &just), "ServingTooShort");
    let other = of_member(0, |m| m.in_flight = Some(true));
    assert_eq!(refused(&cluster(3), &other), "InFlight");
    let going = GrantKind::Delete {
        uid: "uid-0".into(),
        rollout: false,
    };
    let grants = Grants::default().issue(&pod(0), going, String::new(), String::new());
    assert_eq!(said(&cluster(3), &grants, &input()), "wait etcd-2 Granted");
}

#[test]
fn readiness_is_no_evidence_for_a_defragmentation() {
    let mut observation = cluster(3);
    let by_readiness = |o: &mut Observation| o.policy.evidence = EvidenceMode::Readiness;
    by_readiness(&mut observation);
    let open = granted(2, ME);
    assert_eq!(
        said(&observation, &open, &input()),
        "GiveUp etcd-2 NoLiveEvidence"
    );
}

#[test]
fn the_only_member_and_one_of_two_are_defragmented_by_policy_alone() {
    let mut single = cluster(1);
    assert_eq!(first(&single, &input()), "Grant etcd-0");
    single.policy.single_member = SmallCluster::Never;
    assert_eq!(first(&single, &input()), "wait etcd-0 TooSmall");
    assert_eq!(first(&cluster(2), &input()), "wait etcd-1 TooSmall");
}

#[test]
fn versions_with_defects_are_left_alone_or_have_to_be_steady() {
    let version = |version: &str| {
        let mut input = input();
        for own in input.members.values_mut() {
            own.version = version.parse().ok();
        }
        input
    };
    assert_eq!(refused(&cluster(3), &version("3.5.5")), "Defect");
    assert_eq!(refused(&cluster(3), &version("?")), "VersionUnknown");
    assert_eq!(first(&cluster(3), &version("3.4.34")), "Grant etcd-2");
    let mut young = cluster(3);
    for pod in &mut young.pods {
        pod.up_for = Some(Duration::from_secs(59));
    }
    assert_eq!(refused(&young, &version("3.6.4")), "Unsteady");
    assert_eq!(first(&young, &version("3.6.5")), "Grant etcd-2");
    let mut behind = cluster(3);
    behind.round.probes[0]
        .status
        .as_mut()
        .unwrap()
        .applied_index += 11;
    assert_eq!(refused(&behind, &version("3.5.22")), "Unsteady");
}

#[test]
fn there_has_to_be_room_and_time() {
    let each = |change: &dyn Fn(&mut MemberFacts)| {
        let mut input = input();
        input.members.values_mut().for_each(change);
        input
    };
    let no_room = each(&|m| m.room = Some(GIB - 1));
    assert_eq!(refused(&cluster(3), &no_room), "NoRoom");
    let mut unknown = each(&|m| m.room = None);
    assert_eq!(refused(&cluster(3), &unknown), "RoomUnknown");
    unknown.request = Some("now".into());
    assert_eq!(first(&cluster(3), &unknown), "Grant etcd-2");
    // 1 GiB takes 32 s where nothing better is known, and a third of what the probe bears is used.
    let bears = |seconds| each(&|m| m.liveness = Some(Duration::from_secs(seconds)));
    assert_eq!(refused(&cluster(3), &bears(95)), "LivenessTooShort");
    assert_eq!(first(&cluster(3), &bears(96)), "Grant etcd-2");
    let measured = each(&|m| {
        m.liveness = Some(Duration::from_secs(12));
        m.last = Some(LastRun {
            ended_ago: Duration::from_secs(90_000),
            took: Some(Duration::from_secs(4)),
            size_before: 3 * GIB,
            size_after: Some(GIB),
            request: None,
        });
    });
    assert_eq!(first(&cluster(3), &measured), "Grant etcd-2");
    let mut unseen = measured;
    for own in unseen.members.values_mut() {
        own.last.as_mut().unwrap().took = None;
    }
    assert_eq!(
        refused(&cluster(3), &unseen),
        "LivenessTooShort",
        "an end that nobody saw"
    );
    let short = with(|f| f.settings.timeout = Duration::from_secs(31));
    assert_eq!(refused(&cluster(3), &short), "TooLong");
}

#[test]
fn what_a_bound_allows_just_so_is_allowed() {
    just(&with(|f| f.all_served_for = Duration::from_secs(10)));
    just(&of_member(2, |m| m.room = Some(GIB)));
    // 1 GiB at 32 MiB in a second takes 32 s, and the probe bears three times that.
    just(&of_member(2, |m| {
        m.liveness = Some(Duration::from_secs(96));
    }));
    just(&with(|f| f.settings.timeout = Duration::from_secs(32)));
    assert!(input().after_a_while().all_served_for > Duration::from_secs(60));
}

#[test]
fn a_run_that_freed_the_least_worth_freeing_or_whose_end_is_unknown_says_nothing_of_the_next() {
    let run = |after: Option<u64>| LastRun {
        ended_ago: Duration::ZERO,
        took: Some(Duration::from_secs(1)),
        size_before: 32 << 20,
        size_after: after,
        request: None,
    };
    assert!(!run(Some(0)).rests());
    assert!(run(Some(1)).rests());
    // An empty file says nothing of the speed.
    just(&of_member(2, |m| m.last = Some(run(Some(0)))));
    // A quota of 0 is none.
    let mut unlimited = cluster(3);
    for probe in &mut unlimited.round.probes {
        probe.status.as_mut().unwrap().db_size_quota = Some(0);
    }
    let snapshot = Snapshot::assemble(&unlimited);
    let input = input();
    let quota = |n: u32| {
        let member = snapshot.member(&pod(n)).unwrap();
        input.member(&pod(n)).quota_of(member)
    };
    assert_eq!(quota(2), None);
}

/// The member `etcd-2` is the next to be defragmented.
fn just(input: &DefragmentationInput) {
    assert_eq!(first(&cluster(3), input), "Grant etcd-2");
}

#[test]
fn nine_tenths_of_the_quota_are_not_below_the_limit() {
    use super::super::nospace::is_below_limit;
    assert!(is_below_limit(89, 100));
    assert!(!is_below_limit(90, 100));
}

#[test]
fn a_refusal_tells_what_it_measured() {
    let lag = |behind| {
        let member = "etcd-1".to_owned();
        let most = 1000;
        Refusal::Behind {
            member,
            behind,
            most,
        }
        .to_string()
    };
    assert!(lag(Some(1001)).contains("etcd-1 is 1001 entries behind, at most 1000"));
    assert!(lag(None).contains("how far etcd-1 is behind is not known"));
    let race = crate::plan::Defect::SNAPSHOT_RACE;
    let unsteady = Refusal::Unsteady {
        version: "3.5.9".parse().unwrap(),
        defect: race,
        behind: Some(12),
        up_for: Some(Duration::from_secs(3)),
    };
    let told = unsteady.to_string();
    assert!(
        told.contains(", it is 12 entries behind, it runs for 3 s"),
        "{told}"
    );
}

#[test]
fn a_call_of_which_nobody_knows_the_end_is_watched_until_its_member_serves() {
    let unknown = of_member(2, |m| m.in_flight = None);
    let returned = DefragmentationInput {
        call: Call::Returned { done: false },
        ..unknown
    };
    let progress = |observation: &Observation| {
        let snapshot = Snapshot::assemble(observation);
        progress(&snapshot, &pod(2), ME, &returned)
    };
    assert_eq!(progress(&cluster(3)), DefragmentationProgress::NotMine);
    let mut observation = cluster(3);
    silent(&mut observation, 2);
    assert_eq!(progress(&observation), DefragmentationProgress::Running);
}

#[test]
fn right_before_the_call_unknown_room_is_a_reason_unless_somebody_asked() {
    let unknown = of_member(2, |m| m.room = None);
    let said = |input: &DefragmentationInput| said(&cluster(3), &granted(2, ME), input);
    assert_eq!(said(&unknown), "GiveUp etcd-2 RoomUnknown");
    let requested = DefragmentationInput {
        request: Some("now".into()),
        ..unknown
    };
    assert_eq!(said(&requested), "Begin etcd-2");
}

#[test]
fn a_member_that_may_not_go_does_not_hold_up_the_other_followers() {
    let full = of_member(2, |m| m.room = Some(0));
    assert_eq!(first(&cluster(3), &full), "Grant etcd-1");
}

fn no_space(observation: &mut Observation, n: u64) {
    let alarm = Alarm {
        member: MemberId(n + 1),
        kind: AlarmKind::NoSpace,
    };
    for probe in &mut observation.round.probes {
        probe.status.as_mut().unwrap().alarms.push(alarm);
    }
}

#[test]
fn nospace_is_urgent_and_is_disarmed_when_all_have_room() {
    let mut full = cluster(3);
    for n in 0..3 {
        sized(&mut full, n, 8 * GIB, 7 * GIB);
    }
    sized(&mut full, 1, 8 * GIB, 6 * GIB);
    no_space(&mut full, 1);
    let closed = with(|f| f.in_window = false);
    let Next::Act(Step::Grant { pod, due }) = ask(&full, &Grants::default(), &closed) else {
        panic!("NOSPACE waits for no window");
    };
    assert_eq!((pod.name.as_str(), due.slug()), ("etcd-1", "NoSpace"));
    let decide =
        |o: &Observation, input: &DefragmentationInput| disarm(&Snapshot::assemble(o), input);
    assert!(matches!(
        decide(&full, &input()),
        Disarm::AfterDefragmentation { .. }
    ));
    let mut room = full.clone();
    for n in 0..3 {
        sized(&mut room, n, 7 * GIB, 6 * GIB);
    }
    assert_eq!(decide(&room, &input()), Disarm::Disarm(vec![MemberId(2)]));
    let report = with(|f| f.settings.mode = Mode::Report);
    assert_eq!(decide(&room, &report), Disarm::ReportOnly);
    let mut druid = with(|f| f.other_schedule = Some("0 0 */3 * *".into()));
    assert_eq!(decide(&room, &druid), Disarm::ReportOnly);
    druid.request = Some("now".into());
    assert_eq!(decide(&room, &druid), Disarm::Disarm(vec![MemberId(2)]));
    assert_eq!(decide(&cluster(3), &input()), Disarm::NoAlarm);
    silent(&mut room, 0);
    assert!(matches!(decide(&room, &input()), Disarm::Unknown { .. }));
}

/// The alarm is disarmed when all have room, so all that have none are due, whoever raised it.
#[test]
fn whoever_holds_up_a_nospace_alarm_is_due_by_it() {
    let mut full = cluster(3);
    for n in 0..3 {
        sized(&mut full, n, 8 * GIB, 7 * GIB);
    }
    no_space(&mut full, 1);
    // The one that raised it has been defragmented.
    sized(&mut full, 1, 7 * GIB, 7 * GIB);
    let pressed = |f: &mut DefragmentationInput| {
        f.in_window = false;
        f.settings.quota_pressure = 100;
    };
    let Next::Act(Step::Grant { due, .. }) = ask(&full, &Grants::default(), &with(pressed)) else {
        panic!("the alarm stands for ever");
    };
    assert_eq!(due.slug(), "NoSpace");
    let mut quiet = cluster(3);
    for n in 0..3 {
        sized(&mut quiet, n, 8 * GIB, 7 * GIB);
    }
    assert_eq!(first(&quiet, &with(pressed)), "nothing");
}

#[test]
fn nospace_with_nothing_to_reclaim_is_told_and_not_defragmented() {
    let mut full = cluster(3);
    for n in 0..3 {
        sized(&mut full, n, 8 * GIB, 8 * GIB - (1 << 20));
    }
    no_space(&mut full, 1);
    assert_eq!(first(&full, &input()), "nothing");
    let stuck = disarm(&Snapshot::assemble(&full), &input());
    let percent = 99;
    let member = "etcd-0".into();
    assert_eq!(stuck, Disarm::NothingToReclaim { member, percent });
}

proptest! {
    /// A run begins and a call is made only while every voter serves and no other member has a
    /// grant, whatever is observed, and a call is made once.
    #[test]
    fn a_call_is_made_only_while_everybody_else_serves(
        voters in 1_u32..6,
        down in prop::option::of(0_usize..5),
        granted_to in prop::option::of(0_u32..5),
        mine in any::<bool>(),
        call in prop_oneof![
            Just(Call::NotMade),
            Just(Call::Running),
            any::<bool>().prop_map(|done| Call::Returned { done })
        ],
        in_flight in prop::option::of(any::<bool>()),
    ) {
        let mut observation = cluster(voters);
        if let Some(n) = down.filter(|n| *n < voters as usize) {
            silent(&mut observation, n);
        }
        let holder = if mine { ME } else { "another" };
        let granted_to = granted_to.filter(|n| *n < voters);
        let grants = granted_to.map_or_else(Grants::default, |n| granted(n, holder));
        let mut input = of_member(granted_to.unwrap_or(0), |m| m.in_flight = in_flight);
        input.call = call;
        let snapshot = Snapshot::assemble(&observation);
        let next = next(&snapshot, &grants, &input);
        if let Next::Act(Step::Grant { pod, .. } | Step::Begin { pod }) = &next {
            let serving = snapshot.serving(&Grants::default(), None);
            prop_assert_eq!(serving, voters);
            prop_assert!(grants.iter().all(|(other, _)| *other == pod.name));
            prop_assert_ne!(in_flight, Some(true));
        }
        if let Next::Act(Step::Begin { .. }) = next {
            prop_assert!(mine && granted_to.is_some());
            prop_assert_eq!(call, Call::NotMade);
        }
    }
}

/// Events around a run.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The process looks and carries out the next step.
    Step,
    /// The server is done with what is in flight.
    Done,
    /// The client gives up. The server goes on.
    GivesUp,
    /// The process ends, and another one takes its place.
    Crash,
    /// The timeout and the settle time pass.
    Wait,
    /// The metrics become readable, or cease to be.
    Metrics,
}

/// A cluster of three, and the process that defragments it.
struct World {
    observation: Observation,
    grants: Grants,
    input: DefragmentationInput,
    in_flight: Vec<usize>,
    readable: bool,
    processes: u32,
    calls: u32,
}

impl World {
    fn new() -> Self {
        Self {
            observation: cluster(3),
            grants: Grants::default(),
            input: input(),
            in_flight: Vec::new(),
            readable: true,
            processes: 1,
            calls: 0,
        }
    }

    fn look(&mut self) -> Snapshot {
        let mut seen = self.observation.clone();
        for n in 0..3 {
            let blocked = self.in_flight.contains(&n);
            if blocked {
                silent(&mut seen, n);
            }
            let own = self.input.members.get_mut(&pod(u32::try_from(n).unwrap()));
            own.unwrap().in_flight = self.readable.then_some(blocked);
        }
        if let Some(led) = self.in_flight.iter().find(|n| self.leads(**n)) {
            // A leader that defragments stalls the cluster.
            panic!("etcd-{led} leads");
        }
        Snapshot::assemble(&seen)
    }

    fn leads(&self, n: usize) -> bool {
        let status = self.observation.round.probes[n].status.as_ref().unwrap();
        status.leader == Some(status.member_id)
    }

    fn happen(&mut self, event: Event) {
        let snapshot = self.look();
        match event {
            Event::Step => self.carry_out(next(&snapshot, &self.grants, &self.input)),
            Event::Done => {
                for n in std::mem::take(&mut self.in_flight) {
                    sized(&mut self.observation, n, GIB, GIB);
                }
                if self.input.call == Call::Running {
                    self.input.call = Call::Returned { done: true };
                }
            }
            Event::GivesUp if self.input.call == Call::Running => {
                self.input.call = Call::Returned { done: false };
            }
            Event::GivesUp => {}
            Event::Crash => {
                self.input.me = format!("gate-0/{}", self.processes);
                self.processes += 1;
                self.input.call = Call::NotMade;
            }
            Event::Wait => self.settle_by_age(&snapshot),
            Event::Metrics => self.readable = !self.readable,
        }
    }

    fn carry_out(&mut self, next: Next) {
        let Next::Act(step) = next else { return };
        match step {
            Step::Grant { pod, .. } => {
                self.input.call = Call::NotMade;
                self.issue(&pod.name);
            }
            Step::MoveLeader { to, .. } => {
                for probe in &mut self.observation.round.probes {
                    probe.status.as_mut().unwrap().leader = Some(to);
                }
            }
            Step::Begin { pod } => {
                self.issue(&pod.name);
                self.calls += 1;
                self.input.call = Call::Running;
                assert_eq!(self.in_flight, [], "a second defragmentation");
                self.in_flight.push(pod.name.as_str()[5..].parse().unwrap());
            }
            Step::Settle { pod } | Step::GiveUp { pod, .. } => {
                self.grants = self.grants.settle(&pod, self.grants.last_seq()).unwrap();
                self.input.call = Call::NotMade;
            }
        }
    }

    fn issue(&mut self, pod: &PodName) {
        let holder = self.input.me.clone();
        let permitted = GrantKind::Defragment {
            holder,
            timeout_seconds: 900,
        };
        self.grants = self
            .grants
            .issue(pod, permitted, String::new(), String::new());
    }

    fn settle_by_age(&mut self, snapshot: &Snapshot) {
        let open: Vec<_> = self
            .grants
            .iter()
            .map(|(p, g)| (p.clone(), g.clone()))
            .collect();
        for (pod, grant) in open {
            let cause = &grant.causes[0];
            let GrantKind::Defragment { holder, .. } = &cause.what else {
                continue;
            };
            let seen = CauseState::Defragmentation(progress(snapshot, &pod, holder, &self.input));
            let (age, settle) = (Duration::from_secs(1_020), Duration::from_secs(120));
            if seen == CauseState::Defragmentation(DefragmentationProgress::NotMine)
                && settlement(cause, seen, age, settle) != Settlement::Keep
            {
                self.grants = self.grants.settle(&pod, cause.seq).unwrap();
            }
        }
    }
}

proptest! {
    /// A run goes on after any crash, never has two defragmentations in flight, never begins one
    /// on a leader, and ends with every member defragmented.
    #[test]
    fn a_run_is_resumed_after_any_crash(
        events in prop::collection::vec(
            prop_oneof![
                6 => Just(Event::Step),
                2 => Just(Event::Done),
                1 => Just(Event::GivesUp),
                1 => Just(Event::Crash),
                1 => Just(Event::Wait),
                1 => Just(Event::Metrics),
            ],
            0..60
        )
    ) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
        }
        world.readable = true;
        for _ in 0..30 {
            for event in [Event::Step, Event::Done, Event::Wait] {
                world.happen(event);
            }
        }
        let snapshot = world.look();
        prop_assert_eq!(next(&snapshot, &world.grants, &world.input), Next::Nothing);
        prop_assert_eq!(&world.grants.iter().count(), &0);
        prop_assert!(world.calls >= 3);
    }
}
