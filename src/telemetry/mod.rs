//! What the process says about itself: log lines, metrics and Kubernetes Events.
//!
//! Labels and reasons are words from fixed sets (slugs), never object names, except where a metric is about one cluster.

pub mod events;
pub mod logs;
pub mod metrics;
pub mod strangers;
