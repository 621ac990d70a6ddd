//! The webhooks over HTTP, with judges of the test's own behind them: what is asked, and what is answered.
//!
//! Rows of the conformance table are named by their ids (S: Strimzi, K: Kruise, P: PodDisruptionBudget, N: ours).

#![expect(
    clippy::panic,
    reason = "a world that is asked what it does not expect has failed its test"
)]

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
