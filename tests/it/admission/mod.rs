//! The webhooks over HTTP, in front of the tests' own judges: their questions and their answers.
//!
//! Rows of the conformance table are named by their ids (S: Strimzi, K: Kruise, P:
//! PodDisruptionBudget, N: the gate's own).

#![expect(
    clippy::panic,
    reason = "a world that is asked what it does not expect has failed its test"
)]

mod claims;
pub(crate) mod door;
mod evictions;
mod extremes;
mod limits;
mod malformed;
mod mutations;
mod pods;
mod refusals;
mod restarts;
mod stateful_sets;
mod strategies;
mod volumes;
