//! Failures to read. Each of them makes the caller wait.

use std::time::Duration;

use crate::api::BadField;
use crate::ledger::LedgerError;

/// The object that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The pod.
    #[error("could not read the pod")]
    Pod(#[source] kube::Error),
    /// The pods of the cluster.
    #[error("could not read the pods of the cluster")]
    Pods(#[source] kube::Error),
    /// The claim.
    #[error("could not read the claim")]
    Claim(#[source] kube::Error),
    /// The StatefulSet.
    #[error("could not read the StatefulSet")]
    StatefulSet(#[source] kube::Error),
    /// The namespace.
    #[error("could not read the namespace")]
    Namespace(#[source] kube::Error),
    /// The `PodDisruptionBudget`s of the namespace.
    #[error("could not read the PodDisruptionBudgets of the namespace")]
    DisruptionBudgets(#[source] kube::Error),
    /// The member Leases, where evidence comes from them.
    #[error("could not read the member Leases")]
    Leases(#[source] kube::Error),
    /// The StatefulSet's selector is invalid.
    #[error("the StatefulSet's selector cannot be used: {0}")]
    Selector(String),
    /// The budget's spec.
    #[error("the budget's spec cannot be used")]
    Spec(#[source] BadField),
    /// The ledger.
    #[error("could not read the budgets")]
    Ledger(#[source] LedgerError),
    /// The API server did not answer in time.
    #[error("could not read {what} within {} s", after.as_secs())]
    Late {
        /// The object that was to be read.
        what: &'static str,
        /// The time limit.
        after: Duration,
    },
}
