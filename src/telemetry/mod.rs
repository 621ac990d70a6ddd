//! Log lines, metrics, traces and Kubernetes Events.
//!
//! Labels and reasons are words from fixed sets. Object names are labels only where a metric is
//! about one cluster.

pub mod events;
pub mod logs;
pub mod metrics;
pub mod traces;
pub mod unauthenticated;
