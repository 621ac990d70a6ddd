//! quorumgate keeps etcd clusters on Kubernetes quorate: before a member goes, etcd itself is asked.

pub mod admission;
pub mod api;
pub mod cli;
pub mod clock;
pub mod etcd;
pub mod judge;
pub mod ledger;
pub mod observe;
pub mod quorum;
pub mod reconcile;
pub mod serve;
pub mod telemetry;

#[cfg(test)]
mod fake_api;
