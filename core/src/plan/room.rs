//! Step 3: before a serving member goes, enough of the members that went before it serve again.

use super::board::{Board, count};
use super::max_unavailable::Unavailability;
use super::slot::{Revision, Slot};
use super::state::State;
use super::waiting::WaitingOn;
use crate::quorum::{EvidenceMode, Membership};

impl Board<'_> {
    /// The reason why no serving member may go, whatever `maxUnavailable` says: an updated member
    /// takes too long to serve, or a new member has to join first.
    pub(super) fn held(&self) -> Option<WaitingOn> {
        self.overdue()
            .or_else(|| self.learner())
            .or_else(|| self.joining())
    }

    /// The reason to wait while no step is possible. The order of the checks decides which one is
    /// named.
    pub(super) fn waiting(&self) -> WaitingOn {
        if let Some(held) = self.held() {
            return held;
        }
        let out = self.out(None);
        let pods = self.in_state(|slot| slot.state == State::Missing);
        if !pods.is_empty() {
            return WaitingOn::MissingPods { pods, out };
        }
        let pods = self.in_flight(None);
        if !pods.is_empty() {
            return WaitingOn::InFlight { pods, out };
        }
        let members = self.in_state(|slot| {
            slot.revision == Revision::Outdated && matches!(slot.state, State::Unknown(_))
        });
        if !members.is_empty() {
            return WaitingOn::Evidence { members, out };
        }
        let members = self.in_state(Slot::is_out);
        WaitingOn::UpdatedMembers { members, out }
    }

    /// The updated members that have to be Ready before this one goes, because clients that use a
    /// Service reach this one and not them. A member that such clients do not reach either may go.
    pub(super) fn needed_by_clients(
        &self,
        slot: &Slot<'_>,
        out: Unavailability,
    ) -> Option<WaitingOn> {
        if !slot.is_ready() {
            return None;
        }
        let unready = self.unready();
        let out = Unavailability {
            out: out.out.saturating_add(count(unready.len())),
            ..out
        };
        let deadline = self.snapshot.policy.progress_deadline;
        (!out.has_room()).then(|| WaitingOn::Unready {
            pods: unready.iter().map(|slot| slot.name.clone()).collect(),
            out,
            overdue: unready
                .iter()
                .any(|slot| slot.pod.and_then(|pod| pod.up_for) >= Some(deadline)),
        })
    }

    /// An updated member that has not served for the progress deadline, or a pod that has been
    /// missing for as long.
    fn overdue(&self) -> Option<WaitingOn> {
        let deadline = self.snapshot.policy.progress_deadline;
        let late = self
            .slots
            .iter()
            .filter(|slot| slot.should_serve_updated())
            .filter_map(|slot| Some((self.desired.out_for.get(&slot.name)?, slot)))
            .filter(|(waited, _)| **waited >= deadline)
            .max_by_key(|(waited, slot)| (**waited, std::cmp::Reverse(slot.ordinal)));
        late.map(|(waited, slot)| WaitingOn::Overdue {
            member: slot.absent(),
            waited: *waited,
            deadline,
        })
    }

    /// A learner that catches up, and so becomes a voter soon.
    fn learner(&self) -> Option<WaitingOn> {
        let learner = self.slots.iter().find(|s| s.state == State::Learning)?;
        Some(WaitingOn::Learner {
            pod: learner.name.clone(),
            lag: learner.member.and_then(|member| member.lag),
            stuck_for: learner
                .member
                .and_then(|member| self.snapshot.stuck_for(member))
                .unwrap_or_default(),
            deadline: self.snapshot.policy.progress_deadline,
        })
    }

    /// A scale-out: etcd lists fewer voters than `spec.replicas`, and some pods are about to become
    /// voters.
    fn joining(&self) -> Option<WaitingOn> {
        if self.snapshot.policy.evidence != EvidenceMode::Live {
            return None;
        }
        let Membership::Confirmed { voters } = self.snapshot.membership else {
            return None;
        };
        let members = self.in_state(|slot| slot.state.is_joining(slot.role()));
        let replicas = self.snapshot.replicas;
        (voters < replicas && !members.is_empty()).then_some(WaitingOn::Joining {
            members,
            voters,
            replicas,
        })
    }
}
