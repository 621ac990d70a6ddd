//! Help for the StatefulSet controller under `RollingUpdate`.
//!
//! That controller replaces pods itself, from the highest ordinal down, and asks the gate like
//! every asker. Where it is refused because of a broken lower member, which it would replace only
//! later, it repeats the same request for ever. Then the gate deletes the broken member.

use std::time::Duration;

use super::desired::{Desired, PodManagement};
use super::ordinal_state::{OrdinalState, Revision};
use super::rollout_state::RolloutState;
use super::state::State;
use super::step::{Action, Because, Departure, Step, disruption};
use crate::quorum::{Actor, Disruption, Grants, Kind, Snapshot, Verdict, decide};

/// The time after which an updated member that does not serve is taken to need more than time.
const NEEDS_MORE_THAN_TIME: Duration = Duration::from_secs(15);

/// The step that lets the StatefulSet controller go on: the delete of an outdated member that is
/// dead or starting. `None` while that controller can go on by itself, and where a delete would not
/// help.
pub fn unblock(snapshot: &Snapshot, grants: &Grants, desired: &Desired) -> Option<Step> {
    let rollout_state = RolloutState::new(snapshot, grants, desired);
    let idle = rollout_state.not_begun().is_some()
        || rollout_state.is_done()
        || rollout_state.suspended().is_some();
    if idle || rollout_state.obstacle().is_some() || !rollout_state.controller_is_stuck() {
        return None;
    }
    let mut broken = rollout_state
        .non_serving()
        .into_iter()
        .filter(|s| s.state.is_down());
    broken.find_map(|ordinal_state| {
        let pod = rollout_state
            .may_take(ordinal_state, grants, Action::Delete)
            .ok()?;
        Some(Step {
            pod,
            action: Action::Delete,
            because: Because::NonServing(ordinal_state.state.clone()),
        })
    })
}

impl RolloutState<'_> {
    /// Whether the StatefulSet controller can go no further. It waits for an outdated member that
    /// is down, or is refused the next pod, or waits for an updated member that cannot serve
    /// without the others.
    fn controller_is_stuck(&self) -> bool {
        if self.desired.management == PodManagement::OrderedReady
            && let Some(unready) = self
                .slots
                .iter()
                .find(|ordinal_state| !ordinal_state.is_ready())
        {
            return unready.is_open() && unready.state.is_down();
        }
        for ordinal_state in self.slots.iter().rev() {
            match ordinal_state.revision {
                Revision::Updated if ordinal_state.is_ready() => {}
                Revision::Updated => return self.needs_others(ordinal_state),
                Revision::Outdated => return !self.controller_may_delete(ordinal_state),
                Revision::NoPod | Revision::Kept => return false,
            }
        }
        false
    }

    /// Whether the updated member may need the others to be updated before it can serve. That is so
    /// where the old template keeps the cluster from forming: a single updated member has no
    /// majority.
    fn needs_others(&self, ordinal_state: &OrdinalState<'_>) -> bool {
        let out_for = self.desired.out_for.get(&ordinal_state.name);
        let absent = matches!(ordinal_state.state, State::Serving | State::Terminating);
        !absent && out_for.is_some_and(|out_for| *out_for >= NEEDS_MORE_THAN_TIME)
    }

    fn controller_may_delete(&self, ordinal_state: &OrdinalState<'_>) -> bool {
        let Some(target) = ordinal_state.target() else {
            return false;
        };
        let asked = Disruption {
            kind: Kind::Delete,
            actor: Actor::Stranger,
            ..disruption(target, Departure::Delete)
        };
        matches!(
            decide(self.snapshot, self.grants, &asked),
            Verdict::Allow(_)
        )
    }
}
