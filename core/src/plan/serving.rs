//! Step 4: one outdated member that serves goes.
//!
//! Followers go before the leader. Among followers, those whose pods are not Ready go first, then
//! those that are furthest behind.

use std::cmp::Reverse;

use super::desired::Removal;
use super::next::{Next, Steps};
use super::ordinal_state::{Granted, OrdinalState};
use super::rollout_state::RolloutState;
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

impl<'a> RolloutState<'a> {
    /// The step that takes an outdated serving member, or the reason to wait. `None` if there is no
    /// such member.
    pub(super) fn take_serving(&self) -> Option<Next> {
        let candidates = self.serving();
        let preference = self.preference(candidates.first()?);
        let mut refused: Option<Box<WaitingOn>> = None;
        for ordinal_state in candidates {
            if self.preference(ordinal_state) != preference
                && !blocked_by(ordinal_state, refused.as_deref())
            {
                break;
            }
            let out = self.out(Some(&ordinal_state.name));
            if !out.has_room() {
                refused = refused.or_else(|| Some(self.waiting().into()));
                continue;
            }
            match (
                self.take(ordinal_state),
                self.needed_by_clients(ordinal_state, out),
            ) {
                (Ok(step), None) => return Some(Next::Act(Steps::one(step))),
                (Ok(_), Some(waiting)) => refused = refused.or_else(|| Some(waiting.into())),
                (Err(waiting), _) => refused = refused.or(Some(waiting)),
            }
        }
        refused.map(|waiting| Next::Wait(*waiting))
    }

    /// The outdated members that serve, in the order in which they go.
    pub(super) fn serving(&self) -> Vec<&OrdinalState<'a>> {
        let mut slots: Vec<&OrdinalState<'a>> = self
            .slots
            .iter()
            .filter(|ordinal_state| {
                ordinal_state.is_open() && ordinal_state.state == State::Serving
            })
            .collect();
        slots.sort_by_key(|ordinal_state| {
            (
                self.preference(ordinal_state),
                ordinal_state.is_ready(),
                Reverse(ordinal_state.lag()),
                Reverse(ordinal_state.ordinal),
            )
        });
        slots
    }

    /// The step that takes this serving member, or the reason why it would be refused.
    pub(super) fn take(&self, ordinal_state: &OrdinalState<'_>) -> Result<Step, Box<WaitingOn>> {
        let removal = match self.desired.removal {
            Removal::EvictHealthy if !ordinal_state.has_sick_sidecar() => Action::Evict,
            Removal::EvictHealthy | Removal::Delete => Action::Delete,
        };
        let pod = self.may_take(ordinal_state, self.grants, removal)?;
        let action = self.handing_over(ordinal_state, self.grants, removal)?;
        Ok(Step {
            pod,
            action,
            because: self.reason(ordinal_state),
        })
    }

    fn preference(&self, ordinal_state: &OrdinalState<'_>) -> Preference {
        Preference {
            fresh: ordinal_state.grant != Granted::ToRollout,
            sound: !(self.desired.sidecar_first && ordinal_state.has_sick_sidecar()),
            part: part(ordinal_state),
        }
    }

    fn reason(&self, ordinal_state: &OrdinalState<'_>) -> Because {
        if self.desired.sidecar_first && ordinal_state.has_sick_sidecar() {
            Because::SidecarFirst(part(ordinal_state))
        } else {
            Because::Serving(part(ordinal_state))
        }
    }
}

/// Whether this is the member that the members before it wait for. Under `OrderedReady` a pod that
/// is not Ready keeps the pods above it from being created again, and possibly only its update
/// mends it.
fn blocked_by(ordinal_state: &OrdinalState<'_>, refused: Option<&WaitingOn>) -> bool {
    matches!(refused, Some(WaitingOn::LowerOrdinal { lower, .. }) if lower.pod == ordinal_state.name)
}

fn part(ordinal_state: &OrdinalState<'_>) -> Part {
    if ordinal_state.leads() {
        Part::Leader
    } else {
        Part::Follower
    }
}
