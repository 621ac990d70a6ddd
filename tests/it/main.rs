//! The integration tests, in one binary, so that only one has to be linked.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that cannot go on has failed, and what its own fixtures hold is known"
)]

mod admission;
mod alerts;
mod architecture;
mod chart;
mod comments;
mod conformance;
mod dashboard;
mod documents;
mod health_checks;
mod image;
mod log_messages;
mod manifests;
mod metrics;
mod pages;
mod reference;
mod release;
mod serve;
mod session;
mod sources;
mod tiers;
mod workflows;
