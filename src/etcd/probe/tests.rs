//! The order of questions, in real time with wide margins.

use std::cell::Cell;

use tokio::time::sleep;

use super::*;
use crate::quorum::evidence::Target;
use crate::quorum::{ClusterId, MemberId};

const ROUND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_millis(750);
const NEVER: Duration = Duration::from_secs(60);

/// The answers of one member, and how often its list was asked for.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    read: Result<(), Unanswered>,
    /// The number of the list that was kept, counted from 1.
    kept: Result<u64, Unanswered>,
    asked: u64,
}

async fn ask(
    (read_takes, answer): (Duration, Result<(), Unanswered>),
    list_takes: Duration,
) -> Outcome {
    let asked = Cell::new(0);
    let read = async {
        sleep(read_takes).await;
        answer
    };
    let list = || async {
        asked.set(asked.get() + 1);
        let members = listed(asked.get());
        sleep(list_takes).await;
        Ok(members)
    };
    let start = Instant::now();
    let limits = TimeLimits {
        halfway: start + ROUND / 2,
        deadline: start + ROUND,
    };
    let ReadAndList { read, members } = read_then_list(read, list, limits).await;
    let kept = members.map(|members| members[0].id.0);
    let asked = asked.get();
    Outcome { read, kept, asked }
}

fn listed(id: u64) -> Vec<ListedMember> {
    vec![ListedMember {
        id: MemberId(id),
        name: String::new(),
        learner: false,
        peer_urls: Vec::new(),
        client_urls: Vec::new(),
    }]
}

#[tokio::test]
async fn the_list_is_asked_for_after_the_read_passed() {
    let outcome = ask((SOON, Ok(())), SOON).await;
    let (read, kept, asked) = (Ok(()), Ok(1), 1);
    assert_eq!(outcome, Outcome { read, kept, asked });
}

#[tokio::test]
async fn a_list_asked_for_before_the_read_passed_is_not_kept() {
    let outcome = ask((LATE, Ok(())), SOON).await;
    let (read, kept, asked) = (Ok(()), Ok(2), 2);
    assert_eq!(outcome, Outcome { read, kept, asked });
}

#[tokio::test]
async fn where_no_time_is_left_after_a_late_read_there_is_no_list() {
    let outcome = ask((LATE, Ok(())), ROUND * 2 / 5).await;
    let (read, kept, asked) = (Ok(()), Err(Unanswered::Deadline), 2);
    assert_eq!(outcome, Outcome { read, kept, asked });
}

#[tokio::test]
async fn a_read_that_hangs_does_not_cost_the_list() {
    let outcome = ask((NEVER, Ok(())), SOON).await;
    let (read, kept, asked) = (Err(Unanswered::Deadline), Ok(1), 1);
    assert_eq!(outcome, Outcome { read, kept, asked });
}

#[tokio::test]
async fn a_read_that_fails_does_not_cost_the_list() {
    for when in [SOON, LATE] {
        let outcome = ask((when, Err(Unanswered::NoLeader)), SOON).await;
        let (read, kept, asked) = (Err(Unanswered::NoLeader), Ok(1), 1);
        assert_eq!(outcome, Outcome { read, kept, asked });
    }
}

fn probed(learner: bool, read: Result<(), Unanswered>) -> Probe {
    let status = Status {
        cluster_id: ClusterId(1),
        member_id: MemberId(1),
        leader: Some(MemberId(1)),
        term: 1,
        raft_index: 1,
        applied_index: 1,
        learner,
        alarms: Vec::new(),
        db_size: 1,
        db_size_in_use: 1,
        revision: 0,
        db_size_quota: None,
        version: "3.7.3".to_owned(),
    };
    Probe {
        target: Target::External(MemberId(1)),
        status: Ok(status),
        read,
        members: Ok(Vec::new()),
    }
}

fn silent(why: Unanswered) -> Probe {
    Probe::unanswered(Target::External(MemberId(1)), why)
}

#[test]
fn only_silence_and_passed_reads_tell_how_slow_a_cluster_is() {
    let of = |probe: &Probe| sample(probe, SOON);
    assert_eq!(of(&probed(false, Ok(()))), LatencySample::Passed(SOON));
    let hung = Err(Unanswered::Deadline);
    assert_eq!(of(&probed(false, hung)), LatencySample::TimedOut(SOON));
    assert_eq!(
        of(&silent(Unanswered::Deadline)),
        LatencySample::TimedOut(SOON)
    );
    assert_eq!(of(&silent(Unanswered::Refused)), LatencySample::Failed);
    let headless = Err(Unanswered::NoLeader);
    assert_eq!(of(&probed(false, headless)), LatencySample::Failed);
    let learner = Err(Unanswered::Learner);
    assert_eq!(of(&probed(true, learner)), LatencySample::Learner);
}
