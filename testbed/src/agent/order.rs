//! The order of a pod's containers. Pure.

use super::status::Role;

/// The state of a container, as far as the order depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The container was never started in this sandbox.
    New,
    /// The container is being started.
    Launching,
    /// The container runs.
    Running {
        /// Whether the startup probe has succeeded, so that the next init container may start.
        started: bool,
    },
    /// The container ended with this code.
    Exited(i32),
}

/// The next action for a pod's containers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Start these containers, now or after their back-off.
    Start(Vec<usize>),
    /// None: an init container has failed and is not restarted, so the pod has failed.
    InitFailed,
    /// None: every main container has ended for good.
    Completed,
}

/// The next action. Init containers come first, as in the spec.
pub(super) fn next(containers: &[(Role, Progress)], restart_policy: &str) -> NextAction {
    let mains = || {
        containers
            .iter()
            .enumerate()
            .filter(|(_, (role, _))| *role == Role::Main)
    };
    let initialized = mains().any(|(_, (_, progress))| *progress != Progress::New);
    let mut start = Vec::new();
    for (index, (role, progress)) in containers.iter().enumerate() {
        let step = match role {
            Role::Main => break,
            Role::Sidecar => sidecar(*progress),
            Role::Init if initialized => Step::Go,
            Role::Init => init(*progress, restart_policy),
        };
        match step {
            Step::Go => {}
            Step::Fail => return NextAction::InitFailed,
            Step::Start | Step::Wait => {
                if step == Step::Start {
                    start.push(index);
                }
                if !initialized {
                    return NextAction::Start(start);
                }
            }
        }
    }
    let restarts = |code| match restart_policy {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    };
    let ended =
        |progress: &Progress| matches!(progress, Progress::Exited(code) if !restarts(*code));
    if mains().all(|(_, (_, progress))| ended(progress)) {
        return NextAction::Completed;
    }
    start.extend(mains().filter_map(|(index, (_, progress))| match progress {
        Progress::New => Some(index),
        Progress::Exited(code) if restarts(*code) => Some(index),
        Progress::Exited(_) | Progress::Launching | Progress::Running { .. } => None,
    }));
    NextAction::Start(start)
}

#[derive(PartialEq, Eq)]
enum Step {
    Go,
    Wait,
    Start,
    Fail,
}

fn sidecar(progress: Progress) -> Step {
    match progress {
        Progress::Running { started: true } => Step::Go,
        Progress::Running { started: false } | Progress::Launching => Step::Wait,
        Progress::New | Progress::Exited(_) => Step::Start,
    }
}

fn init(progress: Progress, restart_policy: &str) -> Step {
    match progress {
        Progress::Exited(0) => Step::Go,
        Progress::Exited(_) if restart_policy == "Never" => Step::Fail,
        Progress::New | Progress::Exited(_) => Step::Start,
        Progress::Launching | Progress::Running { .. } => Step::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Progress::{Exited, Launching, New, Running};
    use Role::{Init, Main, Sidecar};

    const UP: Progress = Running { started: true };
    const NONE: [usize; 0] = [];

    fn starts(containers: &[(Role, Progress)], policy: &str) -> Vec<usize> {
        match next(containers, policy) {
            NextAction::Start(list) => list,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn init_containers_run_one_after_another_before_the_others() {
        assert_eq!(
            starts(&[(Init, New), (Init, New), (Main, New)], "Always"),
            [0]
        );
        assert_eq!(
            starts(&[(Init, UP), (Init, New), (Main, New)], "Always"),
            NONE
        );
        assert_eq!(
            starts(&[(Init, Exited(0)), (Init, New), (Main, New)], "Always"),
            [1]
        );
        assert_eq!(
            starts(&[(Init, Exited(0)), (Main, New), (Main, New)], "Always"),
            [1, 2]
        );
    }

    #[test]
    fn a_failed_init_container_is_retried_or_fails_the_pod() {
        assert_eq!(starts(&[(Init, Exited(1)), (Main, New)], "OnFailure"), [0]);
        assert_eq!(
            next(&[(Init, Exited(1)), (Main, New)], "Never"),
            NextAction::InitFailed
        );
    }

    #[test]
    fn a_sidecar_lets_the_next_one_go_once_it_has_started() {
        let not_yet = Running { started: false };
        assert_eq!(starts(&[(Sidecar, not_yet), (Main, New)], "Always"), NONE);
        assert_eq!(starts(&[(Sidecar, UP), (Main, New)], "Always"), [1]);
    }

    #[test]
    fn a_sidecar_that_ends_is_restarted_whatever_the_policy_is() {
        assert_eq!(starts(&[(Sidecar, Exited(0)), (Main, UP)], "Never"), [0]);
    }

    #[test]
    fn restart_policy_governs_main_containers() {
        let exits = [
            (Main, Exited(0)),
            (Main, Exited(1)),
            (Main, UP),
            (Main, Launching),
        ];
        assert_eq!(starts(&exits, "Always"), [0, 1]);
        assert_eq!(starts(&exits, "OnFailure"), [1]);
        assert_eq!(starts(&exits, "Never"), NONE);
    }

    #[test]
    fn a_pod_is_completed_when_nothing_will_run_again() {
        assert_eq!(
            next(&[(Sidecar, UP), (Main, Exited(0))], "OnFailure"),
            NextAction::Completed
        );
        assert_eq!(
            next(&[(Main, Exited(3)), (Main, Exited(0))], "Never"),
            NextAction::Completed
        );
    }
}
