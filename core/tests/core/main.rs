//! Scenarios and properties of the decision and of the rollout planner. They share one binary, so
//! that there is one link.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed, and what its own fixtures hold is known"
)]

mod plan;
mod properties;
mod scenarios;
mod world;
