use super::*;
use crate::plan::{Action, Because, Part};
use crate::quorum::TargetPod;

/// The delete of a follower, in this incarnation.
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
    // Those before it were made: their effect is to be seen.
    let some = Made::Step(step("u1")).or(Made::Failed);
    assert!(matches!(some.turn(None, &next), Turn::Stepped));
    let waiting = WaitingOn::Revision;
    let refused = Made::Nothing.turn(Some(&waiting), &next);
    assert!(matches!(refused, Turn::Waits(WaitingOn::Revision)));
    assert!(matches!(Made::Nothing.turn(None, &next), Turn::Rests));
}
