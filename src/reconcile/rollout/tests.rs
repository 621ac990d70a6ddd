use tokio::time::Instant;

use super::*;
use crate::plan::{Action, Because, Part};
use crate::quorum::TargetPod;

/// A step that deletes a follower, in this incarnation.
pub(super) fn step(uid: &str) -> Step {
    Step {
        pod: TargetPod {
            name: "etcd-1".into(),
            uid: uid.into(),
        },
        action: Action::Delete,
        because: Because::Serving(Part::Follower),
    }
}

#[test]
fn a_turn_whose_step_failed_neither_waits_nor_rests() {
    let next = Next::Done;
    let failed = Made::Nothing.or(Made::Failed);
    assert!(matches!(failed.turn(None, &next), Turn::Failed));
    // Steps were made before, and their effect has to be seen.
    let some = Made::Step(step("u1")).or(Made::Failed);
    assert!(matches!(some.turn(None, &next), Turn::Stepped));
    let waiting = WaitingOn::Revision;
    let refused = Made::Nothing.turn(Some(&waiting), &next);
    assert!(matches!(refused, Turn::Waits(WaitingOn::Revision)));
    assert!(matches!(Made::Nothing.turn(None, &next), Turn::Rests));
}

/// The time in seconds for which a driver rests that is woken after one second.
async fn rested(pause: Pause, wake: bool, otherwise: bool) -> u64 {
    const AFTER: Duration = Duration::from_secs(1);
    let waker = Wake::default();
    let start = Instant::now();
    let event = async {
        tokio::time::sleep(AFTER).await;
        if wake {
            waker.rollout();
        }
    };
    let answer = async {
        tokio::time::sleep(AFTER).await;
        if !otherwise {
            std::future::pending::<()>().await;
        }
    };
    tokio::join!(rest_for(pause, &waker, answer), event);
    start.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_takes_a_turn_when_a_member_answers_otherwise_or_something_happens() {
    let longest = Pause::Attentive(RESYNC);
    assert_eq!(rested(longest, false, false).await, RESYNC.as_secs());
    assert_eq!(rested(longest, true, false).await, 1);
    assert_eq!(rested(longest, false, true).await, 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_for_people_or_failed_does_not_attend_to_members() {
    let paused = Pause::UntilWoken(RESYNC);
    assert_eq!(rested(paused, true, true).await, 1);
    assert_eq!(rested(paused, false, true).await, RESYNC.as_secs());
    let failed = Pause::Undisturbed(RESYNC);
    assert_eq!(rested(failed, true, true).await, RESYNC.as_secs());
}
