//! Step 3: before a serving member goes, enough of the members that went before it serve again.

use super::max_unavailable::Unavailability;
use super::ordinal_state::{OrdinalState, Revision};
use super::rollout_state::{RolloutState, count};
use super::state::State;
use super::waiting::WaitingOn;
use crate::quorum::{EvidenceMode, Membership};

impl RolloutState<'_> {
    /// The reason why no serving member may go, whatever `maxUnavailable` says: an updated member
    /// takes too long to serve or has not served for long enough, or a new member has to join
    /// first.
    pub(super) fn held(&self) -> Option<WaitingOn> {
        self.overdue()
            .or_else(|| self.learner())
            .or_else(|| self.joining())
            .or_else(|| self.soaking())
    }

    /// The reason to wait while no step is possible. The order of the checks decides which one is
    /// named.
    pub(super) fn waiting(&self) -> WaitingOn {
        if let Some(held) = self.held() {
            return held;
        }
        let out = self.out(None);
        let pods = self.in_state(|ordinal_state| ordinal_state.state == State::Missing);
        if !pods.is_empty() {
            return WaitingOn::MissingPods { pods, out };
        }
        let pods = self.in_flight(None);
        if !pods.is_empty() {
            return WaitingOn::InFlight { pods, out };
        }
        let members = self.in_state(|ordinal_state| {
            ordinal_state.revision == Revision::Outdated
                && matches!(ordinal_state.state, State::Unknown(_))
        });
        if !members.is_empty() {
            return WaitingOn::Evidence { members, out };
        }
        let members = self.in_state(OrdinalState::is_out);
        WaitingOn::UpdatedMembers { members, out }
    }

    /// The updated members that have to be Ready before this one goes, because clients that use a
    /// Service reach this one and not them. A member that such clients do not reach either may go.
    pub(super) fn needed_by_clients(
        &self,
        ordinal_state: &OrdinalState<'_>,
        out: Unavailability,
    ) -> Option<WaitingOn> {
        if !ordinal_state.is_ready() {
            return None;
        }
        let unready = self.unready();
        let out = Unavailability {
            out: out.out.saturating_add(count(unready.len())),
            ..out
        };
        let deadline = self.snapshot.policy.progress_deadline;
        (!out.has_room()).then(|| WaitingOn::Unready {
            pods: unready
                .iter()
                .map(|ordinal_state| ordinal_state.name.clone())
                .collect(),
            out,
            overdue: unready.iter().any(|ordinal_state| {
                ordinal_state.pod.and_then(|pod| pod.up_for) >= Some(deadline)
            }),
        })
    }

    /// An updated member that has not served for the progress deadline, or a pod that has been
    /// missing for as long.
    fn overdue(&self) -> Option<WaitingOn> {
        let deadline = self.snapshot.policy.progress_deadline;
        let late = self
            .slots
            .iter()
            .filter(|ordinal_state| ordinal_state.should_serve_updated())
            .filter_map(|ordinal_state| {
                Some((
                    self.desired.out_for.get(&ordinal_state.name)?,
                    ordinal_state,
                ))
            })
            .filter(|(waited, _)| **waited >= deadline)
            .max_by_key(|(waited, ordinal_state)| {
                (**waited, std::cmp::Reverse(ordinal_state.ordinal))
            });
        late.map(|(waited, ordinal_state)| WaitingOn::Overdue {
            member: ordinal_state.absent(),
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

    /// The updated member that has served for the shortest time, where that is less than the soak
    /// time. A process that ends, or a pod that is not Ready in between, begins anew.
    fn soaking(&self) -> Option<WaitingOn> {
        let soak = self.desired.soak;
        let updated = self.slots.iter().filter(|ordinal_state| {
            ordinal_state.revision == Revision::Updated && ordinal_state.state == State::Serving
        });
        let told = updated.filter_map(|ordinal_state| {
            let served_for = ordinal_state.served_for()?;
            Some((served_for, ordinal_state))
        });
        let (served_for, latest) = told.min_by_key(|(served_for, _)| *served_for)?;
        (served_for < soak).then(|| WaitingOn::Soaking {
            pod: latest.name.clone(),
            served_for,
            soak,
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
        let members =
            self.in_state(|ordinal_state| ordinal_state.state.is_joining(ordinal_state.role()));
        let replicas = self.snapshot.replicas;
        (voters < replicas && !members.is_empty()).then_some(WaitingOn::Joining {
            members,
            voters,
            replicas,
        })
    }
}
