//! Step 4: one outdated member that serves goes.
//!
//! Followers go before the leader. Among followers, those whose pods are not Ready go first, then
//! those that are furthest behind.

use std::cmp::Reverse;

use super::board::Board;
use super::desired::Removal;
use super::next::{Next, Steps};
use super::slot::{Granted, Slot};
use super::state::State;
use super::step::{Action, Because, Part, Step};
use super::waiting::WaitingOn;

/// The rank of a member. All members of one rank go before any of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Preference {
    /// Whether the member's step is new. A step that has its grant already comes before every new
    /// one.
    fresh: bool,
    /// Whether the member's other containers are healthy. Only `sidecarFirst` reads it: unhealthy
    /// ones come first.
    sound: bool,
    part: Part,
}

impl<'a> Board<'a> {
    /// The step that takes an outdated serving member, or the reason to wait. `None` if there is no
    /// such member.
    pub(super) fn take_serving(&self) -> Option<Next> {
        let candidates = self.serving();
        let preference = self.preference(candidates.first()?);
        let mut refused: Option<Box<WaitingOn>> = None;
        for slot in candidates {
            if self.preference(slot) != preference && !blocked_by(slot, refused.as_deref()) {
                break;
            }
            let out = self.out(Some(&slot.name));
            if !out.has_room() {
                refused = refused.or_else(|| Some(self.waiting().into()));
                continue;
            }
            match (self.take(slot), self.needed_by_clients(slot, out)) {
                (Ok(step), None) => return Some(Next::Act(Steps::one(step))),
                (Ok(_), Some(waiting)) => refused = refused.or_else(|| Some(waiting.into())),
                (Err(waiting), _) => refused = refused.or(Some(waiting)),
            }
        }
        refused.map(|waiting| Next::Wait(*waiting))
    }

    /// The outdated members that serve, in the order in which they go.
    pub(super) fn serving(&self) -> Vec<&Slot<'a>> {
        let mut slots: Vec<&Slot<'a>> = self
            .slots
            .iter()
            .filter(|slot| slot.is_open() && slot.state == State::Serving)
            .collect();
        slots.sort_by_key(|slot| {
            (
                self.preference(slot),
                slot.is_ready(),
                Reverse(slot.lag()),
                Reverse(slot.ordinal),
            )
        });
        slots
    }

    /// The step that takes this serving member, or the reason why it would be refused.
    pub(super) fn take(&self, slot: &Slot<'_>) -> Result<Step, Box<WaitingOn>> {
        let removal = match self.desired.removal {
            Removal::EvictHealthy if !slot.has_sick_sidecar() => Action::Evict,
            Removal::EvictHealthy | Removal::Delete => Action::Delete,
        };
        let pod = self.may_take(slot, self.grants, removal)?;
        let action = self.handing_over(slot, self.grants, removal)?;
        Ok(Step {
            pod,
            action,
            because: self.reason(slot),
        })
    }

    fn preference(&self, slot: &Slot<'_>) -> Preference {
        Preference {
            fresh: slot.grant != Granted::ToRollout,
            sound: !(self.desired.sidecar_first && slot.has_sick_sidecar()),
            part: part(slot),
        }
    }

    fn reason(&self, slot: &Slot<'_>) -> Because {
        if self.desired.sidecar_first && slot.has_sick_sidecar() {
            Because::SidecarFirst(part(slot))
        } else {
            Because::Serving(part(slot))
        }
    }
}

/// Whether this is the member that the members before it wait for. Under `OrderedReady` a pod that
/// is not Ready keeps the pods above it from being created again, and possibly only its update
/// mends it.
fn blocked_by(slot: &Slot<'_>, refused: Option<&WaitingOn>) -> bool {
    matches!(refused, Some(WaitingOn::LowerOrdinal { lower, .. }) if lower.pod == slot.name)
}

fn part(slot: &Slot<'_>) -> Part {
    if slot.leads() {
        Part::Leader
    } else {
        Part::Follower
    }
}
