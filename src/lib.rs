//! quorumgate keeps etcd clusters on Kubernetes quorate: it asks etcd before a member is disrupted.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::sync::Arc;

pub mod admission;
pub mod app;
mod causes;
pub mod certificates;
pub mod cli;
pub mod clock;
mod crypto;
pub mod etcd;
pub mod features;
pub mod judge;
pub mod ledger;
mod lists;
mod named;
pub mod observe;
pub mod reachability;
pub mod reconcile;
mod room;
pub mod serve;
pub mod strategy;
pub mod supervise;
pub mod telemetry;
mod turns;

pub use quorumgate_api as api;
pub use quorumgate_core::{members, plan, quorum};

#[cfg(test)]
mod fake_api;

/// Selects the TLS implementation of the process. The first call has to come before the first
/// connection; further calls change nothing.
pub fn install_crypto_provider() {
    // The error says that one was installed already.
    let _ = Arc::unwrap_or_clone(crypto::provider()).install_default();
}
