use super::*;
use crate::reconcile::report::headline;
use crate::reconcile::rollout::tests::step;

fn at(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(seconds).unwrap())
}

fn paused() -> WaitingOn {
    WaitingOn::Paused(Progress {
        updated: 1,
        targets: 3,
    })
}

/// `None`: the rollout is complete.
fn scene(waiting: Option<WaitingOn>, now: i64, updated: u32) -> RolloutReport {
    RolloutReport {
        target: Some("etcd-2".to_owned()),
        progress: Some(Progress {
            updated,
            targets: 3,
        }),
        done: waiting.is_none(),
        waiting,
        made: None,
        ignored: None,
        generation: Some(4),
        now: at(now),
    }
}

fn progressing(status: &QuorumDisruptionBudgetStatus) -> (String, String) {
    let condition = &status.conditions[0];
    (condition.status.clone(), condition.reason.clone())
}

#[test]
fn a_rollout_begins_waits_steps_and_ends() {
    let mut status = QuorumDisruptionBudgetStatus::default();
    let waits = || Some(WaitingOn::Revision);
    scene(waits(), 10, 0).show(&mut status);
    let rollout = status.rollout.clone().unwrap();
    assert_eq!(rollout.start_time, Some(at(10)));
    assert_eq!(rollout.waiting_on.unwrap().start_time, Some(at(10)));

    // A wait that lasts keeps its start time.
    scene(waits(), 12, 0).show(&mut status);
    let waiting = status.rollout.clone().unwrap().waiting_on.unwrap();
    assert_eq!(
        (waiting.reason.as_str(), waiting.start_time),
        ("Revision", Some(at(10)))
    );

    let made = RolloutReport {
        made: Some(step("u1")),
        done: false,
        ..scene(None, 13, 1)
    };
    made.show(&mut status);
    let rollout = status.rollout.clone().unwrap();
    assert_eq!(rollout.waiting_on, None);
    assert_eq!(rollout.last_step.unwrap().pod, "etcd-1");

    scene(None, 20, 3).show(&mut status);
    let rollout = status.rollout.clone().unwrap();
    assert_eq!(
        (rollout.start_time, rollout.completion_time),
        (Some(at(10)), Some(at(20)))
    );
    assert_eq!(rollout.last_step.unwrap().pod, "etcd-1");
    assert_eq!(progressing(&status), ("True".into(), "Complete".into()));
    scene(None, 30, 3).show(&mut status);
    assert_eq!(status.rollout.unwrap().completion_time, Some(at(20)));
}

#[test]
fn another_template_begins_another_rollout() {
    let mut status = QuorumDisruptionBudgetStatus::default();
    scene(None, 20, 3).show(&mut status);
    let other = RolloutReport {
        target: Some("etcd-3".to_owned()),
        ..scene(Some(WaitingOn::Revision), 40, 0)
    };
    other.show(&mut status);
    let rollout = status.rollout.unwrap();
    assert_eq!(rollout.start_time, Some(at(40)));
    assert_eq!(rollout.completion_time, None);
}

#[test]
fn progressing_is_unknown_while_paused_and_says_so() {
    let mut status = QuorumDisruptionBudgetStatus::default();
    scene(Some(paused()), 10, 1).show(&mut status);
    assert_eq!(progressing(&status), ("Unknown".into(), "Paused".into()));
}

#[test]
fn a_step_that_cannot_be_carried_out_makes_no_progress_and_says_why() {
    let mut status = QuorumDisruptionBudgetStatus::default();
    let failed = WaitingOn::Failed {
        pod: "etcd-1".into(),
        because: "pods \"etcd-1\" is forbidden".into(),
    };
    scene(Some(failed), 10, 1).show(&mut status);
    assert_eq!(progressing(&status), ("False".into(), "Failed".into()));
    let waiting = status.rollout.unwrap().waiting_on.unwrap();
    assert!(waiting.message.contains("is forbidden"), "{waiting:?}");
}

#[test]
fn words_alone_are_no_news() {
    let mut before = QuorumDisruptionBudgetStatus::default();
    scene(Some(paused()), 10, 1).show(&mut before);
    let mut after = before.clone();
    let waiting = after.rollout.as_mut().unwrap().waiting_on.as_mut();
    waiting.unwrap().message = "else".into();
    assert!(headline(&before) == headline(&after));
    after.rollout.as_mut().unwrap().updated = 2;
    assert!(headline(&before) != headline(&after));
}

/// Otherwise `kubectl get qdb` would show the count for the last revision.
#[test]
fn a_rollout_that_begins_counts_its_own_pods_at_once_and_leaves_them_to_the_observer_then() {
    let next = || Some(WaitingOn::Revision);
    let mut status = QuorumDisruptionBudgetStatus {
        updated_members: Some(3),
        ..QuorumDisruptionBudgetStatus::default()
    };
    scene(next(), 10, 0).show(&mut status);
    assert_eq!(status.updated_members, Some(0));
    scene(next(), 12, 1).show(&mut status);
    assert_eq!(status.updated_members, Some(0));
}

#[test]
fn a_permission_that_has_no_effect_is_told_wherever_the_rollout_waits() {
    let ignored = Ignored::NoObstacle;
    for waiting in [WaitingOn::Revision, paused()] {
        let plain = waiting.to_string();
        let mut status = QuorumDisruptionBudgetStatus::default();
        let with = RolloutReport {
            ignored: Some(ignored.clone()),
            ..scene(Some(waiting.clone()), 10, 0)
        };
        with.show(&mut status);
        let told = status.rollout.clone().unwrap().waiting_on.unwrap().message;
        assert_eq!(told, format!("{plain}; {ignored}"));
        assert_eq!(status.conditions[0].message, told);
        scene(Some(waiting), 10, 0).show(&mut status);
        assert_eq!(status.conditions[0].message, plain);
    }
    let mut status = QuorumDisruptionBudgetStatus::default();
    let done = RolloutReport {
        ignored: Some(ignored),
        ..scene(None, 10, 3)
    };
    done.show(&mut status);
    assert!(!status.conditions[0].message.contains("proceed"));
}
