//! Under `RollingUpdate` the StatefulSet controller updates, from the highest ordinal down, and asks the gate like anyone. Where it is
//! refused for the sake of a broken member that it would only come to later, it asks for ever: then that member goes first.

use std::time::Duration;

use super::board::{Board, Revision, Slot};
use super::desired::{Desired, PodManagement};
use super::state::State;
use super::step::{Action, Because, Departure, Step, disruption};
use crate::quorum::{Actor, Disruption, Grants, Kind, Snapshot, Verdict, decide};

/// An updated member that has not served for so long needs more than time.
const NEEDS_MORE_THAN_TIME: Duration = Duration::from_secs(15);

/// The outdated member, dead or starting, to delete so that the StatefulSet controller can go on; `None` while it can by itself, or
/// waits for something that a delete does not mend.
pub fn unblock(snapshot: &Snapshot, grants: &Grants, desired: &Desired) -> Option<Step> {
    let board = Board::of(snapshot, grants, desired);
    let idle = board.not_begun().is_some() || board.is_done() || board.suspended().is_some();
    if idle || board.obstacle().is_some() || !board.controller_is_stuck() {
        return None;
    }
    let mut broken = board
        .non_serving()
        .into_iter()
        .filter(|s| s.state.is_down());
    broken.find_map(|slot| {
        let pod = board.may_take(slot, grants, Action::Delete).ok()?;
        Some(Step {
            pod,
            action: Action::Delete,
            because: Because::NonServing(slot.state.clone()),
        })
    })
}

impl Board<'_> {
    /// Whether the StatefulSet controller comes no further: it waits for an outdated member that is down, is refused the next one, or waits
    /// for an updated one that may be waiting for a majority itself.
    fn controller_is_stuck(&self) -> bool {
        if self.desired.management == PodManagement::OrderedReady
            && let Some(unready) = self.slots.iter().find(|slot| !slot.is_ready())
        {
            return unready.is_open() && unready.state.is_down();
        }
        for slot in self.slots.iter().rev() {
            match slot.revision {
                Revision::Updated if slot.is_ready() => {}
                Revision::Updated => return self.needs_others(slot),
                Revision::Outdated => return !self.controller_may_delete(slot),
                Revision::NoPod | Revision::Kept => return false,
            }
        }
        false
    }

    /// Whether it may take others for this one to serve: of a cluster whose template keeps it from forming, no updated member is ever Ready
    /// while the others have the old one.
    fn needs_others(&self, slot: &Slot<'_>) -> bool {
        let out_for = self.desired.out_for.get(&slot.name);
        let absent = matches!(slot.state, State::Serving | State::Terminating);
        !absent && out_for.is_some_and(|out_for| *out_for >= NEEDS_MORE_THAN_TIME)
    }

    fn controller_may_delete(&self, slot: &Slot<'_>) -> bool {
        let Some(target) = slot.target() else {
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
