//! Step 2: outdated members that do not serve go first. Their replacement takes nothing from the
//! cluster, and may repair it.

use std::cmp::Reverse;
use std::time::Duration;

use super::desired::NonServing;
use super::next::{Next, Steps};
use super::ordinal_state::{Granted, OrdinalState, Revision};
use super::rollout_state::RolloutState;
use super::state::State;
use super::step::{Action, Because, Step};
use super::waiting::WaitingOn;
use crate::quorum::{GrantKind, Grants, Why};

/// The run time after which a process is taken not to crash again and again.
const LASTS_AFTER: Duration = Duration::from_secs(20);

/// The time without an answer after which a member is taken to hang. A member that is only slow may
/// lead, and could hand leadership over a moment later.
const HANGS_AFTER: Duration = Duration::from_secs(4);

/// The order of the members: the less a member can still contribute, the earlier it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    /// The member is dead, or the pod is no member.
    Dead,
    /// The member does not serve yet.
    Starting,
    /// The process runs, and the member would serve as soon as there is a quorum.
    Alive,
    /// The member does not answer: it hangs or is cut off. A restart may mend it, and costs nothing
    /// while the others make the majority.
    Silent,
}

impl Class {
    /// The class of a state. `None` for members that serve, are learning, or are not there.
    fn from_state(state: &State) -> Option<Self> {
        match state {
            State::Dead | State::NotAMember => Some(Self::Dead),
            State::Starting => Some(Self::Starting),
            State::Failing(_) | State::Stuck => Some(Self::Alive),
            State::Unknown(_) => Some(Self::Silent),
            State::Missing | State::Terminating | State::Serving | State::Learning => None,
        }
    }
}

impl<'a> RolloutState<'a> {
    /// The steps that replace outdated non-serving members, or the reason to wait. `None` if there
    /// is no such member.
    pub(super) fn replace_non_serving(&self) -> Option<Next> {
        let mut grants = self.grants.clone();
        let mut steps: Vec<Step> = Vec::new();
        let mut refused: Option<Box<WaitingOn>> = None;
        for ordinal_state in self.non_serving() {
            if !steps.is_empty() && self.is_needed_for_quorum(ordinal_state) {
                // The members of this cycle have to be tried before this one.
                break;
            }
            match self.replace(ordinal_state, &grants) {
                Ok(step) => {
                    grants = with(&grants, &step);
                    let moves = matches!(step.action, Action::MoveLeader { .. });
                    if moves && !steps.is_empty() {
                        break;
                    }
                    steps.push(step);
                    if moves || self.desired.non_serving == NonServing::OneAtATime {
                        break;
                    }
                }
                // A member of which nothing is known is no reason to act, and must not hold up the
                // others.
                Err(_) if matches!(ordinal_state.state, State::Unknown(_)) => {}
                Err(waiting) => refused = refused.or(Some(waiting)),
            }
        }
        match Steps::new(steps) {
            Some(steps) => Some(Next::Act(steps)),
            None => refused.map(|waiting| Next::Wait(*waiting)),
        }
    }

    /// The outdated members that do not serve, in the order in which they go.
    pub(super) fn non_serving(&self) -> Vec<&OrdinalState<'a>> {
        let mut sorted: Vec<(_, &OrdinalState<'a>)> = self
            .slots
            .iter()
            .filter(|ordinal_state| ordinal_state.is_open())
            .filter_map(|ordinal_state| {
                let class = Class::from_state(&ordinal_state.state)?;
                let begun = Reverse(ordinal_state.grant == Granted::ToRollout);
                let last = (
                    ordinal_state.leads(),
                    Reverse(ordinal_state.lag()),
                    Reverse(ordinal_state.ordinal),
                );
                Some(((begun, class, last), ordinal_state))
            })
            .collect();
        sorted.sort_by_key(|(key, _)| *key);
        sorted
            .into_iter()
            .map(|(_, ordinal_state)| ordinal_state)
            .collect()
    }

    fn replace(
        &self,
        ordinal_state: &OrdinalState<'_>,
        grants: &Grants,
    ) -> Result<Step, Box<WaitingOn>> {
        if let Some(untried) = self.untried(ordinal_state) {
            return Err(untried.into());
        }
        if matches!(ordinal_state.state, State::Unknown(_)) && !self.hangs(ordinal_state) {
            return Err(self.waiting().into());
        }
        let pod = self.may_take(ordinal_state, grants, Action::Delete)?;
        let action = self.handing_over(ordinal_state, grants, Action::Delete)?;
        Ok(Step {
            pod,
            action,
            because: Because::NonServing(ordinal_state.state.clone()),
        })
    }
}

impl RolloutState<'_> {
    /// Whether quorum is lost and the member is alive.
    fn is_needed_for_quorum(&self, ordinal_state: &OrdinalState<'_>) -> bool {
        self.snapshot.quorum_lost && matches!(ordinal_state.state, State::Failing(_))
    }

    /// The reason to keep a member that is alive while quorum is lost, if there is one.
    ///
    /// Such a member is needed to bring quorum back. The new revision may be the repair. But where
    /// it has been tried, some updated member has to answer or to keep running before the next
    /// member is given up.
    fn untried(&self, ordinal_state: &OrdinalState<'_>) -> Option<WaitingOn> {
        if !self.is_needed_for_quorum(ordinal_state) {
            return None;
        }
        let mut tried = self
            .slots
            .iter()
            .filter(|other| {
                // A pod that is terminating makes room for an updated one, which has to be seen
                // first.
                let leaving = other.state == State::Terminating;
                leaving || matches!(other.revision, Revision::NoPod | Revision::Updated)
            })
            .peekable();
        tried.peek()?;
        let none_lasts = tried.all(|other| !other.state.answers() && !lasts(other));
        none_lasts.then(|| self.waiting())
    }
}

impl RolloutState<'_> {
    /// Whether the member has not served for so long that it is not merely slow.
    fn hangs(&self, ordinal_state: &OrdinalState<'_>) -> bool {
        let out_for = self.desired.out_for.get(&ordinal_state.name);
        out_for.is_some_and(|out_for| *out_for >= HANGS_AFTER)
    }
}

/// Whether the process has been running for a while.
fn lasts(ordinal_state: &OrdinalState<'_>) -> bool {
    let up_for = ordinal_state.pod.and_then(|pod| pod.up_for);
    let is_out = matches!(
        ordinal_state.state,
        State::Terminating | State::Unknown(Why::RefusesAsAllDo)
    );
    !is_out && !ordinal_state.state.is_down() && up_for >= Some(LASTS_AFTER)
}

/// The grants as they will be once this step has its grant.
fn with(grants: &Grants, step: &Step) -> Grants {
    let permitted = GrantKind::Delete {
        uid: step.pod.uid.clone(),
        rollout: true,
    };
    grants.issue(&step.pod.name, permitted, String::new(), String::new())
}
