//! Leadership moves before a leader goes, so that nobody has to elect one.

use super::board::{Board, Slot};
use super::desired::Handover;
use super::step::{Action, disruption};
use super::waiting::WaitingOn;
use crate::quorum::{EvidenceMode, Grants, leader_to_move};

impl Board<'_> {
    /// What is done to a pod that may go: a leader hands leadership over first, where somebody can take it.
    ///
    /// Without live evidence there is nobody to ask for it, and the leader's role may be an old one: it goes like the others, last.
    pub(super) fn handing_over(
        &self,
        slot: &Slot<'_>,
        grants: &Grants,
        otherwise: Action,
    ) -> Result<Action, Box<WaitingOn>> {
        let asked = self.snapshot.policy.evidence == EvidenceMode::Live;
        if !asked || !slot.leads() || slot.state.is_down() {
            return Ok(otherwise);
        }
        let to = slot.target().and_then(|target| {
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
                leader: slot.name.clone(),
                remaining,
            })),
        }
    }
}
