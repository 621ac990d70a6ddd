//! The order of a rollout, step by step.

use super::board::Board;
use super::desired::Desired;
use super::step::Step;
use super::waiting::WaitingOn;
use crate::quorum::{Grants, Snapshot};

/// The next thing that a rollout does.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing is left: every pod above the partition has the update revision.
    Done,
    /// The rollout carries out these steps. After them the cluster is observed again.
    Act(Steps),
    /// The rollout waits.
    Wait(WaitingOn),
}

/// The steps of one cycle: a single one, or several members that do not serve. Each is decided on
/// again, so a later one may be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    steps: Vec<Step>,
}

impl Steps {
    /// A single step.
    pub(super) fn one(step: Step) -> Self {
        Self { steps: vec![step] }
    }

    /// Several steps; `None` if there are none.
    pub(super) fn of(steps: Vec<Step>) -> Option<Self> {
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// The steps, at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, Step> {
        self.steps.iter()
    }
}

impl IntoIterator for Steps {
    type Item = Step;
    type IntoIter = std::vec::IntoIter<Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.steps.into_iter()
    }
}

impl<'a> IntoIterator for &'a Steps {
    type Item = &'a Step;
    type IntoIter = std::slice::Iter<'a, Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The next step of a rollout under `OnDelete`, while the given grants are open.
///
/// Equal arguments give equal results, and no result depends on an earlier one.
///
/// ```
/// use quorumgate_core::plan::{Desired, Next, next_step};
/// use quorumgate_core::quorum::{Grants, Snapshot, example};
///
/// let mut observation = example::healthy("etcd-main", 3);
/// observation.update_revision = Some("new".into());
/// for pod in &mut observation.pods {
///     pod.revision = Some("old".into());
/// }
/// let cluster = Snapshot::assemble(&observation);
/// let Next::Act(steps) = next_step(&cluster, &Grants::default(), &Desired::by_default()) else {
///     panic!("a healthy cluster has nothing to wait for")
/// };
/// // The member in etcd-main-0 leads, so a follower goes first.
/// let first = steps.iter().next().unwrap();
/// assert_eq!(first.to_string(), "delete etcd-main-2: it is an outdated follower");
/// ```
pub fn next_step(snapshot: &Snapshot, grants: &Grants, desired: &Desired) -> Next {
    let board = Board::of(snapshot, grants, desired);
    if let Some(waiting) = board.not_begun() {
        return Next::Wait(waiting);
    }
    if board.is_done() {
        return Next::Done;
    }
    if let Some(waiting) = board.suspended() {
        return Next::Wait(waiting);
    }
    if let Some(obstacle) = board.obstacle() {
        return board.proceed_without_quorum(obstacle);
    }
    board
        .replace_non_serving()
        .or_else(|| board.held().map(Next::Wait))
        .or_else(|| board.take_serving())
        .unwrap_or_else(|| Next::Wait(board.waiting()))
}
