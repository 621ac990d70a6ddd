use super::*;
use crate::plan::{Action, Because, Part};
use crate::quorum::{Reason, TargetPod};

/// A step that deletes a follower, in this incarnation.
pub(super) fn step(uid: &str) -> plan::Step {
    plan::Step {
        pod: TargetPod {
            name: "etcd-1".into(),
            uid: uid.into(),
        },
        action: Action::Delete,
        because: Because::Serving(Part::Follower),
    }
}

fn made<'s>(done: Option<&'s Step>, ended: Option<(&'s Step, Ended)>) -> Made<'s, Step> {
    Made { done, ended }
}

#[test]
fn a_turn_whose_step_failed_neither_waits_nor_rests() {
    let (first, second) = (Step::Go(step("u1")), Step::Go(step("u2")));
    let failed = || Some((&second, Ended::Failed("no".to_owned())));
    let next = Plan::Wait(Wait::Done);
    let waiting = waiting(&next, &made(None, failed()));
    assert!(matches!(waiting, Some(WaitingOn::Failed { .. })));
    let waiting = waiting.as_ref();
    assert!(matches!(
        outcome(&made(None, failed()), waiting),
        Outcome::Failed
    ));
    // Steps were made before, and their effect has to be seen.
    let some = made(Some(&first), failed());
    assert!(matches!(outcome(&some, waiting), Outcome::Stepped));
    assert!(matches!(outcome(&made(None, None), None), Outcome::Rests));
}

#[test]
fn a_turn_whose_step_was_refused_waits_for_the_permission() {
    let step = Step::Go(step("u1"));
    let refused = made(None, Some((&step, Ended::Refused(Reason::NoLedger))));
    let waiting = waiting(&Plan::Act(Vec::new()), &refused);
    let outcome = outcome(&refused, waiting.as_ref());
    assert!(matches!(
        outcome,
        Outcome::Waits(WaitingOn::Permission { .. })
    ));
}
