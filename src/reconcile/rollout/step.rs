//! The steps of a rollout, and the facts that it needs.

use std::fmt;

use serde_json::Value;
use tokio::time::Instant;

use crate::plan::{self, Desired, WaitingOn};

/// The facts that a look lacks.
pub(in crate::reconcile) struct Input {
    pub(super) desired: Desired,
    /// Whether only the gate replaces the StatefulSet's pods.
    pub(super) ours: bool,
    pub(super) now: Instant,
}

/// A step of a rollout.
pub(in crate::reconcile) enum Step {
    /// A pod goes.
    Go(plan::Step),
    /// The partition 0 is written, so that the StatefulSet controller creates pods with the new
    /// revision.
    Partition(Value),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Go(step) => step.fmt(f),
            Self::Partition(_) => f.write_str("write the partition 0"),
        }
    }
}

/// The reason why nothing is done.
pub(in crate::reconcile) enum Wait {
    /// Every pod has the update revision.
    Done,
    /// The rollout waits.
    On(WaitingOn),
    /// The StatefulSet controller updates, and needs no help.
    Controller,
    /// The owner replaces pods by hand.
    Owner,
}
