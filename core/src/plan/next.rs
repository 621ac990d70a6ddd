//! The order of a rollout, step by step.

use super::board::Board;
use super::desired::Desired;
use super::step::Step;
use super::waiting::WaitingOn;
use crate::quorum::{Grants, Snapshot};

/// What a rollout does next.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Next {
    /// Nothing: every target ordinal carries the update revision.
    Done,
    /// These steps, and then it observes again.
    Act(Steps),
    /// It waits.
    Wait(WaitingOn),
}

/// Steps of one cycle: one, or several members that do not serve. Each is judged anew, so a later one may be refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Steps {
    steps: Vec<Step>,
}

impl Steps {
    /// A single step.
    pub(super) fn one(step: Step) -> Self {
        Self { steps: vec![step] }
    }

    /// These steps; `None` where there are none.
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

/// What a rollout under `OnDelete` does next, with the given grants open.
///
/// Equal arguments give equal answers, and no answer depends on an earlier one.
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
