//! Leadership moves before a leader goes, so that no election is needed.

use super::desired::Handover;
use super::ordinal_state::OrdinalState;
use super::rollout_state::RolloutState;
use super::step::{Action, disruption};
use super::waiting::WaitingOn;
use crate::quorum::{EvidenceMode, Grants, leader_to_move};

impl RolloutState<'_> {
    /// The action for a pod that may go. A leader hands leadership over first, if another member
    /// can take it; `otherwise` is the action for all others.
    ///
    /// Without live evidence leadership is not moved. There is no endpoint to ask, and the leader
    /// that the Lease names may be out of date. Such a leader goes last, like a follower.
    pub(super) fn handing_over(
        &self,
        ordinal_state: &OrdinalState<'_>,
        grants: &Grants,
        otherwise: Action,
    ) -> Result<Action, Box<WaitingOn>> {
        let asked = self.snapshot.policy.evidence == EvidenceMode::Live;
        if !asked || !ordinal_state.leads() || ordinal_state.state.is_down() {
            return Ok(otherwise);
        }
        let to = ordinal_state.target().and_then(|target| {
            leader_to_move(
                self.snapshot,
                grants,
                &disruption(target, otherwise.departure()),
            )
        });
        match (to, self.desired.handover) {
            (None, _) | (Some(_), Handover::Refused) => Ok(otherwise),
            (Some(to), Handover::Possible) => Ok(Action::MoveLeader {
                to,
                then: otherwise.departure(),
            }),
            (Some(_), Handover::Resting { remaining }) => Err(Box::new(WaitingOn::Leadership {
                leader: ordinal_state.name.clone(),
                remaining,
            })),
        }
    }
}
