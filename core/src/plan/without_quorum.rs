//! The procedure for a change that keeps updated and outdated members apart (see [`Obstacle`]).
//!
//! The rollout waits until the owner lets exactly this revision go on without quorum. Then it
//! replaces one member after the other.

use super::desired::Desired;
use super::desired::Obstacle;
use super::next::{Next, Steps};
use super::ordinal_state::{Granted, OrdinalState, Revision};
use super::rollout_state::RolloutState;
use super::state::State;
use super::step::{Because, Step};
use super::waiting::WaitingOn;
use crate::quorum::{Grants, Snapshot};

/// The reason why the owner's permission to go on without quorum has no effect. `Display` is a
/// sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
pub enum Ignored {
    /// The permission is for another revision.
    #[display(
        "quorumgate.io/proceed-without-quorum is set and has no effect: it names {named}, and the update revision is {revision}"
    )]
    OtherRevision {
        /// The revision that the annotation names.
        named: String,
        /// The update revision.
        revision: String,
    },
    /// Updated and outdated members form a quorum together, so that none has to be given up.
    #[display(
        "quorumgate.io/proceed-without-quorum is set and has no effect: this change can be rolled one by one, so no quorum is given up for it"
    )]
    NoObstacle,
}

/// Why the permission for the revision `named` has no effect on the rollout. `None` where it has
/// one, and while the update revision is not known.
pub fn ignored(named: &str, snapshot: &Snapshot, desired: &Desired) -> Option<Ignored> {
    let revision = snapshot.update_revision.as_ref()?;
    if revision != named {
        return Some(Ignored::OtherRevision {
            named: named.to_owned(),
            revision: revision.clone(),
        });
    }
    let grants = Grants::default();
    let rollout_state = RolloutState::new(snapshot, &grants, desired);
    rollout_state
        .obstacle()
        .is_none()
        .then_some(Ignored::NoObstacle)
}

impl RolloutState<'_> {
    /// The obstacle, if there is more than one member.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        self.desired.obstacle.filter(|_| self.snapshot.replicas > 1)
    }

    /// The next step without quorum. A member goes only while all others have a pod and the updated
    /// ones run. The updated ones need not serve: they cannot before they are a majority.
    pub(super) fn proceed_without_quorum(&self, obstacle: Obstacle) -> Next {
        let revision = self.snapshot.update_revision.clone().unwrap_or_default();
        if self.snapshot.proceed_without_quorum.as_ref() != Some(&revision) {
            return Next::Wait(WaitingOn::Obstacle { obstacle, revision });
        }
        let candidates = self.non_serving().into_iter().chain(self.serving());
        let mut refused: Option<Box<WaitingOn>> = None;
        for ordinal_state in candidates {
            match self.only(ordinal_state) {
                Ok(step) => return Next::Act(Steps::one(step)),
                Err(waiting) => refused = refused.or(Some(waiting)),
            }
        }
        Next::Wait(refused.map_or_else(|| self.waiting(), |waiting| *waiting))
    }

    fn only(&self, ordinal_state: &OrdinalState<'_>) -> Result<Step, Box<WaitingOn>> {
        if let Some(waiting) = self.busy_without(ordinal_state) {
            return Err(waiting.into());
        }
        let mut step = self.take(ordinal_state)?;
        if ordinal_state.state != State::Serving {
            step.because = Because::NonServing(ordinal_state.state.clone());
        }
        Ok(step)
    }

    /// The unfinished business of the step before.
    fn busy_without(&self, aside: &OrdinalState<'_>) -> Option<WaitingOn> {
        let others = || {
            self.slots
                .iter()
                .filter(|ordinal_state| ordinal_state.name != aside.name)
        };
        let absent = |wanted: fn(&OrdinalState<'_>) -> bool| -> Vec<_> {
            others()
                .filter(|s| wanted(s))
                .map(OrdinalState::absent)
                .collect()
        };
        let out = self.out(Some(&aside.name));
        let missing = absent(|ordinal_state| ordinal_state.state == State::Missing);
        if !missing.is_empty() {
            return Some(WaitingOn::MissingPods { pods: missing, out });
        }
        let pods = self.in_flight(Some(&aside.name));
        if !pods.is_empty() {
            return Some(WaitingOn::InFlight { pods, out });
        }
        let down = absent(|ordinal_state| {
            ordinal_state.revision == Revision::Updated && ordinal_state.state.is_down()
        });
        (!down.is_empty()).then_some(WaitingOn::UpdatedMembers { members: down, out })
    }

    /// The pods that are terminating or have a grant.
    pub(super) fn in_flight(
        &self,
        aside: Option<&crate::quorum::PodName>,
    ) -> Vec<crate::quorum::PodName> {
        let here = self
            .slots
            .iter()
            .filter(|ordinal_state| {
                ordinal_state.state == State::Terminating || ordinal_state.grant != Granted::No
            })
            .map(|ordinal_state| &ordinal_state.name);
        let granted = self.grants.iter().map(|(pod, _)| pod);
        let mut pods: Vec<_> = here
            .chain(granted)
            .filter(|pod| Some(*pod) != aside)
            .cloned()
            .collect();
        pods.sort();
        pods.dedup();
        pods
    }
}
